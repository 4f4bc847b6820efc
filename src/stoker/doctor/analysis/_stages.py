"""Where the time of a step goes, and how fast it would be with data that is always there."""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from stoker.doctor._diagnosis import Interval
from stoker.doctor._record import STAGES, Loader, Phase, Record, Stage, Step, Trial
from stoker.doctor.analysis._noise import (
    Floats,
    block_length,
    clipped_mean,
    drawn_indices,
    interval,
    ratio_interval,
    typical,
)

_REPLAYED = 0.8  # of the loop's own work is left when its batches lie ready: caches are warmer, no more


@dataclass(frozen=True)
class Timing:
    """A typical step of the normal phase. Durations in seconds a step."""

    step_s: Interval  # from one optimizer step to the next
    pause_s: float  # an epoch's start, spread over the epoch's steps
    stages: dict[str, float]  # sum up to step_s
    step_draws: Floats = field(repr=False)  # resamplings of step_s
    host_s: Interval | None  # a step with batches that lie in memory
    device_s: Interval | None  # a step with batches that lie on the device
    ceiling: Interval | None
    is_ceiling_limited: bool  # the replay was faster than the same work can be: the machine had changed
    device_ceiling: Interval | None
    loader: Loader | None  # which feeds the steps
    trial: Trial | None
    num_steps: int
    batches_per_step: float
    steps_per_epoch: float | None
    samples_per_step: float | None
    cpu_s: float  # of the main process

    @property
    def whole_s(self) -> float:
        """A step with its part of the epoch's start: what training time is made of."""
        return self.step_s.value + self.pause_s

    @property
    def noise(self) -> float:
        """Half the width of the step time's interval, relative."""
        return (self.step_s.high - self.step_s.low) / 2 / self.step_s.value


def time_steps(record: Record) -> Timing | None:
    """Typical times of the normal phase; None where no such step was seen. Warm-up never counts."""
    steps = _usable(record, "normal")
    if not steps:
        return None
    loader = fed_by(record, steps)
    period = _period(loader, steps)
    steps = steps[len(steps) % period :] if len(steps) >= 2 * period else steps
    waits = np.array([_stage(step, "wait") for step in steps])
    busy = np.maximum(np.array([step.seconds for step in steps]) - waits, 0.0)
    value, draws = _step_time(busy, waits, block=block_length(len(steps), period=period))
    copies = np.array([_stage(step, "copy") for step in steps])
    crowding = _crowding(record, loader)
    host, was_host = _replayed(record, "host", own_s=float(typical(busy)) / crowding)
    device, was_device = _replayed(
        record, "device", own_s=float(typical(np.maximum(busy - copies, 0.0))) / crowding
    )
    steps_per_epoch = _steps_per_epoch(loader, steps)
    pause = _pause(record, loader, steps_per_epoch, num_steps=len(steps))
    whole = (value + pause, draws + pause)
    counts = [step.num_samples for step in steps if step.num_samples is not None]
    return Timing(
        step_s=interval(value, draws),
        pause_s=pause,
        stages=_stages(steps, busy_s=float(typical(busy)), wait_s=float(clipped_mean(waits))),
        step_draws=draws,
        host_s=interval(*host) if host else None,
        device_s=interval(*device) if device else None,
        ceiling=_ceiling(whole, host),
        is_ceiling_limited=was_host or was_device,
        device_ceiling=_ceiling(whole, device),
        loader=loader,
        trial=trial_of(record, loader),
        num_steps=len(steps),
        batches_per_step=max(1.0, float(np.mean([step.num_batches for step in steps]))),
        steps_per_epoch=steps_per_epoch,
        samples_per_step=float(np.median(counts)) if counts else None,
        cpu_s=float(typical(np.array([step.cpu_s for step in steps]))),
    )


def step_times(record: Record) -> dict[str, tuple[float, ...]]:
    """Seconds of every normal step by stage ("step" is the whole of it), in order: for comparing runs."""
    steps = _usable(record, "normal")
    if not steps:
        return {}
    seen = [stage for stage in STAGES if any(stage in step.stages for step in steps)]
    times = {"step": tuple(step.seconds for step in steps)}
    return times | {stage: tuple(_stage(step, stage) for step in steps) for stage in seen}


def fed_by(record: Record, steps: list[Step]) -> Loader | None:
    """The loader that gave the most of these steps their data, or the one made for training."""
    by_name = {loader.name: loader for loader in record.loaders}
    for name, _ in Counter(step.loader for step in steps).most_common():
        if name in by_name:
            return by_name[name]
    return next((loader for loader in record.loaders if loader.role == "train"), None)


