"""Find a loader's settings for this machine and this step: a few measured trials, led by a model.

    read alone, one worker ─┐
    read alone, all cores ──┼─▶ model ─▶ choose ─▶ trial with steps ─▶ as predicted? ─▶ done
    the step alone ─────────┘      ▲                                       │ no
                                   └──────────── corrected ◀───────────────┘

A compressed store is also tried decoded, and one larger than memory in quasi-random order, if the step
has to wait otherwise.
"""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from stoker.config import available_memory_bytes, usable_cores
from stoker.errors import UsageError
from stoker.loader._loader import Loader
from stoker.loader._readers import StoreReader
from stoker.loader._threads import ThreadFeed
from stoker.loader._tune_model import (
    CLOSE_ENOUGH,
    Costs,
    Prediction,
    Reading,
    choose,
    corrected,
    fit,
    max_workers,
    predict,
)

Batch = dict[str, Any]
Step = Callable[[Batch], object]

_MAX_READ_AHEAD_BYTES = 1 << 30
_STARVED = 0.03  # share of a step that is lost, from which a costlier remedy is tried
_FED = 0.01  # and below which there is nothing to gain
_LONGEST_DECODING_S = 60.0  # for a trial of a decoded copy
_LEAST_STEPS = 6
_ROUND_BLOCKS = 4
_WARMUP_STEPS = 3


@dataclass(frozen=True)
class Choice:
    """Settings of a loader; those of `stoker.Loader` by the same names."""

    num_workers: int | None = None
    memory_bytes: int | None = None
    preload: bool = False
    cache: str | None = None
    shuffle: bool | Literal["quasi"] = True

    def options(self) -> dict[str, Any]:
        """As keyword arguments of a loader, or as the section ``data.loader`` of a configuration."""
        return asdict(self)


MakeLoader = Callable[[Choice], Loader]


@dataclass(frozen=True)
class Trial:
    """Settings that were tried with steps. Seconds a step."""

    choice: Choice
    step_s: float
    wait_s: float
    predicted_s: float | None  # None: before there was a model

    @property
    def error(self) -> float | None:
        """By how much the prediction was off, of what was measured."""
        return None if self.predicted_s is None else self.predicted_s / self.step_s - 1


@dataclass(frozen=True)
class Tuned:
    """The settings that were found, why, and what they were measured to bring."""

    best: Trial
    default: Trial  # the loader's own number of workers and memory
    trials: tuple[Trial, ...]  # in order
    costs: Costs  # the step alone, and reading alone as the best does it
    reasons: dict[str, str]  # by setting
    advice: tuple[str, ...]  # what no loader's setting can do
    num_trials: int  # with those that only read
    facts: "DataFacts" = field(repr=False)


@dataclass(frozen=True)
class DataFacts:
    """What is known of the data without reading it."""

    num_samples: int
    num_bytes: int  # on disk; 0 where that is not known
    is_store: bool  # and not windows over sessions
    is_compressed: bool
    batch_size: int
    memory_bytes: int  # available
    cores: int

    @property
    def fits(self) -> bool:
        """Whether all of it may be in memory beside the training."""
        return self.num_bytes <= self.memory_bytes // 2


