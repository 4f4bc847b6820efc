"""Samples made again in the main process, one after another: what one costs, and what of it could be kept.

Runs on one thread, as a worker does. The random state of Python, NumPy and torch, and that of the loader's
own generators, is what it was before. The data set's files are read again: indices are spread over the set,
but part of them may come from the page cache.
"""

import copy
import functools
import itertools
import math
import multiprocessing.resource_sharer
import queue
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stoker.doctor._record import Division, Line, Trial
from stoker.doctor.making._fetch import num_bytes_of
from stoker.doctor.making._purity import Passes
from stoker.doctor.making._randomness import keep_randomness
from stoker.doctor.making._streams import look_at_stream
from stoker.doctor.making._transforms import find_transforms
from stoker.doctor.sampling._sampler import StackSampler

Clock = Callable[[], float]

_MAX_SAMPLES = 512
_MIN_SAMPLES = 3
_NUM_COMPARED = 6  # samples made twice
_NUM_REPEATS = 3  # of a batch's collation and transfer
_SAMPLE_EVERY_S = 0.001
# how the budget is divided; the rest is for collation and transfer
_TIMED_SHARE, _COMPARED_SHARE, _LINES_SHARE = 0.5, 0.2, 0.2


class TrialError(Exception):
    """The data set could not be tried: what it raised is the cause."""


def try_samples(
    dataloader: Any,
    *,
    name: str,
    budget_s: float,
    clock: Clock = time.perf_counter,
    user_root: str = "",
) -> tuple[Trial, list[Line]]:
    """Make samples of the loader's data set again.

    Args:
        dataloader: a torch DataLoader; its workers are not used.
        name: of the loader, in the record.
        budget_s: about how long it may take; a single sample is never cut short.
        clock: in seconds.
        user_root: folder whose files are the user's own; empty: everything that is not installed.

    Raises:
        TrialError: the data set or its collate function raised.
    """
    try:
        with keep_randomness(dataloader), _one_thread():
            return _try(dataloader, name=name, budget_s=budget_s, clock=clock, user_root=user_root)
    except TrialError:
        raise
    except Exception as error:
        raise TrialError(f"{type(error).__name__}: {error}") from error


def _try(
    dataloader: Any, *, name: str, budget_s: float, clock: Clock, user_root: str
) -> tuple[Trial, list[Line]]:
    division = _division_of(dataloader)
    begin = clock()
    batch_size = _batch_size_of(dataloader)
    source = _source_of(dataloader)
    source.make()  # opens files, imports what is imported late
    timed = _time_samples(source, clock=clock, until=begin + budget_s * _TIMED_SHARE, num_kept=batch_size)
    passes = _compare(source, clock=clock, until=clock() + budget_s * _COMPARED_SHARE, user_root=user_root)
    lines = _sample_lines(source, clock=clock, until=clock() + budget_s * _LINES_SHARE, user_root=user_root)
    samples = list(itertools.islice(itertools.cycle(timed.samples), batch_size))
    collated = samples if dataloader.batch_sampler is not None else samples[0]
    collate_s, batch = _collate(dataloader.collate_fn, collated, clock=clock)
    transfer_s = _transfer(dataloader.collate_fn, collated, clock=clock, timeout_s=max(1.0, budget_s))
    seconds_per_sample = statistics.fmean(timed.seconds)
    trial = Trial(
        loader=name,
        num_samples=timed.num_samples,
        seconds_per_sample=seconds_per_sample,
        cpu_s_per_sample=timed.cpu_s / timed.num_samples,
        spread=statistics.pstdev(timed.seconds) / seconds_per_sample if seconds_per_sample > 0 else 0.0,
        transforms=timed.transforms,
        collate_s_per_batch=collate_s,
        transfer_s_per_batch=transfer_s,
        bytes_per_sample=num_bytes_of(batch) // max(batch_size, 1),
        is_deterministic=passes.are_equal(),
        deterministic_s_per_sample=passes.kept_seconds(seconds_per_sample),
        division=division,
    )
    return trial, lines


