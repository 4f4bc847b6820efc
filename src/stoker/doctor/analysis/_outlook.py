"""What the model promises for each setting that can be changed without touching the data."""

import math
from dataclasses import dataclass, replace

from stoker.doctor._diagnosis import WORTHWHILE
from stoker.doctor._record import Loader, Record, Trial
from stoker.doctor.analysis._model import Model, Setting
from stoker.doctor.analysis._stages import Timing

_CLOSE_ENOUGH = 1.025  # a cheaper setting that is slower by no more than this is preferred
_MOST_WORKERS = 64
_LEAST_BATCHES = 4  # of a stream's in an epoch, for each worker
_WORKER_BYTES = {"fork": 120 << 20, "spawn": 350 << 20, "forkserver": 350 << 20}  # where none was seen


@dataclass(frozen=True)
class Outlook:
    """Speed-ups against the present settings, one change at a time, and the best safe combination."""

    by_workers: dict[int, float]
    by_prefetch: dict[int, float]
    unordered: float  # in_order=False
    persistent: float  # persistent_workers=True, of one DataLoader for all epochs
    best: Setting
    best_speedup: float
    best_once: Setting  # if the DataLoader were made once; the same where it is
    best_divided: Setting  # if samples may come in another order: a stream divided among workers
    worker_bytes: int  # RAM of one worker, without its batches
    batch_bytes: int

    def ram_bytes(self, before: Setting, after: Setting) -> int:
        """Memory that a change takes: workers and the batches that wait in their queues."""
        workers = after.num_workers - before.num_workers
        batches = after.num_workers * after.prefetch_factor - before.num_workers * before.prefetch_factor
        return max(0, workers * self.worker_bytes + batches * self.batch_bytes)

    @property
    def fewer(self) -> float:
        """The best that fewer workers (but some) would bring."""
        return self._best(lower=True)

    @property
    def more(self) -> float:
        """The best that more workers would bring."""
        return self._best(lower=False)

    present_workers: int = 0

    def _best(self, *, lower: bool) -> float:
        found = [
            speedup
            for workers, speedup in self.by_workers.items()
            if (0 < workers < self.present_workers if lower else workers > self.present_workers)
        ]
        return max(found, default=1.0)


def look_ahead(record: Record, timing: Timing, model: Model) -> Outlook:
    """Try the settings on the model. Some dozens of plays, a few milliseconds each."""
    loader, now = timing.loader, model.present
    assert loader is not None, "a model is fitted to a loader"
    batch_bytes = _batch_bytes(record, timing)
    worker_bytes = _worker_bytes(record, loader)
    present_s = model.step_s(now)
    most = _most_workers(record, now, worker_bytes + now.prefetch_factor * batch_bytes)
    every = _worker_counts(model, most)
    counts = _keeping_order(now.num_workers) if loader.is_iterable else every
    most_divided = _most_divided(loader, timing.trial)
    divided = [count for count in every if count <= most_divided]
    # workers that stay pay off from the second epoch on; what starting them takes is not known before any
    keeps = loader.num_epochs > 1 or timing.pause_s > 0 or not now.num_workers
    once = replace(model, restarts=False)
    by_workers = {
        count: present_s / model.step_s(model.with_workers(count, may_stay=not now.num_workers))
        for count in counts
    }
    depths = [depth for depth in (2, 4, 8) if depth > now.prefetch_factor] if now.num_workers else []
    by_prefetch = {depth: present_s / model.step_s(replace(now, prefetch_factor=depth)) for depth in depths}
    if now.num_workers:
        unordered = present_s / model.step_s(replace(now, in_order=False)) if now.in_order else 1.0
        persistent = present_s / once.step_s(replace(now, persistent_workers=True))
    else:
        unordered = persistent = 1.0
    best, best_s = _best_setting(model, counts, present_s=present_s, keeps=keeps)
    return Outlook(
        by_workers=by_workers,
        by_prefetch=by_prefetch,
        unordered=unordered,
        persistent=persistent,
        best=best,
        best_speedup=present_s / best_s,
        best_once=_best_setting(once, counts, present_s=present_s, keeps=keeps)[0]
        if model.restarts
        else best,
        best_divided=_best_setting(model, divided, present_s=present_s, keeps=keeps)[0]
        if most_divided > 1
        else best,
        worker_bytes=worker_bytes,
        batch_bytes=batch_bytes,
        present_workers=now.num_workers,
    )


