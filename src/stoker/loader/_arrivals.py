"""Shards of a remote store: mapped as they arrive, and fetched ahead in the order in which they are used."""

import threading
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import StoreError
from stoker.loader._course import Course
from stoker.loader._fork_safe import ForkSafe
from stoker.loader._order import Order, Shuffled, Weighted
from stoker.store import Store
from stoker.store._stacked import StackedColumn
from stoker.store.remote import RemoteShards

_NUM_THREADS = 4  # fetch at a time: an object store gives each connection a share
_LOOK_AHEAD = 65536  # samples
_CHUNK = 4096  # samples of the order looked at together
_CALLER = 3  # the line that made the loader


class Arrivals(ForkSafe):
    """Maps shards into the given columns, each once, when it is asked for."""

    def __init__(self, shards: RemoteShards, columns: Sequence[StackedColumn], *, populate: bool) -> None:
        super().__init__()
        self._populate = populate  # its pages are in memory, having just been written: map them in one go
        self._shards = shards
        self._columns = columns
        self._uses = shards.new_uses()
        self._is_here = np.zeros(len(shards), bool)

    def has(self, shard: NDArray[Any]) -> bool:
        """Whether all shards that these samples lie in are mapped."""
        return bool(self._is_here[shard].all())

    def wait_for(self, shard: NDArray[Any], stop: threading.Event | None) -> None:
        """Have all shards that these samples lie in."""
        if not self.has(shard):
            for number in np.unique(shard).tolist():
                self.bring(number, stop)

    def bring(self, number: int, stop: threading.Event | None) -> None:
        """Have one shard."""
        if self._is_here[number]:
            return
        with self._shards.brought(number, stop), self.lock:
            if not self._is_here[number]:  # mapped once: others may read it from then on
                self._uses.hold(self._shards.entries[number].digest)
                for column in self._columns:
                    column.map(number)
                    if self._populate and not self._shards.is_part(number):  # holes would take memory
                        column.populate(number, huge=True)
                self._is_here[number] = True


class FetchPlan:
    """Which shards to ask for next, given how far reading is: pure.

    ``in_order`` gives parts of the epoch: how many samples, and their shards in the order of first use. It
    is walked until ``max_bytes`` of shards, or ``max_samples``, lie between reading and it.
    """

    def __init__(
        self,
        in_order: Iterator[tuple[int, list[int]]],
        sizes: Sequence[int],
        *,
        max_bytes: int,
        max_samples: int = _LOOK_AHEAD,
    ) -> None:
        self._in_order = in_order
        self._sizes = sizes
        self._max_bytes = max_bytes
        self._max_samples = max_samples
        self._num_read = 0
        self._num_walked = 0
        self._parts: deque[tuple[int, list[int]]] = deque()  # where each ends, and its shards
        self._between: Counter[int] = Counter()  # how many of these parts use a shard

    def advance(self, num_samples: int) -> list[int]:
        """The shards to ask for after so many more samples were read."""
        self._num_read += num_samples
        while self._parts and self._parts[0][0] <= self._num_read:
            self._between -= Counter(self._parts.popleft()[1])
        wanted = []
        while self._has_room():
            part = next(self._in_order, None)
            if part is None:
                break
            self._num_walked += part[0]
            self._parts.append((self._num_walked, part[1]))
            wanted += [number for number in part[1] if not self._between[number]]
            self._between.update(part[1])
        return wanted

    def _has_room(self) -> bool:
        if not self._parts:
            return True
        if self._num_walked - self._num_read >= self._max_samples:
            return False
        return sum(self._sizes[number] for number in self._between) < self._max_bytes