class _Items:
    """Makes samples by index, in the way in which the loader's fetcher would."""

    def __init__(self, dataloader: Any) -> None:
        self.dataset = dataloader.dataset
        self._indices = _indices_of(dataloader)
        self._at_once = 1
        if dataloader.batch_sampler is not None and getattr(self.dataset, "__getitems__", None):
            self._at_once = _batch_size_of(dataloader)
        self._given = 0

    def make(self) -> list[Any]:
        """The next samples."""
        return self._make([self._next() for _ in range(self._at_once)])

    def again(self, number: int) -> list[Any]:
        """Samples number `number` on; always the same."""
        return self._make([self._indices[(number + i) % len(self._indices)] for i in range(self._at_once)])

    def restart(self) -> None:
        """Before `again` is called from 0 on."""

    def _next(self) -> Any:
        self._given += 1
        return self._indices[(self._given - 1) % len(self._indices)]

    def _make(self, indices: list[Any]) -> list[Any]:
        if self._at_once > 1:
            return list(self.dataset.__getitems__(indices))
        return [self.dataset[index] for index in indices]


class _Stream:
    """Makes the samples of an iterable data set, from its beginning."""

    def __init__(self, dataloader: Any) -> None:
        self.dataset = dataloader.dataset
        self._iterator = iter(self.dataset)
        self._fresh: Iterator[Any] = iter(())

    def make(self) -> list[Any]:
        sample = next(self._iterator, _END)
        if sample is _END:
            self._iterator = iter(self.dataset)
            sample = next(self._iterator)
        return [sample]

    def again(self, _number: int) -> list[Any]:
        sample = next(self._fresh, _END)
        return [] if sample is _END else [sample]

    def restart(self) -> None:
        self._fresh = iter(self.dataset)


_END = object()


@dataclass
class _Timed:
    seconds: list[float]  # of a sample
    cpu_s: float  # of all
    num_samples: int
    transforms: dict[str, float]
    samples: list[Any]  # for a batch


def _time_samples(source: _Items | _Stream, *, clock: Clock, until: float, num_kept: int) -> _Timed:
    chain = find_transforms(source.dataset)
    seconds: list[float] = []
    samples: list[Any] = []
    num_samples, cpu_s = 0, 0.0
    with chain.timed() as watch:
        watch.reset()
        while len(seconds) < _MIN_SAMPLES or (clock() < until and num_samples < _MAX_SAMPLES):
            begin, begin_cpu = clock(), time.thread_time()
            made = source.make()
            cpu_s += time.thread_time() - begin_cpu
            seconds.append((clock() - begin) / len(made))
            num_samples += len(made)
            samples += made[: num_kept - len(samples)] if len(samples) < num_kept else []
        spent = [total / 1e9 / num_samples for total in watch.totals]
    return _Timed(
        seconds=seconds,
        cpu_s=cpu_s,
        num_samples=num_samples,
        transforms=dict(zip(chain.names, spent, strict=True)),
        samples=samples,
    )


def _compare(source: _Items | _Stream, *, clock: Clock, until: float, user_root: str) -> Passes:
    """The same samples twice, with other seeds."""
    passes = Passes(source.dataset, clock=clock, user_root=user_root)
    half = (clock() + until) / 2
    source.restart()
    while passes.num_first < _NUM_COMPARED and (clock() < half or not passes.num_first):
        number = passes.num_first
        passes.first(functools.partial(source.again, number))
    source.restart()
    for number in range(passes.num_first):
        passes.second(functools.partial(source.again, number))
    return passes


def _sample_lines(source: _Items | _Stream, *, clock: Clock, until: float, user_root: str) -> list[Line]:
    """Where Python stands while samples are made; none where something else samples this process."""
    sampler = StackSampler(
        interval_s=_SAMPLE_EVERY_S,
        stage=lambda: None,
        user_root=user_root,
        process="trial",
        below=_sample_lines.__code__,  # or the user's training loop would be seen, in which we are called
    )
    if not sampler.start():
        return []
    try:
        for _ in range(_MAX_SAMPLES):
            source.make()
            if clock() >= until:
                break
    finally:
        sampler.stop_looking()
    return sampler.lines()


