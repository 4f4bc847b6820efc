"""A known pipeline, run in virtual time, and the Record that the probes would have made of it.

An independent truth for the analysis: threads on cores by time slices, workers that make one sample
after another, the index queues of PyTorch's DataLoader, a loop with stages. Nothing here is shared
with the model under test, which knows neither samples nor time slices.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stoker.doctor._record import (
    Batch,
    Line,
    Loader,
    Machine,
    Operators,
    Pause,
    Phase,
    Place,
    Record,
    Stage,
    Step,
    Trial,
)

SLICE_S = 0.002
SCRIPT = "train.py"


@dataclass(frozen=True)
class Pipeline:
    """The truth. Seconds; a sample's costs are those of one that is alone on the machine."""

    sample_cpu_s: float = 0.001  # of the data set's own code
    sample_wait_s: float = 0.0  # for storage
    transforms: dict[str, float] = field(default_factory=dict)  # processor time a sample
    collate_s: float = 0.0002
    transfer_s: float = 0.0004  # half in the worker, half in the loop
    tail: tuple[float, float] = (0.0, 1.0)  # one sample in … takes … times as long
    jitter: float = 0.02  # of every duration, relative
    batch_size: int = 8
    num_cores: int = 2
    num_workers: int = 2
    prefetch_factor: int = 2
    in_order: bool = True
    persistent_workers: bool = False
    start_s: float = 0.05  # to start one worker
    opening_s: float = 0.0  # waited for in the first batch of each process: its files are opened
    batches_per_epoch: int = 10_000
    accumulation: int = 1
    copy_s: float = 0.0
    forward_s: float = 0.004
    backward_s: float = 0.006
    optimizer_s: float = 0.001
    host_code_s: float = 0.0  # the loop's own Python, each step
    generator_s: float = 0.0  # data made in the loop's header, without a DataLoader
    loop_threads: int = 0  # that forward and backward keep busy; 0: a device computes
    operators_per_step: float = 100.0
    seconds_per_operator: float = 1e-4
    device: str = "emulated accelerator"
    deterministic_s: float | None = None
    is_deterministic: bool | None = False
    num_samples: int = 80_000
    bytes_per_sample: int = 10_000
    tells_queues: bool = True  # the system says how long a worker waited for a core
    seed: int = 0

    @property
    def sample_work_s(self) -> float:
        return self.sample_cpu_s + sum(self.transforms.values())


@dataclass
class _Thread:
    """One thread of a process: what it still has to compute, and whom it wakes."""

    process: "_Process"
    left_s: float


@dataclass
class _Process:
    life: Generator[tuple[str, Any], None, None]
    busy_threads: int = 0
    cpu_s: float = 0.0
    is_over: bool = False


class Kernel:
    """Cores, time slices, sleeping and waking."""

    def __init__(self, num_cores: int) -> None:
        self.now = 0.0
        self._free = num_cores
        self._runnable: deque[_Thread] = deque()
        self._events: list[tuple[float, int, str, Any, float]] = []
        self._numbers = itertools.count()
        self._blocked: dict[object, list[_Process]] = {}

    def start(self, life: Generator[tuple[str, Any], None, None]) -> _Process:
        process = _Process(life)
        self._resume(process)
        return process

    def wake(self, key: object) -> None:
        for process in self._blocked.pop(key, []):
            self._events_push(self.now, "wake", process, 0.0)

    def run(self, until: _Process) -> None:
        """Until this process has ended."""
        while not until.is_over:
            self.now, _, kind, what, seconds = heapq.heappop(self._events)
            if kind == "wake":
                self._resume(what)
                continue
            self._free += 1
            what.left_s -= seconds
            what.process.cpu_s += seconds
            if what.left_s > 1e-9:
                self._runnable.append(what)
            else:
                what.process.busy_threads -= 1
                if not what.process.busy_threads:
                    self._resume(what.process)
            self._schedule()

    def _resume(self, process: _Process) -> None:
        while True:
            try:
                order, argument = next(process.life)
            except StopIteration:
                process.is_over = True
                return
            if order == "block":
                self._blocked.setdefault(argument, []).append(process)
                return
            if order == "sleep" and argument > 0:
                self._events_push(self.now + argument, "wake", process, 0.0)
                return
            if order == "compute" and argument[0] > 0:
                seconds, num_threads = argument
                process.busy_threads = num_threads
                self._runnable.extend(_Thread(process, seconds) for _ in range(num_threads))
                self._schedule()
                return

    def _schedule(self) -> None:
        while self._free and self._runnable:
            thread = self._runnable.popleft()
            seconds = min(SLICE_S, thread.left_s)
            self._free -= 1
            self._events_push(self.now + seconds, "slice", thread, seconds)

    def _events_push(self, time: float, kind: str, what: object, seconds: float) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), kind, what, seconds))


