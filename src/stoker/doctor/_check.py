"""Two runs side by side: what a change brought, and whether a run got slower beyond noise."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from stoker.doctor._diagnosis import Advice, Comparison, Diagnosis, Interval
from stoker.doctor._json import from_json
from stoker.doctor._record import Record
from stoker.doctor._words import duration, percent
from stoker.doctor.analysis._noise import Floats, block_length, clipped_mean, drawn_indices, interval, typical
from stoker.doctor.analysis._sound import sound
from stoker.doctor.analysis._stages import Timing, time_steps
from stoker.errors import UsageError


@dataclass(frozen=True)
class StageChange:
    """How one stage differs between two runs."""

    before_s: float  # seconds a step
    after_s: float
    change_s: Interval  # after minus before
    is_significant: bool  # the interval excludes 0


@dataclass(frozen=True)
class CheckResult:
    """Whether a run holds against its baseline."""

    ok: bool
    slowdown: Interval  # relative: 0.05 is five per cent slower
    noise: float  # half the width of the slowdown's interval: what cannot be told apart
    stages: dict[str, StageChange]
    sentence: str


def compare(
    before: Diagnosis,
    before_record: Record,
    after: Diagnosis,
    after_record: Record,
    applied: tuple[Advice, ...] | list[Advice],
) -> Comparison:
    """What was predicted of the applied changes, and what they brought, per sample where known."""
    times = [
        _draws(time_steps(sound(record)), seed) for seed, record in enumerate((before_record, after_record))
    ]
    if times[0] is None or times[1] is None:
        achieved = Interval(1.0, 1.0, 1.0)
    else:
        per_step = _samples_ratio(before, after)
        achieved = interval(
            times[0][0] / times[1][0] / per_step, times[0][1] / np.maximum(times[1][1], 1e-12) / per_step
        )
    settings: dict[str, dict[str, Any]] = {}
    for advice in applied:
        if advice.settings:
            settings.setdefault(advice.loader or "train", {}).update(advice.settings)
    return Comparison(
        applied=tuple(applied),
        settings=settings,
        predicted=_predicted(applied),
        achieved=achieved,
        before=before,
        after=after,
        patch=next((advice.patch for advice in applied if advice.patch), None),
    )


def check(
    now: Diagnosis | dict[str, Any], baseline: Diagnosis | dict[str, Any], *, max_regress: float
) -> CheckResult:
    """Not ok if even the lower end of the slowdown's interval exceeds `max_regress` (0.05: 5 %).

    Noise is what the steps of both runs show: their times are drawn again in blocks. Runs with other
    numbers of samples a step are compared per sample. A report without steps raises UsageError.
    """
    if not 0 <= max_regress < float("inf"):
        raise UsageError(f"max_regress must be at least 0, got {max_regress}: 0.05 allows 5 %")
    new, old = (one if isinstance(one, Diagnosis) else from_json(one) for one in (now, baseline))
    for which, one in (("this run", new), ("the baseline", old)):
        if not one.step_times.get("step"):
            raise UsageError(f"a check needs the times of steps, but {which} has none ({one.sentence})")
    ratio = _samples_ratio(old, new)
    value, draws = _whole(new, seed=1)
    base, base_draws = _whole(old, seed=2)
    slowdown = interval(value / base * ratio - 1, draws / np.maximum(base_draws, 1e-12) * ratio - 1)
    stages = _changes(old, new, ratio)
    ok = slowdown.low <= max_regress
    return CheckResult(
        ok=ok,
        slowdown=slowdown,
        noise=(slowdown.high - slowdown.low) / 2,
        stages=stages,
        sentence=_sentence(slowdown, stages, max_regress=max_regress),
    )


def _predicted(applied: tuple[Advice, ...] | list[Advice]) -> Interval:
    """Of the combination where it was advised as one, else of each on top of the other."""
    together = [advice.speedup for advice in applied if advice.key == "settings"]
    if together:
        return together[0]
    found = [advice.speedup for advice in applied]
    return Interval(*(prod(getattr(one, key) for one in found) for key in ("value", "low", "high")))


def _samples_ratio(before: Diagnosis, after: Diagnosis) -> float:
    """By this the time of a step must be multiplied to compare samples instead of steps."""
    if before.samples_per_step and after.samples_per_step:
        return before.samples_per_step / after.samples_per_step
    return 1.0


def _draws(timing: Timing | None, seed: int) -> tuple[float, Floats] | None:
    if timing is None:
        return None
    draws = np.random.default_rng(seed).permutation(timing.step_draws)  # the two runs vary apart
    return timing.whole_s, draws + timing.pause_s


def _whole(one: Diagnosis, *, seed: int) -> tuple[float, Floats]:
    steps = np.array(one.step_times["step"])
    waits = np.array(one.step_times.get("wait", (0.0,) * len(steps)))
    value, draws = _resampled(np.maximum(steps - waits, 0.0), typical, seed)
    wait, wait_draws = _resampled(waits, clipped_mean, seed)
    return value + wait + one.pause_s_per_step, draws + wait_draws + one.pause_s_per_step


def _resampled(values: Floats, statistic: Callable[[Floats], Floats], seed: int) -> tuple[float, Floats]:
    indices = drawn_indices(len(values), block=block_length(len(values), period=1), seed=seed)
    return float(statistic(values)), statistic(values[indices])


def _changes(old: Diagnosis, new: Diagnosis, ratio: float) -> dict[str, StageChange]:
    found = {}
    names = [name for name in (*old.step_times, *new.step_times) if name != "step"]
    for name in dict.fromkeys(names):
        statistic = clipped_mean if name == "wait" else typical
        before, before_draws = _stage(old, name, statistic, seed=3)
        after, after_draws = _stage(new, name, statistic, seed=4)
        change = interval(after * ratio - before, after_draws * ratio - before_draws)
        found[name] = StageChange(before, after * ratio, change, change.low > 0 or change.high < 0)
    starts = (old.pause_s_per_step, new.pause_s_per_step * ratio)
    if any(starts):
        change_s = starts[1] - starts[0]
        # one figure a run: of its noise nothing is known, so only a change by half counts
        is_significant = abs(change_s) > 0.5 * max(starts)
        found["epoch start"] = StageChange(*starts, Interval(change_s, change_s, change_s), is_significant)
    return found


def _stage(
    one: Diagnosis, name: str, statistic: Callable[[Floats], Floats], seed: int
) -> tuple[float, Floats]:
    times = one.step_times.get(name, (0.0,) * len(one.step_times["step"]))
    return _resampled(np.array(times), statistic, seed)


def _sentence(slowdown: Interval, stages: dict[str, StageChange], *, max_regress: float) -> str:
    spread = f"({slowdown.low:+.1%} to {slowdown.high:+.1%})"
    worse = {
        name: change for name, change in stages.items() if change.is_significant and change.change_s.value > 0
    }
    if slowdown.low > max_regress:
        text = f"Slower by {slowdown.value:.1%} {spread}, beyond the {percent(max_regress)} allowed"
        if not worse:
            return f"{text}; no single stage stands out."
        name = max(worse, key=lambda name: worse[name].change_s.value)
        change = worse[name]
        return f"{text}: {name} went from {duration(change.before_s)} to {duration(change.after_s)} a step."
    if slowdown.high < 0:
        return f"Faster by {-slowdown.value:.1%} {spread}."
    if slowdown.low > 0:
        return f"Slower by {slowdown.value:.1%} {spread}, within the {percent(max_regress)} allowed."
    return f"No change that can be told from noise {spread}."
