"""Fit the model to a run: given the present settings it must show what was observed.

The queue is fed with what was measured: each batch's own time on the processor and in waiting, the
loop's time alone, the cores. What cannot be measured directly is fitted:

    waiting     A worker's wall time beyond its processor time is waiting for storage or for a core.
                Fitted: the part of it that is storage, so that batches take as long as they did.
    drag        How much the loop suffers from workers that want the same cores: so that its own
                stages take as long beside them as they did.
    scale       What is left (the queue's own costs, a machine that others use): on the cost of a
                batch, so that the loop waits as long as it did.
    correction  The last few per cent, on everything.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stoker.doctor._record import Batch, Loader, Machine, Record, Trial
from stoker.doctor.analysis._model import Job, Model, Setting
from stoker.doctor.analysis._queue import Loop
from stoker.doctor.analysis._stages import Timing

_COPY_BYTES_PER_S = 2e9  # pickling and copying through shared memory, where nothing was measured
_QUEUE_S = 1.5e-4  # and one trip through the queue
_MOST_DRAG = 6.0
_FORK_S, _SPAWN_S = 0.035, 1.5  # to start a worker and to end it, where none was seen
_LEAST_OPENINGS = 4  # first batches of workers, to tell that these take longer,
_OPENS_LONG = 2.0  # so many times as long as the others


def fit(record: Record, timing: Timing) -> Model | None:
    """The model of this run; None where nothing is known of how its batches are made."""
    loader, trial = timing.loader, timing.trial
    if loader is None:
        return None
    present = present_setting(loader)
    jobs, opening_s = _jobs(record, loader, trial)
    if not jobs:
        return None
    making_s = sum(wait + cpu for wait, cpu in jobs) / len(jobs)
    per_step = timing.batches_per_step
    wait = timing.stages.get("wait", 0.0) / per_step
    busy = max(timing.step_s.value / per_step - wait, 1e-9)
    workers = present.num_workers
    transfer = _transfer(trial, jobs_bytes=_batch_bytes(record, loader, trial))
    receive = _receive(record, loader, transfer) if workers else transfer / 2
    alone = timing.host_s.value / per_step if timing.host_s else busy
    alone = max(min(alone, busy), 1e-9)
    main_cpu = timing.cpu_s / per_step - (receive if workers else _mean_cpu(jobs))
    most_threads = max(1, record.machine.num_torch_threads, record.machine.num_cores)
    demand = min(max(main_cpu / alone, 0.02), float(most_threads))
    model = Model(
        num_cores=max(1, record.machine.num_cores),
        jobs=jobs,
        loop=Loop(alone, demand, _drag(demand, 1 if workers else record.machine.num_torch_threads), receive),
        present=present,
        send_s=transfer / 2,
        start_s=0.0,
        opening_s=opening_s,
        inflation=_inflation(record.machine, loader, trial, jobs, demand),
        batches_per_step=per_step,
        batches_per_epoch=timing.steps_per_epoch * per_step if timing.steps_per_epoch else None,
        torch_threads=max(1, record.machine.num_torch_threads),
        restarts=loader.is_made_anew,
    )
    if workers:
        model = _fitted_contention(
            model,
            making_s=making_s,
            busy_s=busy + receive,
            least_waiting=_least_waiting(loader, trial, jobs),
            replayed=timing.host_s is not None,
        )
    return _fitted_step(_with_start(model, loader, timing), timing, wait_s=wait)


def _drag(demand: float, num_threads: int) -> float:
    """How much the loop suffers from workers, before any was seen beside it.

    Threads that share an operator wait for the last of them, so one core that is taken away stops them all.
    Measured on two cores with models that keep 1.6 to 1.9 of them busy: workers bring nothing, though a
    fair share of the cores would promise 1.1 to 1.6 times the speed.
    """
    if demand <= 1.0 or num_threads <= 1:
        return 1.0 if demand > 0.5 else 0.5
    together = (demand - 1.0) / (num_threads - 1)  # share of its time in which all threads compute
    return min(1.0 + 8.0 * together, _MOST_DRAG)


def present_setting(loader: Loader) -> Setting:
    """The settings that the run had."""
    return Setting(
        num_workers=max(0, loader.num_workers),
        prefetch_factor=max(1, loader.prefetch_factor or 2),
        in_order=loader.in_order,
        persistent_workers=loader.persistent_workers,
    )


def normal_batches(record: Record, loader: Loader) -> list[Batch]:
    """This loader's batches of the normal phase; of the warm-up where there are no others."""
    mine = [batch for batch in record.batches if batch.loader == loader.name]
    return [batch for batch in mine if batch.phase == "normal"] or mine


