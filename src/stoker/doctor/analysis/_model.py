"""How fast a step would be with other settings: the queue, given what `_fit.py` found of a run."""

import math
from dataclasses import dataclass, replace

from stoker.doctor.analysis._queue import Flow, Loop, play

_PLAYED = 72  # batches beyond the first window: enough for heavy tails, a few milliseconds
_LONGEST_EPOCH = 240  # batches that are played from the first to the last

Job = tuple[float, float]  # a batch's waiting and computing, alone


@dataclass(frozen=True)
class Setting:
    """What can be changed."""

    num_workers: int
    prefetch_factor: int = 2
    in_order: bool = True
    persistent_workers: bool = False
    torch_threads: int | None = None  # None: as it is
    kept: float = 1.0  # share of a sample's processor time that is left (cached, packed, moved away)
    kept_waiting: float = 1.0  # share of its waiting that is left
    reading_s: float = 0.0  # added to each batch: what replaces it
    loop_s: float = 0.0  # added to the loop for each batch


@dataclass(frozen=True)
class Model:
    """Fitted to one run."""

    num_cores: int
    jobs: tuple[Job, ...]  # of each observed batch
    loop: Loop
    present: Setting
    send_s: float  # a worker's cost to hand a batch over
    start_s: float  # to start the workers
    opening_s: float  # that each worker's first batch takes longer: files are opened, libraries imported
    inflation: float  # of a batch's processor time for each core that is wanted and not there
    batches_per_step: float
    batches_per_epoch: float | None
    torch_threads: int
    restarts: bool = False  # every epoch has a DataLoader of its own, so that no worker outlives one
    job_scale: float = 1.0
    loop_scale: float = 1.0
    correction: float = 1.0

    def step_s(self, setting: Setting) -> float:
        """Seconds from one optimizer step to the next, the epoch's start spread over its steps."""
        flow, num = self.flow(setting)
        stays = setting.persistent_workers and not self.restarts
        start = 0.0 if stays or not setting.num_workers else self._start_s(setting)
        if self.batches_per_epoch is not None and num >= self.batches_per_epoch:
            batch = (start + flow.all_s) / num
        else:
            first = start + flow.first_s if setting.num_workers else 0.0
            batch = flow.batch_s + (first / self.batches_per_epoch if self.batches_per_epoch else 0.0)
        return batch * self.batches_per_step * self.correction

    def with_workers(self, num_workers: int, *, may_stay: bool) -> Setting:
        """The present settings with so many workers, which stay from epoch to epoch if they may and can."""
        stays = self.present.persistent_workers or (may_stay and not self.restarts)
        return replace(self.present, num_workers=num_workers, persistent_workers=bool(num_workers) and stays)

    def speedup(self, setting: Setting) -> float:
        """Of training, against the present settings."""
        return self.step_s(self.present) / max(self.step_s(setting), 1e-12)

    def flow(self, setting: Setting) -> tuple[Flow, int]:
        """The queue with these settings, and how many batches were played."""
        workers = setting.num_workers
        loop = self._loop(setting)
        crowd = self._crowding(workers, loop.demand) / self._crowding(self.present.num_workers, loop.demand)
        extra = setting.reading_s + (self.send_s if workers else 0.0)
        jobs = [
            (
                wait * self.job_scale * setting.kept_waiting,
                cpu * self.job_scale * setting.kept * crowd + extra,
            )
            for wait, cpu in self.jobs
        ]
        window = workers * setting.prefetch_factor
        num = window + math.ceil(_PLAYED / max(1, workers)) * max(1, workers) + 1
        if self.batches_per_epoch is not None and self.batches_per_epoch <= _LONGEST_EPOCH:
            num = max(1, round(self.batches_per_epoch))
        return play(
            [jobs[number % len(jobs)] for number in range(num)],
            loop,
            num_workers=workers,
            prefetch_factor=setting.prefetch_factor,
            in_order=setting.in_order,
            num_cores=self.num_cores,
        ), num

    def _loop(self, setting: Setting) -> Loop:
        loop, threads = self.loop, setting.torch_threads
        seconds, demand, drag = loop.seconds * self.loop_scale, loop.demand, loop.drag
        if threads is not None and 1 <= threads < self.torch_threads and demand > 1:
            # Amdahl: of `torch_threads`, `demand` were busy on average, so a part runs on one alone
            serial = min(1.0, max(0.0, (self.torch_threads - demand) / (self.torch_threads - 1)))
            slower = serial + (1 - serial) * self.torch_threads / threads
            seconds, demand = seconds * slower, demand / slower
            drag = min(drag, 1.0) if threads == 1 else drag
        receive = loop.receive_s if setting.num_workers else 0.0
        return Loop(seconds + setting.loop_s, demand, drag, receive)

    def _crowding(self, workers: int, demand: float) -> float:
        wanted = (workers + min(demand, 1.0)) / max(self.num_cores, 1)
        return 1.0 + self.inflation * min(max(0.0, wanted - 1.0), 4.0)

    def _start_s(self, setting: Setting) -> float:
        workers = self.present.num_workers
        if not workers:
            return self.start_s * setting.num_workers
        # a fork takes its time in the main process, one worker after another; all open at the same time
        return self.start_s * setting.num_workers / workers + self.opening_s