class _Run:
    """A training run in virtual time: collects steps, batches and pauses."""

    def __init__(self, pipeline: Pipeline, *, num_warmup: int, num_normal: int) -> None:
        self.pipeline = pipeline
        self.kernel = Kernel(pipeline.num_cores)
        self.steps: list[Step] = []
        self.batches: dict[tuple[int, int], Batch] = {}
        self.pauses: list[Pause] = []
        self._num = (num_warmup, num_normal)
        self._draws = np.random.default_rng(pipeline.seed)
        self._main: _Process | None = None
        self._opened: list[_Process] = []  # those whose files are open

    def go(self) -> None:
        process = self.kernel.start(self._loop())
        self._main = process
        self.kernel.run(process)

    def _noisy(self, seconds: float) -> float:
        return max(0.0, seconds * (1.0 + self.pipeline.jitter * self._draws.standard_normal()))

    def _sample(self) -> tuple[float, dict[str, float], float]:
        """Waiting, transforms, own processor time of one sample."""
        made = self.pipeline
        chance, factor = made.tail
        factor = factor if self._draws.random() < chance else 1.0
        return (
            self._noisy(made.sample_wait_s) * factor,
            {name: self._noisy(seconds) * factor for name, seconds in made.transforms.items()},
            self._noisy(made.sample_cpu_s) * factor,
        )

    def _make(
        self, key: tuple[int, int], worker: int | None, process: list[_Process]
    ) -> Iterator[tuple[str, Any]]:
        """One batch, sample after sample."""
        made, begun = self.pipeline, self.kernel.now
        transforms = dict.fromkeys(made.transforms, 0.0)
        cpu = process[0].cpu_s if process else 0.0
        slept = 0.0
        if process and not any(process[0] is each for each in self._opened):
            self._opened.append(process[0])
            yield "sleep", made.opening_s
            slept += self.kernel.now - begun
        for _ in range(made.batch_size):
            wait, chain, own = self._sample()
            before = self.kernel.now
            yield "sleep", wait
            slept += self.kernel.now - before
            yield "compute", (own, 1)
            for name, seconds in chain.items():
                before = self.kernel.now
                yield "compute", (seconds, 1)
                transforms[name] += self.kernel.now - before
        fetched, fetch_cpu = self.kernel.now, (process[0].cpu_s if process else 0.0) - cpu
        yield "compute", (self._noisy(made.collate_s), 1)
        collate_cpu = (process[0].cpu_s if process else 0.0) - cpu - fetch_cpu
        queued = max(0.0, self.kernel.now - begun - slept - fetch_cpu - collate_cpu)
        self.batches[key] = Batch(
            loader="train", number=key[1], epoch=key[0], worker=worker, phase="normal",
            begin_s=begun, end_s=self.kernel.now, fetch_s=fetched - begun, fetch_cpu_s=fetch_cpu,
            collate_s=self.kernel.now - fetched, collate_cpu_s=collate_cpu, transforms=transforms,
            num_samples=made.batch_size, num_bytes=made.batch_size * made.bytes_per_sample,
            queued_s=queued if made.tells_queues and process else None,
        )  # fmt: skip

    def _worker(
        self,
        number: int,
        queue: deque[tuple[int, int] | None],
        done: dict[int, None],
        mine: list[_Process],
    ) -> Generator[tuple[str, Any], None, None]:
        while True:
            while not queue:
                yield "block", ("index", id(queue))
            key = queue.popleft()
            if key is None:
                return
            yield from self._make(key, number, mine)
            yield "compute", (self.pipeline.transfer_s / 2, 1)
            done[key[1]] = None
            self.kernel.wake("data")

    def _loop(self) -> Generator[tuple[str, Any], None, None]:
        made, (num_warmup, num_normal) = self.pipeline, self._num
        workers: list[deque[tuple[int, int] | None]] = []
        done: dict[int, None] = {}
        epoch, total = 0, num_warmup + num_normal
        while len(self.steps) < total:
            begun = self.kernel.now
            owed = [0] * made.num_workers
            if made.num_workers and (not workers or not made.persistent_workers):
                for queue in workers:
                    queue.append(None)
                    self.kernel.wake(("index", id(queue)))
                workers = [deque() for _ in range(made.num_workers)]
                for number, queue in enumerate(workers):
                    yield "compute", (made.start_s, 1)
                    mine: list[_Process] = []
                    mine.append(self.kernel.start(self._worker(number, queue, done, mine)))
            yield from self._epoch(epoch, workers, done, owed, begun, total)
            done.clear()
            epoch += 1

    def _epoch(
        self,
        epoch: int,
        workers: list[deque[tuple[int, int] | None]],
        done: dict[int, None],
        owed: list[int],
        begun: float,
        total: int,
    ) -> Iterator[tuple[str, Any]]:
        made = self.pipeline
        turn, sent, makers = 0, 0, {}

        def send() -> None:
            nonlocal turn, sent
            if sent == made.batches_per_epoch:
                return
            if not made.in_order:
                turn = next(
                    (turn + i) % made.num_workers
                    for i in range(made.num_workers)
                    if owed[(turn + i) % made.num_workers] < made.prefetch_factor
                )
            makers[sent] = turn
            owed[turn] += 1
            workers[turn].append((epoch, sent))
            self.kernel.wake(("index", id(workers[turn])))
            sent, turn = sent + 1, (turn + 1) % made.num_workers

        for _ in range(made.num_workers * made.prefetch_factor):
            send()
        step_begun, stages, waits = begun, dict[Stage, float](), list[float]()
        cpu = self._cpu_s
        for number in range(made.batches_per_epoch):
            asked = self.kernel.now
            yield from self._header()
            if made.num_workers:
                was_ready = number in done if made.in_order else bool(done)
                was_blocked = not was_ready and bool(done)
                while not (number in done if made.in_order else done):
                    yield "block", "data"
                took = number if made.in_order else next(iter(done))
                del done[took]
                ready = self.kernel.now
                yield "compute", (made.transfer_s / 2, 1)
                owed[makers[took]] -= 1
                send()
                self.batches[epoch, took] = replace(
                    self.batches[epoch, took], asked_s=asked, ready_s=ready, taken_s=self.kernel.now,
                    was_ready=was_ready, was_blocked=was_blocked,
                    phase="warmup" if len(self.steps) < self._num[0] else "normal",
                )  # fmt: skip
            elif not made.generator_s:
                yield from self._make((epoch, number), None, [self._main] if self._main else [])
            waited = self.kernel.now - asked
            if number == 0 and made.num_workers:
                self.pauses.append(Pause("epoch start", begun, self.kernel.now, "train"))
                step_begun, waited, cpu = self.kernel.now, 0.0, self._cpu_s
            if not made.generator_s:
                stages["wait"] = stages.get("wait", 0.0) + waited
            waits.append(waited)
            yield from self._micro_batch(stages)
            if (number + 1) % made.accumulation == 0:
                yield from self._update(stages)
                phase: Phase = "warmup" if len(self.steps) < self._num[0] else "normal"
                self.steps.append(self._step(phase, step_begun, stages, waits, self._cpu_s - cpu))
                step_begun, stages, waits, cpu = self.kernel.now, {}, [], self._cpu_s
                if len(self.steps) >= total:
                    return

    @property
    def _cpu_s(self) -> float:
        return self._main.cpu_s if self._main else 0.0

    def _step(
        self, phase: Phase, begun: float, stages: dict[Stage, float], waits: list[float], cpu_s: float
    ) -> Step:
        made = self.pipeline
        rest = self.kernel.now - begun - sum(stages.values())
        return Step(
            phase=phase, begin_s=begun, end_s=self.kernel.now, stages=stages | {"other": max(0.0, rest)},
            num_batches=made.accumulation, num_samples=made.accumulation * made.batch_size,
            loader=None if made.generator_s else "train", waits=tuple(waits), cpu_s=cpu_s,
        )  # fmt: skip

    def _header(self) -> Iterator[tuple[str, Any]]:
        yield "compute", (self._noisy(self.pipeline.generator_s), 1)

    def _micro_batch(self, stages: dict[Stage, float]) -> Iterator[tuple[str, Any]]:
        made = self.pipeline
        parts: list[tuple[Stage, float]] = [
            ("copy", made.copy_s), ("forward", made.forward_s), ("backward", made.backward_s)
        ]  # fmt: skip
        for stage, seconds in parts:
            begun = self.kernel.now
            if stage != "copy" and made.loop_threads:
                yield "compute", (self._noisy(seconds) / made.loop_threads, made.loop_threads)
            else:
                yield "sleep", self._noisy(seconds)
            if seconds:
                stages[stage] = stages.get(stage, 0.0) + self.kernel.now - begun

    def _update(self, stages: dict[Stage, float]) -> Iterator[tuple[str, Any]]:
        begun = self.kernel.now
        yield "compute", (self._noisy(self.pipeline.optimizer_s), 1)
        stages["optimizer"] = self.kernel.now - begun
        yield "compute", (self._noisy(self.pipeline.host_code_s), 1)

    def replay(self, phase: Phase, num_steps: int) -> None:
        """Steps with batches that are there, the workers asleep."""
        made = self.pipeline if phase == "host" else replace(self.pipeline, copy_s=0.0)
        alone = _Run(replace(made, num_workers=0), num_warmup=0, num_normal=0)
        alone._draws = self._draws

        def life() -> Generator[tuple[str, Any], None, None]:
            for _ in range(num_steps):
                stages: dict[Stage, float] = {"wait": 0.0}
                begun, cpu = alone.kernel.now, alone._cpu_s
                for _ in range(made.accumulation):
                    yield from alone._micro_batch(stages)
                yield from alone._update(stages)
                waits = [0.0] * made.accumulation
                alone.steps.append(alone._step(phase, begun, stages, waits, alone._cpu_s - cpu))

        alone._main = alone.kernel.start(life())
        alone.kernel.run(alone._main)
        offset = self.kernel.now
        self.kernel.now += alone.kernel.now
        self.steps += [
            replace(step, begin_s=step.begin_s + offset, end_s=step.end_s + offset) for step in alone.steps
        ]


