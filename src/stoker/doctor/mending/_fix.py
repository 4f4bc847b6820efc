"""Apply the safe part of the advice, measure again, keep what helps. No file of the user's is touched.

    measure → diagnose → apply the best safe settings → measure → compare ─┬─ better: keep, look again
                              ↑                                            └─ not: take back
                              └── at most `max_trials` times ───────────────┘

How a run is measured is the caller's: a function of the edits, so that each run can have a process of
its own and none inherits another's caches, threads or workers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stoker.doctor._check import compare
from stoker.doctor._diagnosis import WORTHWHILE, Advice, Comparison, Diagnosis, Interval
from stoker.doctor._record import Record
from stoker.doctor.analysis._analysis import diagnose
from stoker.doctor.mending._patch import Edit, Patch, make_patch

# the edits to apply, and steps that must pass before measuring beyond the usual warm-up
Measure = Callable[[tuple[Edit, ...], int], Record]

_NOT_KEYWORDS = {"cache", "torch_threads"}
_COMBINED = {"settings", "divided stream"}  # the best of all that may be changed together
_MOST_FILLING = 400  # steps in which a cache may fill before its gain is measured


@dataclass(frozen=True)
class Attempt:
    """Settings that were tried."""

    edits: tuple[Edit, ...]
    comparison: Comparison  # with the run as the script says
    record: Record
    is_kept: bool
    why: str


@dataclass(frozen=True)
class Fixed:
    """What could be done without touching a file."""

    record: Record  # of the run as the script says
    diagnosis: Diagnosis
    attempts: tuple[Attempt, ...]
    best: Attempt | None  # None: nothing that is safe helps
    patch: Patch
    sentence: str
    reordering: Advice | None = None  # what would bring more, but was not allowed: it changes samples' order

    @property
    def comparison(self) -> Comparison | None:
        """Before and after, with the patch."""
        return self.best.comparison if self.best else None


def fix(measure: Measure, *, folder: Path, max_trials: int = 3, may_reorder: bool = False) -> Fixed:
    """Measure, apply, measure again. `folder` is where the patch's paths begin without a repository.

    With `may_reorder` also what changes nothing of the training but the order of samples.
    """
    before_record = measure((), 0)
    before = with_patches(diagnose(before_record), before_record, folder=folder)
    attempts: list[Attempt] = []
    best: Attempt | None = None
    state = _State(before, before_record, (), may_reorder)
    tried: list[tuple[Edit, ...]] = [()]
    has_crashed = before_record.ended == "crashed"  # as it is: no setting is to blame
    while not has_crashed and len(attempts) < max_trials and (found := _untried(state, tried)) is not None:
        advice, edits = found
        tried.append(edits)
        record = measure(edits, _filling_steps(edits, state.record))
        after = diagnose(record)
        applied = _on_top_of(best, advice)
        comparison = compare(before, before_record, after, record, [applied])
        attempt = _judged(edits, comparison, record, floor=_reached(best))
        attempts.append(attempt)
        if attempt.is_kept:
            best, state = attempt, replace(state, diagnosis=after, record=record, edits=edits)
    before = replace(before, notes=(*before.notes, *_refuted(attempts)))
    patch = make_patch(best.edits if best else (), folder=folder)
    if best is not None:
        best = replace(best, comparison=replace(best.comparison, patch=patch.text or None))
    sentence = _sentence(before, attempts, best, has_crashed=has_crashed)
    reordering = None if may_reorder else _reordering(before, reached=_reached(best))
    return Fixed(before_record, before, tuple(attempts), best, patch, sentence, reordering)


def _reordering(before: Diagnosis, *, reached: float) -> Advice | None:
    """What promises most of what changes the order of samples, if that is more than was reached."""
    found = [one for one in before.advice if one.changes_order_only and one.settings]
    most = max(found, key=lambda one: one.speedup.value, default=None)
    return most if most is not None and most.speedup.value >= WORTHWHILE * reached else None


def _reached(best: Attempt | None) -> float:
    """The speed-up so far."""
    return best.comparison.achieved.value if best else 1.0


def _refuted(attempts: list[Attempt]) -> list[str]:
    """What stands in the advice, and did not do what it promises."""
    return [
        f"Tried and taken back: {attempt.comparison.applied[-1].action.rstrip('.')}; "
        f"{attempt.comparison.predicted.value:.2f} times as fast was predicted, {attempt.why}."
        for attempt in attempts
        if not attempt.is_kept
    ]


def with_patches(diagnosis: Diagnosis, record: Record, *, folder: Path) -> Diagnosis:
    """The diagnosis with a diff for each advice that a diff of the source can follow."""
    return replace(
        diagnosis,
        advice=tuple(
            replace(advice, patch=make_patch(merged((), advice, record), folder=folder).text or None)
            if advice.settings and not advice.patch
            else advice
            for advice in diagnosis.advice
        ),
    )


def merged(edits: tuple[Edit, ...], advice: Advice, record: Record) -> tuple[Edit, ...]:
    """The edits with those of an advice on top; none more where the place of its loader is unknown."""
    place = next((one.made_at for one in record.loaders if one.name == advice.loader), None) or advice.place
    if place is None:
        return edits
    keywords = {name: value for name, value in advice.settings.items() if name not in _NOT_KEYWORDS}
    own = next((edit for edit in edits if (edit.file, edit.line) == (place.file, place.line)), None)
    own = own or Edit(place.file, place.line)
    new = Edit(
        place.file,
        place.line,
        {**own.keywords, **keywords},
        is_cached=own.is_cached or bool(advice.settings.get("cache")),
        torch_threads=advice.settings.get("torch_threads", own.torch_threads),
    )
    return (*(edit for edit in edits if edit is not own), new)


@dataclass(frozen=True)
class _State:
    """The best that is known, from which the next trial starts."""

    diagnosis: Diagnosis
    record: Record
    edits: tuple[Edit, ...]
    may_reorder: bool


def _untried(state: _State, tried: list[tuple[Edit, ...]]) -> tuple[Advice, tuple[Edit, ...]] | None:
    """The next advice to apply, and all edits with it."""
    for advice in _applicable(state):
        edits = merged(state.edits, advice, state.record)
        if edits not in tried:
            return advice, edits
    return None


def _applicable(state: _State) -> list[Advice]:
    """What is safe and can be shown to help, the advised combinations first."""
    again = {loader.name for loader in state.record.loaders if loader.num_epochs > 1}
    found = [
        advice
        for advice in state.diagnosis.advice
        if advice.settings
        and (not advice.changes_training or (state.may_reorder and advice.changes_order_only))
        and advice.speedup.value >= WORTHWHILE
        and ("cache" not in advice.settings or advice.loader in again)  # a cache gains in the second epoch
    ]
    return sorted(found, key=lambda advice: (advice.key not in _COMBINED, -advice.speedup.value))


def _on_top_of(best: Attempt | None, advice: Advice) -> Advice:
    """An advice for the fixed run, as one for the run before."""
    if best is None:
        return advice
    reached, settings = best.comparison.achieved, dict[str, Any]()
    for one in (*best.comparison.applied, advice):
        settings |= one.settings
    named = ", ".join(f"{name}={value}" for name, value in settings.items())
    return replace(
        advice,
        action=f"Set {named} for the loader {advice.loader!r}.",
        settings=settings,
        speedup=Interval(
            *(getattr(advice.speedup, end) * getattr(reached, end) for end in ("value", "low", "high"))
        ),
        ram_bytes=advice.ram_bytes + sum(one.ram_bytes for one in best.comparison.applied),
    )


def _judged(edits: tuple[Edit, ...], comparison: Comparison, record: Record, *, floor: float) -> Attempt:
    achieved = comparison.achieved
    if not record.in_phase("normal"):
        why = f"no step was measured: {comparison.after.sentence.rstrip('.')}"
        return Attempt(edits, comparison, record, is_kept=False, why=why)
    if record.ended == "crashed":
        return Attempt(edits, comparison, record, is_kept=False, why="the run crashed with these settings")
    if achieved.high < floor:
        why = f"slower beyond noise: {achieved.value:.2f} times the speed"
    elif achieved.value < floor * WORTHWHILE:
        why = f"no gain that can be told from noise: {achieved.value:.2f} times the speed"
    else:
        return Attempt(edits, comparison, record, is_kept=True, why=f"{achieved.value:.2f} times as fast")
    return Attempt(edits, comparison, record, is_kept=False, why=why)


def _filling_steps(edits: tuple[Edit, ...], record: Record) -> int:
    """A cache gains from the second epoch on: the steps of the first."""
    cached = {(edit.file, edit.line) for edit in edits if edit.is_cached}
    batches = [
        loader.num_batches
        for loader in record.loaders
        if loader.num_batches and loader.made_at and (loader.made_at.file, loader.made_at.line) in cached
    ]
    per_step = max((step.num_batches for step in record.steps), default=1)
    return min(_MOST_FILLING, math.ceil(max(batches, default=0) / max(1, per_step)))


def _sentence(before: Diagnosis, attempts: list[Attempt], best: Attempt | None, *, has_crashed: bool) -> str:
    if best is not None:
        done, step = best.comparison, before.step_s.value + before.pause_s_per_step
        after = done.after.step_s.value + done.after.pause_s_per_step
        return (
            f"{done.achieved.value:.2f} times as fast ({1000 * step:.1f} → {1000 * after:.1f} ms a step); "
            f"{done.predicted.value:.2f} was predicted."
        )
    if attempts:
        tried = "; ".join(attempt.why for attempt in attempts)
        return f"What was tried did not help and was taken back ({tried})."
    if before.verdict == "nothing observed":
        return "Nothing was measured, so there is nothing to apply."
    if has_crashed:
        return "The script crashes as it is: mend that first; nothing was tried."
    return "There is nothing to gain from what can be applied safely; nothing was changed."