def _jobs(record: Record, loader: Loader, trial: Trial | None) -> tuple[tuple[Job, ...], float]:
    """(waiting, computing) of each batch, and what a worker's first one takes beyond that."""
    batches = normal_batches(record, loader)
    if batches:
        return _without_opening(batches, loader)
    if trial is None or not loader.batch_size:
        return (), 0.0
    share = min(1.0, trial.cpu_s_per_sample / max(trial.seconds_per_sample, 1e-12))
    walls = _spread(trial, loader.batch_size)
    return tuple((wall * (1 - share), wall * share) for wall in walls), 0.0


def _without_opening(batches: list[Batch], loader: Loader) -> tuple[tuple[Job, ...], float]:
    """The batches' jobs without what only the first one of a new worker takes, and the seconds of that.

    What a worker opens then stays open in one that lives on; so it does in the main process.
    """
    walls = np.array([batch.fetch_s + batch.collate_s for batch in batches])
    cpus = np.array([batch.fetch_cpu_s + batch.collate_cpu_s for batch in batches])
    jobs = np.stack([np.maximum(walls - cpus, 0.0), cpus], axis=1)
    are_new = loader.is_made_anew or not loader.persistent_workers
    is_first = np.array([are_new and batch.number < loader.num_workers for batch in batches])
    firsts, others, opening_s = jobs[is_first], jobs[~is_first], 0.0
    if min(len(firsts), len(others)) >= _LEAST_OPENINGS:
        shortest, longest = np.quantile(firsts.sum(1), 0.25), np.quantile(others.sum(1), 0.75)
        if shortest > _OPENS_LONG * longest:
            opening = np.maximum(np.median(firsts, 0) - np.median(others, 0), 0.0)
            jobs[is_first] = np.maximum(firsts - opening, 0.0)
            opening_s = float(opening.sum())
    return tuple((float(wait), float(cpu)) for wait, cpu in jobs), opening_s


def _spread(trial: Trial, batch_size: int) -> list[float]:
    """Batch times as the trial's samples suggest: their mean and, over a batch, their spread."""
    mean = trial.seconds_per_sample * batch_size + trial.collate_s_per_batch
    sigma = min(trial.spread, 5.0) / math.sqrt(batch_size)
    factors = np.random.default_rng(0).lognormal(-0.5 * sigma**2, sigma, 64)
    return [float(mean * factor) for factor in factors / factors.mean()]


def _batch_bytes(record: Record, loader: Loader, trial: Trial | None) -> float:
    sizes = [batch.num_bytes for batch in normal_batches(record, loader) if batch.num_bytes is not None]
    if sizes:
        return float(np.median(sizes))
    return float(trial.bytes_per_sample * (loader.batch_size or 1)) if trial else 0.0


def _transfer(trial: Trial | None, *, jobs_bytes: float) -> float:
    if trial is not None and trial.transfer_s_per_batch is not None:
        return max(0.0, trial.transfer_s_per_batch)
    return _QUEUE_S + jobs_bytes / _COPY_BYTES_PER_S


def _receive(record: Record, loader: Loader, transfer: float) -> float:
    """Seconds in which the loop takes a batch that lies ready."""
    waits = [
        batch.taken_s - batch.asked_s
        for batch in normal_batches(record, loader)
        if batch.was_ready and batch.taken_s is not None and batch.asked_s is not None
    ]
    return max(0.0, float(np.median(waits))) if len(waits) >= 5 else transfer / 2


def _mean_cpu(jobs: tuple[Job, ...]) -> float:
    return sum(cpu for _, cpu in jobs) / len(jobs)


def _inflation(
    machine: Machine,
    loader: Loader,
    trial: Trial | None,
    jobs: tuple[Job, ...],
    demand: float,
) -> float:
    """How much more processor time a batch takes among too many workers than alone."""
    wanted = (loader.num_workers + min(demand, 1.0)) / max(machine.num_cores, 1)
    if trial is None or not loader.batch_size or wanted <= 1.2:
        return 0.0
    alone = trial.cpu_s_per_sample * loader.batch_size + trial.collate_s_per_batch
    if alone <= 0:
        return 0.0
    more = _mean_cpu(jobs) / alone - 1.0
    return min(max(0.0, (more - 0.05) / min(wanted - 1.0, 4.0)), 0.5)


