"""A DataLoader and its loop as a queue, played through in virtual time.

Workers take batches in turn, wait for storage, then compute; the loop takes the batches, in order or
as they come, and computes in its turn. Whoever computes shares the cores: with more runnable threads
than cores each goes on at `cores / threads` of its speed. Deterministic, no clock; about a
millisecond for a hundred batches, whatever the number of workers.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Loop:
    """What the training loop does with one batch."""

    seconds: float  # alone on the machine
    demand: float  # cores it keeps busy meanwhile; below 1: it waits for a device in between
    drag: float  # how much it suffers from a lack of cores: 1 as any thread would, 0 not at all, more
    # where its threads wait for each other
    receive_s: float  # to take a batch out of the queue


@dataclass(frozen=True)
class Flow:
    """What came out. Seconds."""

    first_s: float  # until the loop had its first batch
    all_s: float  # until the loop was done with its last
    batch_s: float  # from batch to batch, once the queue has settled
    making_s: float  # mean wall time of a batch in a worker
    busy_s: float  # of the loop, a batch: without its waiting
    blocked: float  # share of batches that were late while later ones lay ready


def play(
    jobs: Sequence[tuple[float, float]],
    loop: Loop,
    *,
    num_workers: int,
    prefetch_factor: int,
    in_order: bool,
    num_cores: float,
) -> Flow:
    """Give the loop one batch for each of `jobs`, (seconds of waiting, seconds of computing)."""
    if num_workers == 0:
        making = sum(wait + cpu for wait, cpu in jobs) / len(jobs)
        batch_s = making + loop.seconds
        return Flow(sum(jobs[0]), batch_s * len(jobs), batch_s, making, loop.seconds, 0.0)
    return _Play(
        jobs, loop, num_workers=num_workers, window=num_workers * max(1, prefetch_factor),
        in_order=in_order, num_cores=num_cores,
    ).run()  # fmt: skip


class _Play:
    """The state of one play. `now` is wall time, `turned` the time that any one thread has computed."""

    def __init__(
        self,
        jobs: Sequence[tuple[float, float]],
        loop: Loop,
        *,
        num_workers: int,
        window: int,
        in_order: bool,
        num_cores: float,
    ) -> None:
        self._jobs, self._loop, self._in_order, self._num_cores = jobs, loop, in_order, max(num_cores, 0.01)
        self._now = self._turned = 0.0
        self._waiting: list[tuple[float, int, int]] = []  # (end in wall time, job, worker)
        self._computing: list[tuple[float, int, int]] = []  # (end in turned time, job, worker)
        self._queues: list[deque[int]] = [deque() for _ in range(num_workers)]
        self._running: list[int | None] = [None] * num_workers
        self._begun = [0.0] * len(jobs)
        self._computed: set[int] = set()  # jobs that have only to wait once more
        self._maker = [0] * len(jobs)
        self._load = [0] * num_workers  # batches a worker owes
        self._window, self._depth = window, window // num_workers
        self._next_worker = 0
        self._sent = self._wanted = 0
        self._ready: dict[int, None] = {}  # in the order of arrival
        self._making_s = 0.0
        self._num_blocked = 0
        for _ in range(min(window, len(jobs))):
            self._send()

    def run(self) -> Flow:
        loop, num = self._loop, len(self._jobs)
        computing_s = loop.seconds * min(1.0, loop.demand)
        taken, busy_s = [], 0.0
        for _ in range(num):
            self._take()
            taken.append(self._now)
            self._compute(loop.receive_s, 1.0)
            self._send()
            self._compute(computing_s, max(1.0, loop.demand))
            self._idle(loop.seconds - computing_s)
            busy_s += self._now - taken[-1]
        return Flow(
            first_s=taken[0],
            all_s=self._now,
            batch_s=self._settled(taken),
            making_s=self._making_s / num,
            busy_s=busy_s / num,
            blocked=self._num_blocked / num,
        )

    def _settled(self, taken: list[float]) -> float:
        """Seconds from batch to batch, over whole rounds of the workers, without the first window."""
        num_workers, last = len(self._queues), len(taken) - 1
        begin = min(self._window, last // 2)
        num = max((last - begin) // num_workers * num_workers, min(1, last))
        return (taken[last] - taken[last - num]) / num if num else self._now

    def _send(self) -> None:
        """Hand the next batch to a worker: the next in turn, or, out of order, one that has room."""
        if self._sent == len(self._jobs):
            return
        num = len(self._queues)
        worker = self._next_worker
        if not self._in_order:
            for step in range(num):
                if self._load[(worker + step) % num] < self._depth:
                    worker = (worker + step) % num
                    break
        self._next_worker = (worker + 1) % num
        self._maker[self._sent] = worker
        self._load[worker] += 1
        self._queues[worker].append(self._sent)
        self._sent += 1
        if self._running[worker] is None:
            self._begin(worker)

    def _begin(self, worker: int) -> None:
        job = self._queues[worker].popleft() if self._queues[worker] else None
        self._running[worker] = job
        if job is not None:
            self._begun[job] = self._now
            # samples wait and compute in turn; workers that did it all at once would keep in step for
            # ever, which real ones don't: each waits another part of its time before it computes
            early = self._jobs[job][0] * (worker + 0.5) / len(self._queues)
            heapq.heappush(self._waiting, (self._now + early, job, worker))

    def _take(self) -> None:
        """Wait for the batch that is wanted."""
        if self._in_order:
            wanted = self._wanted
            if wanted not in self._ready and self._ready:
                self._num_blocked += 1
            while wanted not in self._ready:
                self._advance(None, 0.0)
        else:
            while not self._ready:
                self._advance(None, 0.0)
            wanted = next(iter(self._ready))
        del self._ready[wanted]
        self._load[self._maker[wanted]] -= 1
        self._wanted += 1

    def _compute(self, seconds: float, demand: float) -> None:
        """Let the loop compute for as long as it takes beside the workers."""
        left = seconds
        while left > 1e-12:
            left -= self._advance(left, demand)

    def _idle(self, seconds: float) -> None:
        until = self._now + seconds
        while self._now < until - 1e-12:
            self._advance(until - self._now, 0.0)

    def _advance(self, left: float | None, demand: float) -> float:
        """Go to the next event: a worker's, or the loop's own after `left`. Gives the loop's progress."""
        runnable = len(self._computing) + demand
        speed = min(1.0, self._num_cores / runnable) if runnable > 0 else 1.0
        pace = 1.0 / (1.0 + self._loop.drag * (1.0 / speed - 1.0)) if demand else 1.0
        step = left / pace if left is not None else float("inf")
        if self._computing:
            step = min(step, (self._computing[0][0] - self._turned) / speed)
        if self._waiting:
            step = min(step, self._waiting[0][0] - self._now)
        assert step < float("inf"), "the loop waits for a batch that nobody makes"
        step = max(step, 0.0)
        self._now += step
        self._turned += step * speed
        while self._waiting and self._waiting[0][0] <= self._now + 1e-12:
            _, job, worker = heapq.heappop(self._waiting)
            if job in self._computed:
                self._finish(job, worker)
            else:
                heapq.heappush(self._computing, (self._turned + self._jobs[job][1], job, worker))
        while self._computing and self._computing[0][0] <= self._turned + 1e-12:
            _, job, worker = heapq.heappop(self._computing)
            late = self._jobs[job][0] * (1 - (worker + 0.5) / len(self._queues))
            if late > 0:
                self._computed.add(job)
                heapq.heappush(self._waiting, (self._now + late, job, worker))
            else:
                self._finish(job, worker)
        return step * pace

    def _finish(self, job: int, worker: int) -> None:
        self._making_s += self._now - self._begun[job]
        self._ready[job] = None
        self._begin(worker)
