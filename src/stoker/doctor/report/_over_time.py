"""What the page draws over time, as columns of whole numbers, thinned out so that a long run stays small.

Neighbours are merged into groups. A group keeps its mean and its extremes, so a single long step or a
short peak of memory can still be seen; no more groups are made than a wide screen can show a few times
over. Times are microseconds since the record began.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import ceil
from statistics import fmean, median
from typing import Any, TypeVar

from stoker.doctor._record import STAGES, Batch, Moment, Pause, Phase, Record, Step
from stoker.doctor._words import TO

PHASES: tuple[Phase, ...] = ("warmup", "normal", "host", "device")
MAX_STEP_GROUPS = 3000
MAX_BATCH_GROUPS = 6000
MAX_WAITS = 3000
MAX_MOMENTS = 1200
MAX_LANES = 64
MAX_CORE_ROWS = 32
MAX_PAUSES = 400
STALL_FACTOR = 2.0  # a step that takes so many times the median of its phase is marked

T = TypeVar("T")


def over_time(record: Record) -> dict[str, Any]:
    """Everything that the page's canvases need."""
    return {
        "end": _us(max([record.seconds, *(step.end_s for step in record.steps[-1:])])),
        "stages": list(STAGES),
        "phases": phase_spans(record.steps),
        "steps": _steps(record),
        "pauses": [
            {"kind": pause.kind, "begin": _us(pause.begin_s), "end": _us(pause.end_s), "loader": pause.loader}
            for pause in _longest_pauses(record.pauses)
        ],
        "lanes": _lanes(record),
        "waits": _waits(record.batches),
        "moments": _moments(record.moments),
        "num_cores": record.machine.num_cores,
        "events": [
            {"time": _us(event.time_s), "kind": event.kind, "text": event.text}
            for event in record.events[:100]
        ],
    }


def stalled(steps: Sequence[Step]) -> set[int]:
    """Indices of the steps that took far longer than is usual in their phase; those of the warm-up may."""
    usual = {
        phase: median(step.seconds for step in steps if step.phase == phase)
        for phase in {step.phase for step in steps}
    }
    return {
        index
        for index, step in enumerate(steps)
        if step.phase != "warmup" and step.seconds > STALL_FACTOR * usual[step.phase]
    }