def _least_waiting(loader: Loader, trial: Trial | None, jobs: tuple[Job, ...]) -> float:
    """Share of the workers' waiting that is storage for certain: a sample alone waits for nothing else.

    It may be more: what is tried again after the run may come from the page cache.
    """
    waited = sum(wait for wait, _ in jobs) / len(jobs)
    if trial is None or not loader.batch_size or waited <= 0:
        return 0.0
    alone = max(0.0, trial.seconds_per_sample - trial.cpu_s_per_sample) * loader.batch_size
    return min(1.0, alone / waited)


def _fitted_contention(
    model: Model, *, making_s: float, busy_s: float, least_waiting: float, replayed: bool
) -> Model:
    measured, present = model.jobs, model.present

    def waiting(of: Model, share: float) -> Model:
        return replace(of, jobs=tuple((wait * share, cpu) for wait, cpu in measured))

    def dragged(of: Model, drag: float) -> Model:
        return replace(of, loop=replace(of.loop, drag=drag))

    def shortened(of: Model, factor: float) -> Model:
        return replace(of, loop=replace(of.loop, seconds=of.loop.seconds * factor))

    def fitted(
        change: Callable[[Model, float], Model],
        of: Model,
        figure: str,
        target: float,
        low: float,
        high: float,
    ) -> Model:
        if abs(getattr(of.flow(present)[0], figure) / target - 1) < 0.01:
            return of  # as it is; where the figure hardly moves, a search would run to the end of its range
        return change(
            of, _bisect(lambda x: getattr(change(of, x).flow(present)[0], figure), target, low, high)
        )

    making_s, busy_s = max(making_s, 1e-9), max(busy_s, 1e-9)
    model = fitted(waiting, model, "making_s", making_s, least_waiting, 1.0)
    if not replayed:  # never seen alone: the loop's stages beside the workers say how long it takes
        return fitted(shortened, model, "busy_s", busy_s, 0.2, 1.0)
    model = fitted(dragged, model, "busy_s", busy_s, 0.0, _MOST_DRAG)
    model = fitted(waiting, model, "making_s", making_s, least_waiting, 1.0)
    return fitted(dragged, model, "busy_s", busy_s, 0.0, _MOST_DRAG)


def _with_start(model: Model, loader: Loader, timing: Timing) -> Model:
    """What starting the workers takes: the epoch's start without the making of its first batch."""
    if not model.present.num_workers:
        return replace(model, start_s=_FORK_S if loader.start_method == "fork" else _SPAWN_S)
    stays = model.present.persistent_workers and not model.restarts
    if stays or not timing.pause_s or not timing.steps_per_epoch:
        return model
    first = model.flow(model.present)[0].first_s + model.opening_s
    return replace(model, start_s=max(0.0, timing.pause_s * timing.steps_per_epoch - first))


def _fitted_step(model: Model, timing: Timing, *, wait_s: float) -> Model:
    if not model.present.num_workers:
        making = sum(wait + cpu for wait, cpu in model.jobs) / len(model.jobs)
        model = replace(model, job_scale=min(max(wait_s / max(making, 1e-12), 0.5), 2.0))
    elif wait_s * model.batches_per_step > 0.05 * timing.step_s.value:
        model = replace(model, job_scale=_job_scale(model, timing.whole_s))
    shown = model.step_s(model.present)
    return replace(model, correction=min(max(timing.whole_s / max(shown, 1e-12), 0.5), 2.0))


def _job_scale(model: Model, target_s: float) -> float:
    """1 where it is close already, or where the loop sets the pace and a batch's cost would not show."""

    def shown(scale: float) -> float:
        return replace(model, job_scale=scale).step_s(model.present)

    low, high = 0.7, 1.4
    if abs(shown(1.0) / target_s - 1) < 0.02 or shown(high) < 1.2 * shown(low):
        return 1.0
    return _bisect(shown, target_s, low, high)


def _bisect(function: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a growing function reaches the target, or the nearer end."""
    if function(high) <= target:
        return high
    if function(low) >= target:
        return low
    for _ in range(9):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < target else (low, middle)
    return (low + high) / 2