def tune(make_loader: MakeLoader, step: Step, *, shuffle: bool = True, trial_s: float = 1.0) -> Tuned:
    """Try, fit, choose, confirm: about six trials of `trial_s` seconds, and a few more where they help.

    Args:
        make_loader: gives a loader of the training data with these settings; it is closed again.
        step: what is done with a batch. It must not return before the batch is dealt with.
        shuffle: whether the order is free: else it stays as the loader has it.
        trial_s: seconds of each trial.

    Raises:
        UsageError: the data are read by processes, or a trial would have no steps.
    """
    if trial_s <= 0:
        raise UsageError(f"trial_s must be above 0, got {trial_s}")
    bench = _Bench(make_loader, step, trial_s)
    facts = bench.facts()
    base = Choice(preload=facts.is_store and facts.fits and not facts.is_compressed, shuffle=shuffle)
    bench.step_alone(base)
    default = bench.run(base, predicted_s=None)
    tried = [_explored(bench, base, facts)]
    if tried[0].is_starved and facts.is_compressed and _decoding_s(tried[0], facts) < _LONGEST_DECODING_S:
        tried.append(_explored(bench, replace(base, cache="auto", preload=facts.fits), facts))
    if tried[0].is_starved and shuffle and facts.num_bytes > facts.memory_bytes:
        tried.append(_explored(bench, replace(base, shuffle="quasi"), facts))
    best = tried[0]
    for other in tried[1:]:  # the costlier remedy must pay
        if other.best.step_s * (1 + _STARVED) < best.best.step_s:
            best = other
    trials = [default, *(trial for each in tried for trial in each.trials)]
    if default.step_s < best.best.step_s:  # a model may be wrong, and a trial have had bad luck
        trials += [bench.run(best.best.choice, predicted_s=best.best.predicted_s)]
        trials += [bench.run(default.choice, predicted_s=None)]
        best = replace(best, best=min(best.best, trials[-2], key=_step_s))
        default = min(default, trials[-1], key=_step_s)
        if default.step_s * CLOSE_ENOUGH < best.best.step_s:
            best = replace(best, best=default)
    return Tuned(
        best=best.best,
        default=default,
        trials=tuple(trials),
        costs=best.costs,
        reasons=_reasons(best, facts, default),
        advice=_advice(best),
        num_trials=bench.num_trials,
        facts=facts,
    )


@dataclass(frozen=True)
class _Explored:
    """The trials of one way to read, and the best of them."""

    costs: Costs
    trials: tuple[Trial, ...]
    best: Trial

    @property
    def is_starved(self) -> bool:
        return _lost(self.best, self.costs) > _STARVED


def _lost(trial: Trial, costs: Costs) -> float:
    """Share of a step beyond what it takes with data that lies ready: waiting, and sharing the cores."""
    return max(0.0, 1 - (costs.step_s + costs.handover_s) / trial.step_s)


def _step_s(trial: Trial) -> float:
    return trial.step_s


def _decoding_s(read: _Explored, facts: DataFacts) -> float:
    """What it takes to decode all of the store."""
    return read.costs.shared_s * facts.num_samples / facts.batch_size / facts.cores