def phase_spans(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Where each phase begins and ends."""
    spans = []
    for phase, run in groupby(steps, key=lambda step: step.phase):
        members = list(run)
        spans.append({"phase": phase, "begin": _us(members[0].begin_s), "end": _us(members[-1].end_s)})
    return spans


def group_steps(steps: Sequence[Step], pauses: Sequence[Pause], *, limit: int) -> list[range]:
    """Neighbouring steps to be drawn as one; never across a phase's end or a pause (where pauses are few)."""
    size = max(1, ceil(len(steps) / limit))
    pause_ends = sorted(pause.end_s for pause in pauses) if size > 1 and len(pauses) <= MAX_PAUSES else []
    groups: list[range] = []
    begin, passed = 0, 0
    for index, step in enumerate(steps):
        before = passed
        while passed < len(pause_ends) and pause_ends[passed] <= step.begin_s + 1e-9:
            passed += 1
        full = index - begin >= size or step.phase != steps[begin].phase or passed > before
        if full and index > begin:
            groups.append(range(begin, index))
            begin = index
    return [*groups, range(begin, len(steps))] if steps else []


def _steps(record: Record) -> dict[str, Any]:
    steps = record.steps
    groups = group_steps(steps, record.pauses, limit=MAX_STEP_GROUPS)
    members = [steps[group.start : group.stop] for group in groups]
    marked = stalled(steps)
    return {
        "first": [group.start + 1 for group in groups],
        "count": [len(group) for group in groups],
        "phase": [PHASES.index(run[0].phase) for run in members],
        "begin": [_us(run[0].begin_s) for run in members],
        "end": [_us(run[-1].end_s) for run in members],
        "mean": [_us(fmean(step.seconds for step in run)) for run in members],
        "shortest": [_us(min(step.seconds for step in run)) for run in members],
        "longest": [_us(max(step.seconds for step in run)) for run in members],
        "batches": [max(step.num_batches for step in run) for run in members],
        "stages": [
            [_us(fmean(step.stages.get(stage, 0.0) for step in run)) for run in members] for stage in STAGES
        ],
        "stalls": [index for index, group in enumerate(groups) if any(step in marked for step in group)],
    }


def _longest_pauses(pauses: Sequence[Pause]) -> list[Pause]:
    kept = sorted(pauses, key=lambda pause: pause.begin_s - pause.end_s)[:MAX_PAUSES]
    return sorted(kept, key=lambda pause: pause.begin_s)


def _lanes(record: Record) -> list[dict[str, Any]]:
    """What each worker did: a lane for each, the training loader's first."""
    roles = {loader.name: loader.role for loader in record.loaders}
    several = len({batch.loader for batch in record.batches}) > 1
    by_lane: dict[tuple[bool, str, int], list[Batch]] = {}
    for batch in record.batches:
        lane = -1 if batch.worker is None else batch.worker
        by_lane.setdefault((roles.get(batch.loader) != "train", batch.loader, lane), []).append(batch)
    size = max(1, ceil(len(record.batches) / MAX_BATCH_GROUPS))
    lanes = []
    for (_, loader, worker), batches in sorted(by_lane.items())[:MAX_LANES]:
        label = "in loop" if worker < 0 else f"worker {worker}"
        columns = _batches(sorted(batches, key=lambda batch: batch.begin_s), size=size)
        name = f"{loader} · {label}" if several else label
        lanes.append({"name": name, "label": label, "loader": loader, **columns})
    return lanes


def _batches(batches: Sequence[Batch], *, size: int) -> dict[str, Any]:
    groups = list(_chunks(batches, size))

    def total(name: str) -> list[int]:
        return [_us(sum(getattr(batch, name) for batch in group)) for group in groups]

    return {
        "number": [group[0].number for group in groups],
        "epoch": [group[0].epoch for group in groups],
        "count": [len(group) for group in groups],
        "begin": [_us(group[0].begin_s) for group in groups],
        "end": [_us(max(batch.end_s for batch in group)) for group in groups],
        "busy": [_us(sum(batch.end_s - batch.begin_s for batch in group)) for group in groups],
        "longest": [_us(max(batch.end_s - batch.begin_s for batch in group)) for group in groups],
        "fetch": total("fetch_s"),
        "cpu": total("fetch_cpu_s"),
        "collate": total("collate_s"),
        "transforms": [
            _us(sum(min(sum(batch.transforms.values()), batch.fetch_s) for batch in group))
            for group in groups
        ],
    }


def _waits(batches: Iterable[Batch]) -> dict[str, Any]:
    """When the loop stood in next(), and whether a later batch lay there already. Keeps the longest."""
    waits = [
        (_us(batch.asked_s), _us(batch.taken_s), 2 if batch.was_blocked else 0 if batch.was_ready else 1)
        for batch in batches
        if batch.asked_s is not None and batch.taken_s is not None
    ]
    kept = sorted(sorted(waits, key=lambda wait: wait[0] - wait[1])[:MAX_WAITS])
    return {
        "begin": [begin for begin, _, _ in kept],
        "end": [end for _, end, _ in kept],
        "why": [why for _, _, why in kept],
        "all": len(kept) == len(waits),
    }


def _moments(moments: Sequence[Moment]) -> dict[str, Any]:
    groups = list(_chunks(moments, max(1, ceil(len(moments) / MAX_MOMENTS))))
    num_cores = min((len(moment.core_use) for moment in moments), default=0)
    rows = list(_chunks(range(num_cores), max(1, ceil(num_cores / MAX_CORE_ROWS))))
    uses = [
        [moment.accelerator_use for moment in group if moment.accelerator_use is not None] for group in groups
    ]
    return {
        "time": [_us(group[0].time_s) for group in groups],
        "low": [min(moment.memory_bytes for moment in group) for group in groups],
        "high": [max(moment.memory_bytes for moment in group) for group in groups],
        "workers": [max(moment.worker_memory_bytes for moment in group) for group in groups],
        "cpu_low": [round(min(moment.process_cpu for moment in group), 2) for group in groups],
        "cpu_high": [round(max(moment.process_cpu for moment in group), 2) for group in groups],
        "cores": [
            [
                round(100 * fmean(moment.core_use[core] for moment in group for core in row))
                for group in groups
            ]
            for row in rows
        ],
        "core_names": [f"{row[0]}" if len(row) == 1 else f"{row[0]}{TO}{row[-1]}" for row in rows],
        "accelerator": [round(100 * max(use)) if use else None for use in uses] if any(uses) else [],
    }


def _chunks(items: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
