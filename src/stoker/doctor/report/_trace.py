"""trace.json: the run as Perfetto (ui.perfetto.dev) and chrome://tracing show it.

    training loop    phases, steps, stages, waits in next(), batches made in the loop, pauses
    <loader>         a thread for each worker: its batches, in each fetch and collate
    counters         memory, cores in use, each core

A stage's time is a sum over its step, so the stages of a step lie one after another in the order in
which they usually come; where in the step each really began is not recorded. An arrow leads from a
batch to the moment at which the loop took it.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from stoker.doctor._record import STAGES, Batch, Record, Step
from stoker.doctor.report._words import PHASE_NAMES, STAGE_NAMES, place_name

TraceEvent = dict[str, Any]

LOOP = 1  # process number of the training loop; loaders follow
PHASES, STEPS, STAGE_ROW, WAITS, OWN_BATCHES, PAUSES = range(1, 7)
_LOOP_ROWS = {
    PHASES: "phases",
    STEPS: "steps",
    STAGE_ROW: "stages (sums, in their usual order)",
    WAITS: "next()",
    OWN_BATCHES: "batches made in the loop",
    PAUSES: "pauses",
}
_COLOURS = {  # of chrome://tracing; Perfetto chooses by name
    "wait": "terrible",
    "copy": "bad",
    "augment": "rail_animation",
    "forward": "thread_state_running",
    "backward": "thread_state_runnable",
    "optimizer": "good",
    "other": "grey",
}


def trace_events(record: Record) -> Iterator[TraceEvent]:
    """Events of the Trace Event Format; times are microseconds."""
    loaders = {name: LOOP + 1 + index for index, name in enumerate(_loader_names(record))}
    yield from _names(record, loaders)
    for phase, run in groupby(record.steps, key=lambda step: step.phase):
        members = list(run)
        yield _span(PHASE_NAMES[phase], members[0].begin_s, members[-1].end_s, row=PHASES)
    for number, step in enumerate(record.steps, 1):
        yield from _step(number, step)
    for pause in record.pauses:
        yield _span(pause.kind, pause.begin_s, pause.end_s, row=PAUSES, args={"loader": pause.loader})
    for number, batch in enumerate(record.batches, 1):
        yield from _batch(number, batch, loaders)
    for moment in record.moments:
        memory = {
            "workers": moment.worker_memory_bytes,
            "rest": moment.memory_bytes - moment.worker_memory_bytes,
        }
        yield _counter("memory (bytes)", moment.time_s, memory)
        yield _counter("cores in use", moment.time_s, {"process tree": moment.process_cpu})
        cores = {f"core {core}": round(use, 3) for core, use in enumerate(moment.core_use)}
        yield _counter("use of each core", moment.time_s, cores)
        if moment.accelerator_use is not None:
            yield _counter("accelerator, by its driver", moment.time_s, {"use": moment.accelerator_use})
    for event in record.events:
        said = {"text": event.text, **({"place": place_name(event.place, record)} if event.place else {})}
        yield {
            "ph": "i", "s": "g", "name": event.kind, "cat": "event", "ts": _us(event.time_s),
            "pid": LOOP, "tid": STEPS, "args": said,
        }  # fmt: skip


def trace_chunks(record: Record) -> Iterator[str]:
    """The file's text, piece by piece: a long run has too many events to hold them all as text."""
    about = {
        "command": " ".join(record.command),
        "device": record.machine.device,
        "torch": record.machine.torch,
    }
    yield f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n'
    yield from _joined(json.dumps(event, separators=(",", ":")) for event in trace_events(record))
    yield "\n]}\n"


