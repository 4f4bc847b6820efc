"""From a record to a diagnosis. Pure: no clocks, no files, no processes."""

from dataclasses import dataclass
from typing import cast

from stoker.doctor._diagnosis import WORTHWHILE, Diagnosis, Interval, Verdict
from stoker.doctor._record import Record
from stoker.doctor._words import duration, error_line, percent
from stoker.doctor.analysis._advice import advise
from stoker.doctor.analysis._causes import Blame, Case, blame
from stoker.doctor.analysis._cost import cost_of
from stoker.doctor.analysis._fit import fit
from stoker.doctor.analysis._notes import notes_of
from stoker.doctor.analysis._outlook import look_ahead
from stoker.doctor.analysis._shares import Shares, share_out
from stoker.doctor.analysis._sound import sound
from stoker.doctor.analysis._stages import Timing, step_times, time_steps

_WITHIN_REACH = 0.85  # a second cause of this part of the first makes the verdict "mixed"
_COMPUTING = 0.6  # how much computing counts beside losses: it is no fault, and what can be cured comes first
_FEW_STEPS = 20


def diagnose(record: Record) -> Diagnosis:
    """What the record means. Takes any record, also an empty or broken-off one; never raises on it."""
    record = sound(record)
    timing = time_steps(record)
    if timing is None:
        return _nothing(record)
    shares = share_out(record, timing)
    model = fit(record, timing)
    outlook = look_ahead(record, timing, model) if model is not None else None
    cost = cost_of(record, timing.loader, timing.trial, model) if timing.loader is not None else None
    case = Case(record, timing, shares, cost, outlook)
    found = blame(case)
    judgement = _judge(timing, shares)
    advice = advise(case, found, model, judgement.verdict)
    sentence = _sentence(judgement, timing, shares, found, gains=bool(advice))
    whole = timing.whole_s
    return Diagnosis(
        verdict=judgement.verdict,
        confidence=judgement.confidence,
        sentence=sentence,
        culprit=_culprit(judgement, found),
        causes=found.causes,
        stages=timing.stages,
        step_s=timing.step_s,
        samples_per_s=timing.samples_per_step / whole if timing.samples_per_step else None,
        starved_fraction=shares.starved,
        ceiling_speedup=timing.ceiling,
        device_ceiling_speedup=timing.device_ceiling,
        advice=advice,
        transforms=cost.transforms if cost is not None else {},
        notes=notes_of(record, timing, shares, model),
        overhead_s_per_step=record.overhead_s_per_step,
        pause_s_per_step=timing.pause_s,
        step_times=step_times(record),
        samples_per_step=timing.samples_per_step,
    )


@dataclass(frozen=True)
class _Judgement:
    verdict: Verdict
    first: str  # the verdicts by their shares
    second: str
    confidence: float


def _judge(timing: Timing, shares: Shares) -> _Judgement:
    weighed = shares.by_verdict | {"compute-bound": _COMPUTING * shares.compute}
    ranked = sorted(weighed.items(), key=lambda item: -item[1])
    (first, most), (second, next_most) = ranked[0], ranked[1]
    is_mixed = next_most > _WITHIN_REACH * most
    # how far the second is from changing the verdict, against what the shares may be wrong by
    distance = abs(next_most - _WITHIN_REACH * most) if is_mixed else most - next_most
    doubt = 0.05 + timing.noise + (0.0 if timing.host_s is not None else 0.1)
    confidence = distance / (distance + doubt)
    if timing.num_steps < _FEW_STEPS:
        confidence *= timing.num_steps / _FEW_STEPS
    verdict = cast(Verdict, "mixed" if is_mixed else first)
    return _Judgement(verdict, first, second, min(max(confidence, 0.0), 1.0))


def _culprit(judgement: _Judgement, found: Blame) -> str:
    """Of two that are within reach of each other, the one that can be cured."""
    first, second = judgement.first, judgement.second
    if judgement.verdict == "mixed" and first == "compute-bound":
        first, second = second, first
    return found.culprits.get(first, "") or found.culprits.get(second, "")


def _sentence(judgement: _Judgement, timing: Timing, shares: Shares, found: Blame, *, gains: bool) -> str:
    share = {verdict: percent(value) for verdict, value in shares.by_verdict.items()}
    step = f"a step takes {duration(timing.whole_s)}"
    culprit = _culprit(judgement, found)
    ceiling = ""
    if timing.ceiling is not None and timing.ceiling.value > WORTHWHILE:
        ceiling = f" With data that is always there it would be {timing.ceiling.value:.2f} times as fast."
    match judgement.verdict:
        case "input-bound":
            lost = f"{step}, {share['input-bound']} of it for want of data"
            if shares.is_crowded:
                waiting = percent(shares.input - shares.contention)
                lost = f"{step}, {waiting} of it for want of data and {percent(shares.contention)} because "
                lost += "workers and model share the cores"
            return f"Input-bound: {lost}. Culprit: {culprit}.{ceiling}"
        case "copy-bound":
            return f"Copy-bound: {step}, {share['copy-bound']} of it copies batches. Culprit: {culprit}."
        case "python-bound":
            return (
                f"Python-bound: {step}, {share['python-bound']} of it in Python rather than in computing. "
                f"Culprit: {culprit}."
            )
        case "compute-bound":
            rest = ceiling or ("" if gains else " Leave the loader alone: it has nothing to gain.")
            return f"Compute-bound: {step}, {share['compute-bound']} of it computes: {culprit}.{rest}"
        case _:
            both = " and ".join(
                f"{share[verdict]} {verdict.removesuffix('-bound')}"
                for verdict in (judgement.first, judgement.second)
            )
            return f"Mixed: {step}, {both}. Culprit: {culprit}.{ceiling}"


def _nothing(record: Record) -> Diagnosis:
    parts = []
    if record.error:
        parts.append(f"the run crashed ({error_line(record.error)})")
    elif record.exit_code:
        parts.append(f"the script ended itself with exit code {record.exit_code}")
    num_warmup = len(record.in_phase("warmup"))
    if record.steps:
        parts.append(
            f"of {len(record.steps)} optimizer steps none came after the warm-up"
            if num_warmup
            else f"{len(record.steps)} optimizer steps were seen, but none that counts"
        )
    else:
        parts.append("no optimizer step was seen")
    if record.batches:
        parts.append("batches were made")
    elif record.loaders:
        parts.append(f"{len(record.loaders)} DataLoader(s) were made but gave no batch")
    else:
        parts.append("no DataLoader was made")
    return Diagnosis(
        verdict="nothing observed",
        confidence=0.0,
        sentence="Nothing to judge: " + ", ".join(parts) + ".",
        culprit="",
        causes=(),
        stages={},
        step_s=Interval(0.0, 0.0, 0.0),
        samples_per_s=None,
        starved_fraction=0.0,
        ceiling_speedup=None,
        device_ceiling_speedup=None,
        advice=(),
        transforms={},
        notes=notes_of(record, None, None, None),
        overhead_s_per_step=record.overhead_s_per_step,
    )
