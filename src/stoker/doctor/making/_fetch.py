"""Times torch's fetchers: the data set's items and the collate function, apart.

The fetcher's own code stays in use, so its exceptions and results are torch's. The patch adds two frames
to a traceback and about ten microseconds to a batch. In the main process the loop waits for these, so that
of an epoch's many quick batches only some are looked into.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from stoker.doctor.making._core_queue import UNTOLD, core_queue
from stoker.doctor.making._transforms import Chain, find_transforms

UNKNOWN = -1  # in a fetch's figures
_SEQUENCES = (list, tuple)  # made once: `list | tuple` is made anew in every batch
_QUICK_NS = 1_000_000  # a fetch below it has hardly waited for a core, and asking takes 5 µs
_EVERY = 8  # while few are slow, one of so many is looked into
_FEW, _MEMORY = 1 / 16, 64  # of the last so many, about
_UNKNOWN_SHARE = _FEW / (1 - 1 / _MEMORY) ** 32  # of slow ones before any: the first 32 are looked into
_GOLDEN = 0x9E3779B9  # of 2³²: multiples spread evenly, so that no rhythm of the data set hides from us


class Observer(Protocol):
    """Who is told about the fetchers of a process."""

    def attach(self, fetcher: Any) -> None:
        """A fetcher was just made; put a Probe on it, or leave it."""


class Keep(Protocol):
    """Puts down what a fetch has shown. It is called for every batch, hence the plain tuple."""

    def __call__(self, number: int, figures: tuple[int, ...], transforms: list[int], /) -> None:
        """`figures`: begin, end, fetch, its CPU, collate, its CPU, queued for a core (ns), samples, bytes."""


class Probe:
    """Times one fetcher. `keep` is given what each fetch has shown."""

    def __init__(self, fetcher: Any, *, keep_in: bool) -> None:
        self._chain: Chain = find_transforms(fetcher.dataset)
        self._keep_in = keep_in  # leave the stand-ins in between fetches
        if keep_in:
            self._chain.put_in()
        self._collate = fetcher.collate_fn
        self._auto_collation = bool(fetcher.auto_collation)
        self._number = 0
        self._collate_ns = self._collate_cpu_ns = 0
        self._num_samples = UNKNOWN
        self._transforms: list[int] = []
        self.names = self._chain.names
        self.is_fetching = False
        self.was_quick = False  # the last one that was looked into
        self._slow_share = _UNKNOWN_SHARE  # of those that were looked into of late
        self._num_left = 0  # to be passed over
        self.collated_at: tuple[int, int] | None = None  # and on the thread's processor time
        self.keep: Keep | None = None
        fetcher.collate_fn = self.collate
        fetcher.stoker_probe = self

    def take_out(self) -> None:
        """Leave the data set as it was; the next fetcher's probe looks at it anew."""
        self._chain.take_out()

    def passes_over(self) -> bool:
        """Whether the fetch that begins is not looked into: enough like it were."""
        if not self._num_left:
            return False
        self._num_left -= 1
        self._number += 1
        return True

    def begin(self) -> None:
        if not self._keep_in:
            self._chain.put_in()
        self._chain.watch.reset()
        self._collate_ns = self._collate_cpu_ns = 0
        self._transforms = []
        self._num_samples = UNKNOWN
        self.collated_at = None
        self.is_fetching = True

    def collate(self, samples: Any) -> Any:
        if not self.is_fetching:
            return self._collate(samples)
        # transforms that the collate function calls are its own time, not the fetch's
        self._transforms = self._chain.watch.totals[:]
        if self._auto_collation and hasattr(samples, "__len__"):
            self._num_samples = len(samples)
        begin, begin_cpu = time.perf_counter_ns(), time.thread_time_ns()
        batch = self._collate(samples)
        end, end_cpu = self.collated_at = time.perf_counter_ns(), time.thread_time_ns()
        self._collate_ns, self._collate_cpu_ns = end - begin, end_cpu - begin_cpu
        return batch

    def end(self) -> None:
        self.is_fetching = False
        if not self._keep_in:
            self._chain.take_out()

    def record(self, begin: int, end: int, cpu: int, queued: int, index: Any, data: Any) -> None:
        num_samples = self._num_samples
        if num_samples == UNKNOWN and isinstance(index, _SEQUENCES):
            num_samples = len(index)  # without automatic batching, a sampler may still give lists
        collate, collate_cpu = self._collate_ns, self._collate_cpu_ns
        fetch, fetch_cpu = end - begin - collate, cpu - collate_cpu
        num_bytes = num_bytes_of(data)
        figures = (begin, end, fetch, fetch_cpu, collate, collate_cpu, queued, num_samples, num_bytes)
        if self.keep is not None:
            self.keep(self._number, figures, self._transforms)
        self._number += 1
        self._slow_share += ((end - begin >= _QUICK_NS) - self._slow_share) / _MEMORY
        if self._slow_share <= _FEW and not self._keep_in:
            self._num_left = _until_next(self._number)