def _collate(collate: Callable[[Any], Any], samples: Any, *, clock: Clock) -> tuple[float, Any]:
    """Median seconds of collating a batch, and the batch."""
    seconds = []
    batch: Any = None
    for _ in range(_NUM_REPEATS):
        begin = clock()
        batch = collate(samples)
        seconds.append(clock() - begin)
    return statistics.median(seconds), batch


def _transfer(collate: Callable[[Any], Any], samples: Any, *, clock: Clock, timeout_s: float) -> float | None:
    """Median seconds from a worker's `put` to the loop's `get`, through a real queue between threads.

    As with a worker: a thread pickles the batch, its tensors move to shared memory, and the receiver maps
    them. Unlike with a worker, both ends share one interpreter lock. None where a batch can't be sent.
    """
    import torch.multiprocessing

    seconds = []
    had_sharer = _sharer_runs()
    channel: Any = torch.multiprocessing.get_context("fork").Queue()
    channel._on_queue_feeder_error = lambda _error, _batch: None  # noqa: SLF001 - else it is printed
    try:
        for _ in range(_NUM_REPEATS):
            batch = _unshared(collate(samples))
            begin = clock()
            channel.put((0, batch))
            received = channel.get(timeout=timeout_s)
            seconds.append(clock() - begin)
            del received, batch
    except (queue.Empty, RuntimeError, OSError, TypeError):
        return None
    finally:
        channel.close()
        channel.join_thread()
        if not had_sharer:
            multiprocessing.resource_sharer.stop()
    return statistics.median(seconds)


def _sharer_runs() -> bool:
    """Whether this process already has the thread that hands out shared memory."""
    return multiprocessing.resource_sharer._resource_sharer._listener is not None  # type: ignore[attr-defined] # noqa: SLF001


def _unshared(value: Any) -> Any:
    """The batch with tensors of its own: sending moves a tensor's memory, which may be the data set's."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _unshared(inner) for key, inner in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_unshared(inner) for inner in value)
    if isinstance(value, tuple):  # a named one
        return type(value)(*(_unshared(inner) for inner in value))
    return copy.deepcopy(value)


def _source_of(dataloader: Any) -> _Items | _Stream:
    return _Stream(dataloader) if _is_stream(dataloader) else _Items(dataloader)


def _is_stream(dataloader: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(dataloader.dataset, IterableDataset)


def _division_of(dataloader: Any) -> Division | None:
    """How a stream divides itself; TrialError for one that gives nothing while the loop's pass is open."""
    if not _is_stream(dataloader):
        return None
    can_begin, division = look_at_stream(dataloader)
    if not can_begin:
        raise TrialError("begun a second time, the stream gives nothing")
    return division


def _indices_of(dataloader: Any) -> list[Any]:
    """Indices spread over the data set, far from one another; or what a sampler gives, without batching.

    A sampler of the user's own may give anything that the data set takes.
    """
    sampler, batches = dataloader.sampler, dataloader.batch_sampler
    if batches is not None and not _is_torchs(batches):
        return list(itertools.islice(itertools.chain.from_iterable(batches), _MAX_SAMPLES))
    if batches is None or not _is_torchs(sampler):
        return list(itertools.islice(sampler, _MAX_SAMPLES))
    return spread(len(dataloader.dataset), _MAX_SAMPLES)


def _is_torchs(sampler: object) -> bool:
    return type(sampler).__module__.partition(".")[0] == "torch"


def spread(length: int, number: int) -> list[int]:
    """Up to `number` indices below `length`, without repetition, each far from those before it."""
    number = min(length, number)
    step = max(1, round(length * (math.sqrt(5) - 1) / 2))
    while math.gcd(step, length) != 1:
        step += 1
    return [(length // 2 + i * step) % length for i in range(number)]


def _batch_size_of(dataloader: Any) -> int:
    """Samples of a batch; 1 without automatic batching."""
    if dataloader.batch_sampler is None:
        return 1
    found = dataloader.batch_size or getattr(dataloader.batch_sampler, "batch_size", None)
    return int(found) if found else len(next(iter(dataloader.batch_sampler)))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread, as a worker does."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