def trial_of(record: Record, loader: Loader | None) -> Trial | None:
    """What a sample of this loader costs alone."""
    found = [trial for trial in record.trials if loader is not None and trial.loader == loader.name]
    return found[0] if found and found[0].num_samples > 0 else None


def _usable(record: Record, phase: Phase) -> list[Step]:
    return [step for step in record.in_phase(phase) if step.seconds > 0]


def _stage(step: Step, stage: Stage) -> float:
    return float(step.stages.get(stage, 0.0))


def _period(loader: Loader | None, steps: list[Step]) -> int:
    """Steps in which every worker has its turn.

    Workers that keep in step deliver all at once: one long wait and then none until the next round.
    Only whole rounds give the right mean.
    """
    if loader is None or loader.num_workers <= 1:
        return 1
    per_step = max(1, round(float(np.mean([step.num_batches for step in steps]))))
    return loader.num_workers // math.gcd(loader.num_workers, per_step)


def _step_time(busy: Floats, waits: Floats, *, block: int) -> tuple[float, Floats]:
    indices = drawn_indices(len(busy), block=block)
    return (
        max(float(typical(busy) + clipped_mean(waits)), 1e-9),
        np.maximum(typical(busy[indices]) + clipped_mean(waits[indices]), 1e-9),
    )


def _replayed(record: Record, phase: Phase, *, own_s: float) -> tuple[tuple[float, Floats] | None, bool]:
    """A step's time with batches that are given again, and whether it was too short to be believed.

    It is then what the loop's own work took before, `own_s`: nothing but the waiting is known to be lost.
    """
    steps = _usable(record, phase)
    if len(steps) < 3:
        return None, False
    seconds = np.array([step.seconds for step in steps])
    indices = drawn_indices(len(seconds), block=block_length(len(seconds), period=1), seed=1)
    value, draws = float(np.median(seconds)), np.asarray(np.median(seconds[indices], axis=-1))
    if value < _REPLAYED * own_s:
        return (own_s, np.maximum(draws, own_s)), True
    return (value, np.maximum(draws, _REPLAYED * own_s)), False


def _ceiling(whole: tuple[float, Floats], replayed: tuple[float, Floats] | None) -> Interval | None:
    """How many times as fast it would be; data that is there makes no step slower, whatever was measured."""
    if replayed is None:
        return None
    found = ratio_interval(whole, replayed)
    return Interval(*(max(1.0, each) for each in (found.value, found.low, found.high)))


def _crowding(record: Record, loader: Loader | None) -> float:
    """How much slower the loop's own work may be beside the workers than alone: as they share the cores."""
    if loader is None or not loader.num_workers:
        return 1.0
    wanted = max(1, record.machine.num_torch_threads) + loader.num_workers
    return max(1.0, wanted / max(1, record.machine.num_cores))


def _stages(steps: list[Step], *, busy_s: float, wait_s: float) -> dict[str, float]:
    """Typical seconds by stage; all but the wait are scaled to sum up to `busy_s`."""
    seen = [stage for stage in STAGES if any(stage in step.stages for step in steps)]
    found = {
        stage: float(typical(np.array([_stage(step, stage) for step in steps])))
        for stage in seen
        if stage != "wait"
    }
    total = sum(found.values())
    if total > 0:
        found = {stage: seconds * busy_s / total for stage, seconds in found.items()}
    elif busy_s > 0:
        found["other"] = busy_s
    return ({"wait": wait_s} if "wait" in seen else {}) | found


def _steps_per_epoch(loader: Loader | None, steps: list[Step]) -> float | None:
    if loader is None or not loader.num_batches:
        return None
    per_step = max(1.0, float(np.mean([step.num_batches for step in steps])))
    return max(1.0, loader.num_batches / per_step)


def _pause(record: Record, loader: Loader | None, steps_per_epoch: float | None, *, num_steps: int) -> float:
    """Seconds a step that go into epochs' starts, and into ending the workers of the epoch before."""
    starts = [
        pause.end_s - pause.begin_s
        for pause in record.pauses
        if pause.kind == "epoch start" and (loader is None or pause.loader in {None, loader.name})
    ]
    ends = [
        pause.end_s - pause.begin_s
        for pause in record.pauses
        if pause.kind == "other" and loader is not None and pause.loader == loader.name
    ]
    if len(starts) > 1:
        starts = starts[1:]  # the first also pays for what is done once: imports, page cache, compiling
    if not starts:
        return 0.0
    if steps_per_epoch is None:
        return (sum(starts) + sum(ends)) / max(num_steps, 1) if len(starts) > 1 else 0.0
    return float(np.median(starts) + (np.median(ends) if ends else 0.0)) / steps_per_epoch