def record_of(
    pipeline: Pipeline,
    *,
    num_warmup: int = 10,
    num_normal: int = 60,
    num_replayed: int = 20,
    with_trial: bool = True,
) -> Record:
    """What the doctor would have seen of this pipeline."""
    run = _Run(pipeline, num_warmup=num_warmup, num_normal=num_normal)
    run.go()
    if num_replayed and not pipeline.generator_s:
        run.replay("host", num_replayed)
        run.replay("device", num_replayed)
    record = Record(
        command=[SCRIPT],
        machine=Machine(
            num_cores=pipeline.num_cores, num_cores_present=pipeline.num_cores, memory_bytes=8 << 30,
            device=pipeline.device, num_torch_threads=max(1, pipeline.loop_threads), python="3.11",
            torch="2.13", platform="made",
        ),
        steps=run.steps,
        pauses=run.pauses,
        lines=_lines(pipeline, run.steps),
        operators=Operators(
            pipeline.operators_per_step, pipeline.seconds_per_operator,
            {"Net": pipeline.operators_per_step * 0.9, "Linear": pipeline.operators_per_step * 0.1}, {},
        ),
        overhead_s_per_step=2e-5,
        ended="stopped",
        seconds=run.kernel.now,
    )  # fmt: skip
    if not pipeline.generator_s:
        record.loaders.append(_loader(pipeline, num_epochs=len(run.pauses) or 1))
        taken = [batch for batch in run.batches.values() if batch.taken_s is not None or batch.worker is None]
        record.batches += taken
        if with_trial:
            record.trials.append(_trial(pipeline))
    return record