def _until_next(number: int) -> int:
    """How many fetches lie before the next that is looked into, from this one on: up to 12."""
    place = number
    while (place * _GOLDEN & 0xFFFFFFFF) * _EVERY >= 1 << 32:
        place += 1
    return place - number


def num_bytes_of(data: Any, *, depth: int = 0) -> int:
    """Bytes of the tensors, arrays and strings in a batch; of long lists, from their first 16 items."""
    if depth < 4 and isinstance(data, _SEQUENCES):
        sizes = [num_bytes_of(value, depth=depth + 1) for value in data[:16]]
        return sum(sizes) if len(data) <= 16 else sum(sizes) * len(data) // 16
    size = getattr(data, "nbytes", None)
    if isinstance(size, int):
        return size
    if depth >= 4:
        return 0
    if isinstance(data, dict):
        return sum([num_bytes_of(value, depth=depth + 1) for value in data.values()])
    if isinstance(data, str | bytes):
        return len(data)
    if isinstance(data, int | float):
        return 8
    return num_bytes_of(getattr(data, "__dict__", 0), depth=depth + 1)  # a batch of the user's own kind


_observer: Observer | None = None  # of this process


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    global _observer  # noqa: PLW0603 - the patched functions are torch's: there is nobody to hand it to
    before, _observer = _observer, observer
    try:
        yield
    finally:
        _observer = before


@contextmanager
def patched_fetchers() -> Iterator[None]:
    """Fetchers report to this process's observer; in a forked worker they already do."""
    from torch.utils.data._utils import fetch

    kinds: list[Any] = [fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher]  # noqa: SLF001
    base: Any = fetch._BaseDatasetFetcher  # noqa: SLF001
    if getattr(base.__init__, "is_stokers", False):
        yield
        return
    originals = [(kind, "fetch", kind.fetch) for kind in kinds]
    originals.append((base, "__init__", base.__init__))
    for kind in kinds:
        kind.fetch = _watched_fetch(kind.fetch)
    base.__init__ = _watched_init(base.__init__)
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _watched_init(original: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        if _observer is not None:
            with suppress(Exception):  # a fetcher that can't be observed still fetches
                _observer.attach(self)

    __init__.is_stokers = True  # type: ignore[attr-defined]
    return __init__


def _watched_fetch(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def fetch(self: Any, possibly_batched_index: Any) -> Any:
        probe: Probe | None = getattr(self, "stoker_probe", None)
        if probe is None or probe.is_fetching:
            return original(self, possibly_batched_index)
        if probe.passes_over():
            return original(self, possibly_batched_index)
        probe.begin()
        waited = UNTOLD if probe.was_quick else core_queue.waited_ns()
        begin, begin_cpu = time.perf_counter_ns(), time.thread_time_ns()
        try:
            data = original(self, possibly_batched_index)
            # collating comes last: its end is the fetch's
            end, end_cpu = probe.collated_at or (time.perf_counter_ns(), time.thread_time_ns())
        finally:
            probe.end()
        is_quick = end - begin < _QUICK_NS
        queued = 0 if is_quick and probe.was_quick else core_queue.since(waited)
        with suppress(Exception):  # a batch that can't be put down is still the user's batch
            probe.record(begin, end, end_cpu - begin_cpu, queued, possibly_batched_index, data)
        probe.was_quick = is_quick and queued != UNTOLD
        return data

    return fetch
