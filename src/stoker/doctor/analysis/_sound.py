"""What of a record can be believed: clocks and counters of a broken-off run may hold anything."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from stoker.doctor._record import Batch, Line, Operators, Record, Step, Trial

_LONGEST_S = 1e7  # four months
_SHORTEST_S = 1e-9  # the clock's own resolution

_Name = TypeVar("_Name", bound=str)


def sound(record: Record) -> Record:
    """The record without what has no possible duration. Nothing is repaired, only left out."""
    return replace(
        record,
        batches=[_with_sound_parts(batch) for batch in record.batches if _is_sound_batch(batch)],
        steps=[
            replace(
                step, stages=_durations(step.stages), cpu_s=step.cpu_s if _is_duration(step.cpu_s) else 0.0
            )
            for step in record.steps
            if _is_sound_step(step)
        ],
        pauses=[pause for pause in record.pauses if _is_duration(pause.end_s - pause.begin_s)],
        lines=[line for line in record.lines if _is_sound_line(line)],
        operators=_sound_operators(record.operators),
        trials=[_with_sound_options(trial) for trial in record.trials if _is_sound_trial(trial)],
        overhead_s_per_step=record.overhead_s_per_step if _is_duration(record.overhead_s_per_step) else 0.0,
    )


def _is_duration(seconds: float) -> bool:
    return math.isfinite(seconds) and 0 <= seconds <= _LONGEST_S


def _durations(found: Mapping[_Name, float]) -> dict[_Name, float]:
    return {name: seconds for name, seconds in found.items() if _is_duration(seconds)}


def _is_sound_step(step: Step) -> bool:
    return _is_duration(step.seconds) and step.seconds >= _SHORTEST_S


def _is_sound_batch(batch: Batch) -> bool:
    return all(
        _is_duration(seconds)
        for seconds in (batch.fetch_s, batch.fetch_cpu_s, batch.collate_s, batch.collate_cpu_s)
    )


def _with_sound_parts(batch: Batch) -> Batch:
    waited = batch.taken_s - batch.asked_s if batch.taken_s is not None and batch.asked_s is not None else 0.0
    queued = batch.queued_s if batch.queued_s is not None and _is_duration(batch.queued_s) else None
    batch = replace(batch, transforms=_durations(batch.transforms), queued_s=queued)
    return batch if _is_duration(waited) else replace(batch, asked_s=None, taken_s=None)


def _is_sound_line(line: Line) -> bool:
    return _is_duration(line.seconds) and line.seconds >= _SHORTEST_S


def _sound_operators(operators: Operators | None) -> Operators | None:
    if operators is None or not _is_duration(operators.seconds_per_operator):
        return None
    if not math.isfinite(operators.per_step) or operators.per_step < 0:
        return None
    return replace(
        operators, by_module=_durations(operators.by_module), host_syncs=_durations(operators.host_syncs)
    )


def _is_sound_trial(trial: Trial) -> bool:
    times = (trial.seconds_per_sample, trial.cpu_s_per_sample, trial.spread, trial.collate_s_per_batch)
    return trial.num_samples > 0 and all(_is_duration(seconds) for seconds in times)


def _with_sound_options(trial: Trial) -> Trial:
    transfer, fixed = trial.transfer_s_per_batch, trial.deterministic_s_per_sample
    return replace(
        trial,
        transforms=_durations(trial.transforms),
        transfer_s_per_batch=transfer if transfer is not None and _is_duration(transfer) else None,
        deterministic_s_per_sample=fixed if fixed is not None and _is_duration(fixed) else None,
    )