def seconds_per_step(pipeline: Pipeline, *, num_steps: int = 240) -> float:
    """The truth of how long a step takes, its part of the epoch's start included."""
    per_epoch = pipeline.batches_per_epoch // pipeline.accumulation
    if per_epoch <= num_steps:
        num_steps = max(2, num_steps // per_epoch) * per_epoch
    run = _Run(pipeline, num_warmup=20, num_normal=num_steps)
    run.go()
    steps = [step for step in run.steps if step.phase == "normal"]
    starts = sum(pause.end_s - pause.begin_s for pause in run.pauses[1:])
    if per_epoch > num_steps:
        starts = (run.pauses[0].end_s - run.pauses[0].begin_s) * len(steps) / per_epoch if run.pauses else 0.0
        return (steps[-1].end_s - steps[0].begin_s + starts) / len(steps)
    return sum(step.seconds for step in steps) / len(steps) + starts / max(1, len(run.pauses) - 1) / per_epoch


def _loader(pipeline: Pipeline, *, num_epochs: int) -> Loader:
    return Loader(
        name="train", role="train", batch_size=pipeline.batch_size, num_workers=pipeline.num_workers,
        prefetch_factor=pipeline.prefetch_factor if pipeline.num_workers else None,
        persistent_workers=pipeline.persistent_workers, pin_memory=False, in_order=pipeline.in_order,
        shuffles=True, drop_last=False, start_method="fork", collate="default_collate", dataset="Made",
        is_iterable=False, num_samples=pipeline.num_samples, num_batches=pipeline.batches_per_epoch,
        made_at=Place(SCRIPT, 40, "main", "loader = DataLoader(data)"), num_epochs=num_epochs,
    )  # fmt: skip


def _trial(pipeline: Pipeline) -> Trial:
    chance, factor = pipeline.tail
    more = 1 + chance * (factor - 1)
    spread = ((chance * factor**2 + 1 - chance) / more**2 - 1) ** 0.5
    return Trial(
        loader="train", num_samples=32,
        seconds_per_sample=(pipeline.sample_wait_s + pipeline.sample_work_s) * more,
        cpu_s_per_sample=pipeline.sample_work_s * more, spread=spread,
        transforms={name: seconds * more for name, seconds in pipeline.transforms.items()},
        collate_s_per_batch=pipeline.collate_s, transfer_s_per_batch=pipeline.transfer_s,
        bytes_per_sample=pipeline.bytes_per_sample, is_deterministic=pipeline.is_deterministic,
        deterministic_s_per_sample=pipeline.deterministic_s,
    )  # fmt: skip


def _lines(pipeline: Pipeline, steps: list[Step]) -> list[Line]:
    """Where a sampler of 5 ms would have found Python: in the loop, and in the trial's samples."""
    normal = [step for step in steps if step.phase == "normal"]
    found = []

    def add(process: Any, stage: Stage | None, line: int, function: str, callee: str, seconds: float,
            *, header: bool = False, module: str = "") -> None:  # fmt: skip
        if seconds > 0.005:
            place = Place(SCRIPT, line, function, f"line {line}")
            found.append(Line(process, stage, place, callee, module, header, round(seconds / 0.005), seconds))

    add("loop", "other", 57, "main", "sklearn.metrics._classification.f1_score",
        pipeline.host_code_s * len(normal))  # fmt: skip
    add("loop", "other", 12, "batches", "numpy.random.mtrand.normal",
        pipeline.generator_s * len(normal), header=True)  # fmt: skip
    add("loop", "forward", 30, "Net.forward", "torch.nn.functional.linear",
        sum(step.stages.get("forward", 0.0) for step in normal), module="Net")  # fmt: skip
    if not pipeline.generator_s:
        add("trial", None, 20, "Made.__getitem__", "", (pipeline.sample_cpu_s + pipeline.sample_wait_s) * 32)
        for number, (name, seconds) in enumerate(pipeline.transforms.items()):
            add(
                "trial",
                None,
                23 + number,
                f"{name}.__call__",
                "scipy.signal._signaltools.filtfilt",
                seconds * 32,
            )
    return found