class FetchAhead:
    """Threads that fetch what the plan asks for, few at a time; errors are left to those who need a shard."""

    def __init__(self, plan: FetchPlan, bring: Callable[[int, threading.Event], None]) -> None:
        self._plan = plan
        self._bring = bring
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._wanted: deque[int] = deque()
        self._num_running = 0
        self._pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="stoker-fetch")
        weakref.finalize(self, self.stop.set)

    def advance(self, num_samples: int) -> None:
        """So many more samples were read, or are just being read."""
        with self._lock:
            self._wanted.extend(self._plan.advance(num_samples))
        self._fill()

    def close(self) -> None:
        """Give up what is under way, and wait until it has ended."""
        self.stop.set()
        with self._lock:
            self._wanted.clear()
        self._pool.shutdown(cancel_futures=True)

    def _fill(self) -> None:
        # few are handed to the pool: whatever is, is still run when the interpreter ends
        while (number := self._take()) is not None:
            try:
                self._pool.submit(_fetch, self._bring, number, self.stop, weakref.ref(self))
            except RuntimeError:  # it was shut down meanwhile
                return

    def _take(self) -> int | None:
        with self._lock:
            if not self._wanted or self._num_running == _NUM_THREADS or self.stop.is_set():
                return None
            self._num_running += 1
            return self._wanted.popleft()

    def finished(self) -> None:
        """One fetch ended, one way or the other."""
        with self._lock:
            self._num_running -= 1
        self._fill()


def ahead_of(course: Course, store: Store, bring: Callable[[int, threading.Event], None]) -> FetchAhead:
    """Fetching ahead for the course's remaining steps, begun."""
    shards = store.shards
    assert isinstance(shards, RemoteShards)
    whole = shards.fits(range(len(shards)))
    plan = FetchPlan(
        _in_order(course, None if store.is_whole else store.numbers, store.index.shard),
        [shards.room_bytes(number) for number in range(len(shards))],
        max_bytes=shards.max_bytes if whole else shards.max_bytes // 2,
    )
    ahead = FetchAhead(plan, bring)
    ahead.advance(0)
    return ahead


def warn_of_thrashing(store: Store, order: Order) -> None:
    """Say so if each shard would be fetched again and again in every epoch."""
    shards = store.shards
    if not isinstance(shards, RemoteShards) or not isinstance(order, Shuffled | Weighted):
        return
    numbers = store.used_shards.tolist()
    if shards.fits(numbers):
        return
    entries = [shards.entries[number] for number in numbers]
    num_bytes = sum(entry.num_bytes for entry in entries)
    rows = max(entry.num_samples for entry in entries)
    pool = max(1, shards.max_bytes // 4 // max(entry.num_bytes for entry in entries))
    warnings.warn(
        f"the cache may hold {shards.max_bytes} bytes of the {num_bytes} that {store.location} has: shuffled "
        "as a whole, every shard is fetched many times in an epoch; give more by cache_bytes=, or take "
        f'Loader(..., shuffle="quasi", run_length={rows}, pool={pool})',
        stacklevel=_CALLER,
    )


def _in_order(
    course: Course, numbers: NDArray[np.int64] | None, shard_of: NDArray[np.uint32]
) -> Iterator[tuple[int, list[int]]]:
    num_steps = course.plan.num_steps(course.consumed)
    size = max(1, _CHUNK // course.plan.batch_size)
    for first in range(0, num_steps, size):
        steps = range(first, min(first + size, num_steps))
        positions, _ = course.plan.positions_of(course.consumed, steps)
        samples = course.order.at(course.epoch, positions)
        shards = shard_of[samples if numbers is None else numbers[samples]]
        distinct, place = np.unique(shards, return_index=True)
        yield len(samples), distinct[np.argsort(place)].tolist()


def _fetch(
    bring: Callable[[int, threading.Event], None],
    number: int,
    stop: threading.Event,
    owner: "weakref.ref[FetchAhead]",  # weak, so that a forgotten loader's threads end
) -> None:
    try:
        if not stop.is_set():
            bring(number, stop)
    except StoreError:  # whoever needs it tries again and tells
        pass
    finally:
        ahead = owner()
        if ahead is not None:
            ahead.finished()
