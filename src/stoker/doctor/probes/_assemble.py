"""From what the probes of a session wrote to a record."""

import dataclasses
from bisect import bisect_right
from typing import cast

from stoker.doctor._record import Batch, Event, Operators, Phase, Record, Role, Step
from stoker.doctor.making._workers import MadeBatch
from stoker.doctor.probes._cuda import DeviceClock
from stoker.doctor.probes._overhead import overhead_s
from stoker.doctor.probes._session import Session
from stoker.doctor.probes._steps import LoopLoader, Span, find_steps, training_epochs
from stoker.doctor.sampling._cores import machine

_SAID_AS: dict[str, Phase] = {"profile": "warmup", "settle": "host"}  # phases that a record does not know
_SUBJECTS: dict[Phase, str] = {
    "normal": "measured steps",
    "host": "host replay",
    "device": "device replay",
}


def fill(record: Record, session: Session) -> None:
    """Write what a session has seen into a record. The session has been left."""
    spans = [Span(*span) for span in session.tape.spans]
    phases = session.phases
    if isinstance(session.tape.now, DeviceClock):
        spans, phases = _in_device_time(spans, phases, session.tape.now.times())
    samples = {(made.loader_number, made.epoch, made.number): made.num_samples for made in session.made}
    spans = [_with_samples(span, samples) for span in spans]
    trained = {loader for loader, _ in training_epochs(spans)}
    roles: dict[int, Role] = {span.loader: "validation" for span in spans if span.kind == "next"}
    roles |= dict.fromkeys(trained, "train")
    loaders = session.loop.loaders.records(roles)
    record.loaders = list(loaders.values())
    names = {number: LoopLoader(loader.name, loader.num_workers) for number, loader in loaders.items()}
    record.steps, record.pauses = find_steps(
        spans,
        phases=phases,
        loaders=names,
        origin=session.origin,
        forward_since=session.forward_since,
    )
    if session.loop.lacked_batches:
        record.steps = [step for step in record.steps if step.phase not in {"host", "device"}]
        session.not_observed["host replay"] = "a loader was made anew during it, so it had no batch to give"
    record.batches = _batches(session, {number: loader.name for number, loader in names.items()})
    record.machine = machine(_device_name(session))
    record.lines = session.lines
    record.moments = session.moments
    record.events += session.events
    record.trials = [
        dataclasses.replace(trial, loader=names[int(trial.loader)].name) for trial in session.trials
    ]
    record.operators = _operators(session, record)
    record.user_root = session.user_root
    _note_unseen(record, session, spans)
    if "OptimizedModule" in session.timed_classes:
        record.events.append(Event(0.0, "compile", "The model is compiled: the first steps do not count."))
    sampler_s = sum(line.num_samples for line in session.lines if line.process == "loop") * _SAMPLE_S
    spent = overhead_s(session.tape, clock=session.tape.clock, sampler_s=sampler_s)
    record.overhead_s_per_step = spent / max(1, session.num_steps)
    record.seconds = (session.tape.clock() - session.origin) / 1e9


_SAMPLE_S = 25e-6  # what one look of the stack sampler costs the thread it looks at, measured


def _in_device_time(
    spans: list[Span], phases: list[tuple[int, str]], times: dict[int, int]
) -> tuple[list[Span], list[tuple[int, str]]]:
    """The same in the accelerator's time, as far as it was marked."""
    moved = [
        span._replace(begin=times.get(span.begin, span.begin), end=times.get(span.end, span.end))
        for span in spans
    ]
    return moved, [(times.get(begin, begin), phase) for begin, phase in phases]


def _with_samples(span: Span, samples: dict[tuple[int, int, int], int | None]) -> Span:
    """Who made a batch knows best how many samples it has."""
    if span.kind != "next":
        return span
    known = samples.get((span.loader, span.epoch, span.number))
    return span._replace(num_samples=known) if known is not None else span