def _best_setting(model: Model, counts: list[int], *, present_s: float, keeps: bool) -> tuple[Setting, float]:
    """The cheapest of the settings that come close to the fastest; the present one if it does."""
    now = model.present
    tried = {now: present_s}

    def attempt(workers: int, depth: int) -> None:
        setting = replace(model.with_workers(workers, may_stay=keeps), prefetch_factor=depth)
        if setting not in tried:
            tried[setting] = model.step_s(setting)

    for count in counts:
        attempt(count, now.prefetch_factor)
    good = min(tried.values()) * 1.1
    for setting in [setting for setting, seconds in tried.items() if seconds <= good and setting.num_workers]:
        for depth in (2, 4, 8):  # a deeper queue helps those that nearly keep up
            attempt(setting.num_workers, depth)
    fastest = min(tried.values())
    if present_s <= fastest * WORTHWHILE:
        return now, present_s

    def cost(found: tuple[Setting, float]) -> tuple[bool, int, bool, int]:
        workers, depth = found[0].num_workers, found[0].prefetch_factor
        return workers != now.num_workers, workers, depth != now.prefetch_factor, depth

    return min((found for found in tried.items() if found[1] <= fastest * _CLOSE_ENOUGH), key=cost)


def _keeping_order(now: int) -> list[int]:
    """Numbers of workers that give a stream's samples in the same order, each as often as now."""
    return sorted({0, 1, now}) if now <= 1 else [now]


def _most_divided(loader: Loader, trial: Trial | None) -> int:
    """Workers among which a stream may be divided: as was tried, each with some batches; 0: none."""
    division = None if trial is None else trial.division
    if division is None or division.num_workers < 2 or loader.drop_last:  # each would drop a batch
        return 0
    if not division.is_whole:
        return division.num_workers
    return min(division.num_workers, division.num_samples // (_LEAST_BATCHES * (loader.batch_size or 1)))


def _worker_counts(model: Model, most: int) -> list[int]:
    now = model.present.num_workers
    waiting = sum(wait for wait, _ in model.jobs)
    computing = sum(cpu for _, cpu in model.jobs)
    highest = 2 * model.num_cores
    if waiting > computing:  # who waits for storage needs no core: as many as keep the loop fed
        needed = (waiting + computing) / len(model.jobs) / max(model.loop.seconds, 1e-6)
        highest = max(highest, math.ceil(1.5 * needed))
    highest = max(1, min(highest, most, _MOST_WORKERS))
    counts = set(range(min(highest, 8) + 1)) | {highest, now, min(model.num_cores, highest)}
    count = 8
    while count < highest:
        counts.add(count)
        count = math.ceil(count * 1.25)
    return sorted(count for count in counts if count <= max(highest, now))


def _most_workers(record: Record, now: Setting, each_bytes: int) -> int:
    """Workers that fit into four fifths of the memory, beside what the run takes already."""
    used = max((moment.memory_bytes for moment in record.moments), default=0)
    free = 0.8 * record.machine.memory_bytes - used
    if record.machine.memory_bytes <= 0:
        return _MOST_WORKERS
    return max(now.num_workers, now.num_workers + int(max(0.0, free) // max(each_bytes, 1)))


def _worker_bytes(record: Record, loader: Loader) -> int:
    seen = [moment.worker_memory_bytes for moment in record.moments if moment.worker_memory_bytes > 0]
    if seen and loader.num_workers:
        return max(seen) // loader.num_workers
    return _WORKER_BYTES.get(loader.start_method, _WORKER_BYTES["spawn"])


def _batch_bytes(record: Record, timing: Timing) -> int:
    assert timing.loader is not None
    sizes = [
        batch.num_bytes
        for batch in record.batches
        if batch.loader == timing.loader.name and batch.num_bytes is not None
    ]
    if sizes:
        return max(sizes)
    return timing.trial.bytes_per_sample * (timing.loader.batch_size or 1) if timing.trial else 0