def _explored(bench: "_Bench", base: Choice, facts: DataFacts) -> _Explored:
    """Fit the model to reading alone; try what it chooses until it chooses nothing new."""
    readings = {workers: bench.read_alone(replace(base, num_workers=workers)) for workers in {1, facts.cores}}
    costs = fitted = fit(
        readings,
        step_s=bench.alone.step_s,
        step_cpu_s=bench.alone_cpu_s,
        cores=facts.cores,
        block_bytes=bench.block_bytes,
        consumer_reads=bench.consumer_reads,
    )
    budget = min(_MAX_READ_AHEAD_BYTES, facts.memory_bytes // 8)
    trials: list[Trial] = []
    tried: set[tuple[int, int]] = set()
    for _ in range(3):
        workers, ahead = choose(costs, max_workers=max_workers(costs), memory_bytes=budget)
        if (workers, ahead) in tried:
            break
        tried.add((workers, ahead))
        choice = replace(base, num_workers=workers, memory_bytes=costs.memory_bytes(ahead))
        trial = bench.run(choice, predicted_s=predict(costs, workers, ahead).step_s)
        trials.append(trial)
        if _lost(trial, fitted) < _FED:
            break  # more threads or memory can bring nothing
        costs = corrected(costs, workers, ahead, Prediction(trial.step_s, trial.wait_s))
    fastest = min(trial.step_s for trial in trials)
    best = min(
        (trial for trial in trials if trial.step_s <= CLOSE_ENOUGH * fastest),
        key=lambda trial: (trial.choice.num_workers or 0, trial.choice.memory_bytes or 0),
    )
    return _Explored(fitted, tuple(trials), best)


class _Bench:
    """Runs trials: each with a loader of its own, which is closed again."""

    def __init__(self, make_loader: MakeLoader, step: Step, trial_s: float) -> None:
        self._make_loader, self._step, self._trial_s = make_loader, step, trial_s
        self.alone = Prediction(0.0, 0.0)
        self.alone_cpu_s = 0.0
        self.block_bytes = self._steps_per_block = 1
        self.consumer_reads = False
        self.num_trials = 0

    def facts(self) -> DataFacts:
        """About the data; nothing is read."""
        with closing(self._make_loader(Choice())) as loader:
            _feed_of(loader)
            if not len(loader):
                raise UsageError(f"there is no step to time: {len(loader.data)} samples, drop_last is set")
            data = loader.data
            store = data.store if isinstance(data, StoreReader) else None
            return DataFacts(
                num_samples=len(data),
                num_bytes=getattr(data, "num_bytes", 0),
                is_store=store is not None,
                is_compressed=store is not None and store.manifest.compression != "none",
                batch_size=loader.batch_size,
                memory_bytes=available_memory_bytes(),
                cores=usable_cores(),
            )

    def step_alone(self, choice: Choice) -> None:
        """Steps with one batch that lies ready: the least that training can take."""
        with closing(self._make_loader(choice)) as loader:
            batch = next(iter(loader))
            for _ in range(_WARMUP_STEPS):
                self._step(batch)
            self.num_trials += 1
            begin, cpu = time.perf_counter(), time.process_time()
            num = 0
            while num < _LEAST_STEPS or time.perf_counter() - begin < self._trial_s / 2:
                self._step(batch)
                num += 1
            self.alone = Prediction((time.perf_counter() - begin) / num, 0.0)
            self.alone_cpu_s = (time.process_time() - cpu) / num

    def read_alone(self, choice: Choice) -> Reading:
        """Batches as fast as they come."""
        with closing(self._make_loader(choice)) as loader:
            feed = _feed_of(loader)
            self.block_bytes, self._steps_per_block = feed.block_bytes, feed.steps_per_block
            self.consumer_reads = feed.consumer_reads
            timed = self._timed(loader, lambda _: None)
        steps = self._steps_per_block
        return Reading(
            timed.step_s,
            timed.cpu_s,
            handover_s=statistics.quantiles(timed.intervals, n=10)[0] if steps > 1 else 0.0,
            unevenness=_unevenness(timed.intervals, steps),
        )

    def run(self, choice: Choice, *, predicted_s: float | None) -> Trial:
        """Steps with the data as a loader with these settings gives it."""
        with closing(self._make_loader(choice)) as loader:
            timed = self._timed(loader, self._step)
        return Trial(choice, timed.step_s, timed.wait_s, predicted_s)

    def _timed(self, loader: Loader, step: Step) -> "_Timed":
        self.num_trials += 1
        batches = _endless(loader)
        begin = time.perf_counter()
        for number in range(2 * self._steps_per_block + _WARMUP_STEPS):
            step(next(batches))
            if number >= _WARMUP_STEPS and time.perf_counter() - begin > self._trial_s:
                break
        begin, cpu = time.perf_counter(), time.process_time()
        now, wait, ends = begin, 0.0, [begin]
        while len(ends) <= _LEAST_STEPS or now - begin < self._trial_s:
            batch = next(batches)
            wait += time.perf_counter() - now
            step(batch)
            del batch  # its slot is free again
            now = time.perf_counter()
            ends.append(now)
        num = len(ends) - 1
        cpu_s = (time.process_time() - cpu) / num
        batches.close()
        return _Timed((now - begin) / num, wait / num, cpu_s, [b - a for a, b in itertools.pairwise(ends)])


@dataclass(frozen=True)
class _Timed:
    step_s: float
    wait_s: float
    cpu_s: float
    intervals: list[float]


def _feed_of(loader: Loader) -> ThreadFeed:
    feed = loader._feed  # noqa: SLF001 - of our own package
    if not isinstance(feed, ThreadFeed):
        raise UsageError(
            "tune is for stores and windows, which threads read; a Dataset runs in processes: "
            "`stoker doctor` finds settings for those"
        )
    return feed


def _endless(loader: Loader) -> Generator[Batch, None, None]:
    while True:
        yield from loader


def _unevenness(intervals: list[float], steps_per_block: int) -> float:
    """Standard deviation over mean of whole blocks.

    Batches of a block come at once, and so do blocks that two threads read at the same time: only rounds
    of several blocks tell how even reading is.
    """
    steps = _ROUND_BLOCKS * steps_per_block
    rounds = [sum(intervals[start : start + steps]) for start in range(0, len(intervals) - steps + 1, steps)]
    if len(rounds) < 4 or statistics.mean(rounds) <= 0:
        return 0.0
    return statistics.stdev(rounds) / statistics.mean(rounds) * math.sqrt(_ROUND_BLOCKS)


def _reasons(found: _Explored, facts: DataFacts, default: Trial) -> dict[str, str]:
    best, costs = found.best, found.costs
    reading = _ms(costs.serial_s + costs.shared_s)
    reasons = {
        "num_workers": f"a batch takes {reading} to read by one thread, the step {_ms(costs.step_s)}; "
        f"{facts.cores} cores",
        "memory_bytes": f"{(best.choice.memory_bytes or 0) // costs.block_bytes} blocks of "
        f"{_size(costs.block_bytes)}: more would not shorten a step of {_ms(best.step_s)}",
    }
    if best is default:
        reasons = dict.fromkeys(reasons, "the default, measured faster than what the model chose")
    memory = _size(facts.memory_bytes)
    if not facts.is_store:
        reasons["preload"] = "windows are read where they lie"
    elif facts.is_compressed and best.choice.cache is None:
        reasons["preload"] = "a compressed store is not mapped"
    else:
        within = "within" if facts.fits else "more than"
        reasons["preload"] = f"{_size(facts.num_bytes)} of data, {within} half of {memory} available"
    if facts.is_compressed:
        reasons["cache"] = (
            "decoding at each read makes the step wait"
            if best.choice.cache
            else "decoding at each read keeps up"
            if not found.is_starved
            else "a decoded copy was not faster, or would take too long to make"
        )
    if best.choice.shuffle == "quasi":
        reasons["shuffle"] = (
            f"{_size(facts.num_bytes)} of data, {memory} available: runs of neighbours, mixed"
        )
    if default.step_s > CLOSE_ENOUGH * best.step_s:
        reasons["num_workers"] += f"; the defaults take {_ms(default.step_s)} a step"
    return reasons


def _advice(found: _Explored) -> tuple[str, ...]:
    best, costs = found.best, found.costs
    advice = []
    if found.is_starved and costs.step_s > costs.handover_s:  # else only the speed of reading was asked for
        share = _lost(best, costs)
        advice.append(
            f"Data that lies ready would save {share:.0%} of a step's {_ms(best.step_s)}: the step itself "
            f"takes {_ms(costs.step_s)}, handing a batch over {_ms(costs.handover_s)}. "
            "Read fewer fields, store smaller types, or use more cores."
        )
        if costs.serial_s > costs.shared_s:
            advice.append(
                "Most of that does not get shorter with more threads, and part of it is paid once a batch: "
                "a larger batch_size spreads it over more samples, but changes the training."
            )
    return tuple(advice)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 30):.1f} GiB" if num_bytes >= 1 << 30 else f"{num_bytes / (1 << 20):.3g} MiB"