def _batches(session: Session, names: dict[int, str]) -> list[Batch]:
    taken = {
        (span.loader, span.epoch, span.number): span
        for span in (Span(*span) for span in session.tape.spans if span[0] == "next")
    }
    begins = [begin for begin, _ in session.phases]
    found = []
    for made in session.made:
        span = taken.get((made.loader_number, made.epoch, made.number))
        moment = span.begin if span else made.end_ns
        phase = session.phases[max(0, bisect_right(begins, moment) - 1)][1]
        found.append(
            _batch(
                made,
                span,
                names[made.loader_number],
                _SAID_AS.get(phase, cast("Phase", phase)),
                session.origin,
            )
        )
    return found


def _batch(made: MadeBatch, span: Span | None, name: str, phase: Phase, origin: int) -> Batch:
    def since(moment: int) -> float:
        return (moment - origin) / 1e9

    batch = Batch(
        loader=name,
        number=made.number,
        epoch=made.epoch,
        worker=made.worker,
        phase=phase,
        begin_s=since(made.begin_ns),
        end_s=since(made.end_ns),
        fetch_s=made.fetch_ns / 1e9,
        fetch_cpu_s=made.fetch_cpu_ns / 1e9,
        collate_s=made.collate_ns / 1e9,
        collate_cpu_s=made.collate_cpu_ns / 1e9,
        queued_s=None if made.queued_ns is None else made.queued_ns / 1e9,
        transforms=made.transforms,
        num_samples=made.num_samples,
        num_bytes=made.num_bytes,
    )
    if span is None:
        return batch
    was_ready = span.ready and made.worker is not None
    return dataclasses.replace(
        batch,
        asked_s=since(span.begin),
        # when it came out of the pipe is not known; one that lay ready came about when it was done
        ready_s=since(min(made.end_ns, span.begin) if was_ready else span.end),
        taken_s=since(span.end),
        was_ready=was_ready,
        was_blocked=span.blocked,
    )


def _operators(session: Session, record: Record) -> Operators | None:
    if session.counter is None or not session.num_profiled:
        return None
    steps = record.in_phase("normal")
    seconds = sum(_pass_s(step) for step in steps) / max(1, len(steps)) * session.num_profiled
    try:
        return cast("Operators", session.counter.result(session.num_profiled, seconds))
    except Exception as error:  # noqa: BLE001 - an extra: the record is of use without it
        session.not_observed["operators"] = f"{type(error).__name__}: {error}"
        return None


def _pass_s(step: Step) -> float:
    """Time in forward and backward passes; where these are not seen, all but the wait."""
    stages = step.stages
    if "forward" in stages and "backward" in stages:
        return stages["forward"] + stages["backward"]
    return step.seconds - stages.get("wait", 0.0)


def _device_name(session: Session) -> str:
    device = session.device
    if device is None or device.type == "cpu":
        return "cpu"
    if device.type == "cuda":
        import torch

        return f"{device} {torch.cuda.get_device_name(device)}"
    return str(device)


def _note_unseen(record: Record, session: Session, spans: list[Span]) -> None:
    """Say of every stage and phase that is missing why it is."""
    notes = session.not_observed
    kinds = {span.kind for span in spans}
    if not record.loaders:
        notes["loaders"] = "no DataLoader was made"
    if "optimizer" not in kinds:
        notes["optimizer"] = "no optimizer of torch.optim made a step"
    if "backward" not in kinds:
        notes["backward"] = "no backward pass was made"
    if not record.steps:
        notes["steps"] = (
            "the script trains nothing" if not session.num_steps else "too few steps were made to measure any"
        )
    elif not any(loader.role == "train" for loader in record.loaders):
        notes["wait"] = (
            "batches are taken by another thread than the one that trains"
            if session.loop.in_other_thread
            else "the training takes its batches from no DataLoader"
        )
    if record.steps and session.forward_since is None:
        notes.setdefault("forward", "too few steps were made to find out what a step calls")
    if record.steps and session.holds_loaders and not session.is_complete:
        for phase, subject in _SUBJECTS.items():
            if not record.in_phase(phase):
                notes.setdefault(subject, "the script ended before it")
        if session.counter is None:
            notes.setdefault("operators", "the script ended before they were counted")
    record.not_observed |= notes