def _joined(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f",\n{line}" if number else line


def _loader_names(record: Record) -> list[str]:
    named = [loader.name for loader in record.loaders]
    return list(dict.fromkeys([*named, *(batch.loader for batch in record.batches)]))


def _names(record: Record, loaders: dict[str, int]) -> Iterator[TraceEvent]:
    yield _name("process_name", "training loop", process=LOOP)
    for row, name in _LOOP_ROWS.items():
        yield _name("thread_name", name, process=LOOP, row=row)
    workers = {(batch.loader, batch.worker) for batch in record.batches if batch.worker is not None}
    for loader, process in loaders.items():
        yield _name("process_name", f"workers of {loader}", process=process)
    for loader, worker in sorted((loader, worker) for loader, worker in workers if worker is not None):
        yield _name("thread_name", f"worker {worker}", process=loaders[loader], row=worker + 1)


def _name(kind: str, name: str, *, process: int, row: int = 0) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": process, "tid": row, "args": {"name": name}}


def _step(number: int, step: Step) -> Iterator[TraceEvent]:
    stages = {stage: round(seconds * 1e3, 4) for stage, seconds in step.stages.items()}
    args = {
        "phase": step.phase,
        "batches": step.num_batches,
        "samples": step.num_samples,
        "stages_ms": stages,
    }
    yield _span(f"step {number}", step.begin_s, step.end_s, row=STEPS, args=args)
    begin_s = step.begin_s
    for stage in STAGES:
        seconds = step.stages.get(stage)
        if seconds:
            end_s = min(begin_s + seconds, step.end_s)
            yield {**_span(STAGE_NAMES[stage], begin_s, end_s, row=STAGE_ROW), "cname": _COLOURS[stage]}
            begin_s = end_s


def _batch(number: int, batch: Batch, loaders: dict[str, int]) -> Iterator[TraceEvent]:
    process, row = (LOOP, OWN_BATCHES) if batch.worker is None else (loaders[batch.loader], batch.worker + 1)
    args = {
        "loader": batch.loader,
        "epoch": batch.epoch,
        "samples": batch.num_samples,
        "bytes": batch.num_bytes,
        "fetch_cpu_ms": round(batch.fetch_cpu_s * 1e3, 4),
        "transforms_ms": {name: round(seconds * 1e3, 4) for name, seconds in batch.transforms.items()},
    }
    fetched_s = min(batch.begin_s + batch.fetch_s, batch.end_s)
    collated_s = min(fetched_s + batch.collate_s, batch.end_s)
    yield _span(f"batch {batch.number}", batch.begin_s, batch.end_s, process=process, row=row, args=args)
    yield _span("fetch", batch.begin_s, fetched_s, process=process, row=row)
    yield _span("collate", fetched_s, collated_s, process=process, row=row)
    if batch.asked_s is None or batch.taken_s is None:
        return
    why = "blocked by order" if batch.was_blocked else "ready" if batch.was_ready else "not ready"
    args = {"loader": batch.loader, "batch": batch.number, "why": why}
    yield _span(f"next(): {why}", batch.asked_s, batch.taken_s, row=WAITS, args=args)
    if batch.worker is not None and batch.end_s <= batch.taken_s:
        arrow = {"name": "batch", "cat": "batch", "id": number}
        yield {**arrow, "ph": "s", "ts": _us(batch.begin_s), "pid": process, "tid": row}
        yield {**arrow, "ph": "f", "bp": "e", "ts": _us(batch.taken_s), "pid": LOOP, "tid": WAITS}


def _span(
    name: str, begin_s: float, end_s: float, *, row: int, process: int = LOOP, args: TraceEvent | None = None
) -> TraceEvent:
    begin, end = _us(begin_s), _us(end_s)
    length = round(max(0.0, end - begin), 3)
    event = {"ph": "X", "name": name, "cat": "stoker", "ts": begin, "dur": length, "pid": process, "tid": row}
    return {**event, "args": args} if args else event


def _counter(name: str, time_s: float, values: dict[str, Any]) -> TraceEvent:
    return {"ph": "C", "name": name, "ts": _us(time_s), "pid": LOOP, "args": values}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
