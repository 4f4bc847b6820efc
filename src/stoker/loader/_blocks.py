"""Reading ahead: threads fill blocks of whole batches, in order, a bounded number at a time.

A block is several batches gathered in one go, because at memory speed a batch of small samples takes
less time than handing it from thread to thread. For the same reason a consumer that finds its next
block unfinished does not go to sleep: it reads a later one itself, as long as one is not begun.
"""

import contextlib
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import BadSampleError, StoreUnreachableError, StoreWriteError
from stoker.loader._course import INDEX, Course
from stoker.loader._readers import Reader, bad_sample
from stoker.loader._slots import Slot, Slots

_ORDER_SAMPLES = 16384
_NO_SAMPLES_FAULT = (StoreUnreachableError, StoreWriteError)  # never skipped: the network, the cache's room


@dataclass
class Block:
    """Some batches of one rank, read: rows of the slot, cut at ``cuts``, one more than batches."""

    slot: Slot
    cuts: list[int]
    steps: range  # the step that each batch is
    rest: list[dict[str, Any]]  # each batch's ragged fields and text, collated, if there are any
    bad: list[BadSampleError] = field(default_factory=list)


@dataclass(frozen=True)
class _Work:
    """A block to be read."""

    steps: range
    cuts: list[int]
    numbers: NDArray[np.int64]
    places: Any  # of these samples, as the reader has them


class _Pending:
    """A block that is read by whoever claims it first: one of the threads, or the consumer.

    Two bare locks: a future and its way through a pool take three times as long, measured 9 µs against 3.
    """

    __slots__ = ("_block", "_claimed", "_error", "_unfinished", "work")

    def __init__(self, work: _Work) -> None:
        self.work = work
        self._block: Block | None = None
        self._error: BaseException | None = None
        self._claimed = threading.Lock()
        self._unfinished = threading.Lock()
        self._unfinished.acquire()

    def claim(self) -> bool:
        """Whether nobody had claimed it; the caller must then `fill` it, or see to it that nobody waits."""
        return self._claimed.acquire(blocking=False)

    def fill(self, read: Callable[[_Work], Block]) -> None:
        """Read it; what goes wrong is raised where the block is asked for, Ctrl-C here too."""
        try:
            self._block = read(self.work)
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._unfinished.release()

    def is_ready(self) -> bool:
        return not self._unfinished.locked()

    def result(self) -> Block:
        """The block, which somebody has claimed; waits for it."""
        with self._unfinished:
            if self._error is not None:
                raise self._error
            assert self._block is not None, "read without an error"
            return self._block


class BlockReader:
    """Gives an epoch's blocks in order while threads read the next ones.

    ``steps_per_block`` batches make a block; the first blocks are smaller, so that the first batch
    is there at once.
    """

    def __init__(
        self,
        reader: Reader,
        course: Course,
        slots: Slots,
        pool: ThreadPoolExecutor,
        *,
        collate: Callable[[dict[str, Any]], dict[str, Any]],
        steps_per_block: int,
        num_ahead: int,
        num_threads: int,
        skip_bad: bool,
    ) -> None:
        self._reader = reader
        self._course = course
        self._slots = slots
        self._pool = pool
        self._collate = collate
        self._num_ahead = num_ahead
        self._num_threads = num_threads
        self._skip_bad = skip_bad
        self._pending: deque[_Pending] = deque()  # in order, until the consumer has them
        self._unread: deque[_Pending] = deque()  # those that threads shall look at
        self._num_reading = 0  # threads that do
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._work = _work(reader, course, steps_per_block)

    def __iter__(self) -> Generator[Block]:
        try:
            self._read_ahead()
            while self._pending:
                if self._reader.at_memory_speed:
                    self._help()
                block = self._pending[0].result()
                self._pending.popleft()
                self._read_ahead()
                try:
                    yield block
                finally:
                    self._slots.give_back(block.slot)
                    del block
        finally:
            self.close()

    def close(self) -> None:
        """Wait for what is being read and give every slot back; in a forked child nobody reads."""
        if self._pid != os.getpid():
            return
        self._work = iter(())
        with self._lock:
            self._unread.clear()
        while self._pending:
            pending = self._pending.popleft()
            if not pending.claim():
                with contextlib.suppress(Exception):
                    self._slots.give_back(pending.result().slot)

    def _read_ahead(self) -> None:
        while len(self._pending) < self._num_ahead:
            work = next(self._work, None)
            if work is None:
                return
            pending = _Pending(work)
            self._pending.append(pending)
            with self._lock:
                self._unread.append(pending)
                is_thread_missing = self._num_reading < self._num_threads
                self._num_reading += is_thread_missing
            if is_thread_missing:
                self._pool.submit(self._read_on)

    def _read_on(self) -> None:
        """In a thread: read blocks as long as there are any; a thread that is given each anew costs more."""
        while True:
            with self._lock:
                if not self._unread:
                    self._num_reading -= 1
                    return
                pending = self._unread.popleft()
            if pending.claim():
                pending.fill(self._read)

    def _help(self) -> None:
        """Until the next block is ready, read in this thread what no other has begun."""
        for pending in self._pending:
            if self._pending[0].is_ready():
                return
            if pending.claim():
                pending.fill(self._read)

    def _read(self, work: _Work) -> Block:
        block = Block(self._slots.take(), work.cuts, work.steps, [])
        try:
            try:
                self._gather(block, work.numbers, work.places)
            except _NO_SAMPLES_FAULT:
                raise
            except Exception as error:  # noqa: BLE001 - one bad sample must be found and named
                self._gather_singly(block, work.numbers, error)
        except BaseException:
            self._slots.give_back(block.slot)
            raise
        return block

    def _gather(self, block: Block, numbers: NDArray[np.int64], places: Any) -> None:
        course = self._course
        fixed = {name: block.slot[name] for name in self._reader.fixed}
        self._reader.read_fixed(places, fixed, seed=course.seed, epoch=course.epoch)
        block.slot[INDEX][: len(numbers)] = numbers
        if self._reader.has_rest:
            cuts = itertools.pairwise(block.cuts)
            read_rest, collate = self._reader.read_rest, self._collate
            block.rest = [collate(read_rest(places[start:stop])) for start, stop in cuts]

    def _gather_singly(self, block: Block, numbers: NDArray[np.int64], cause: Exception) -> None:
        """Find the samples that cannot be read; raise for the first, or leave them all out."""
        course, reader = self._course, self._reader
        good = np.ones(len(numbers), bool)
        for position, number in enumerate(numbers.tolist()):
            row = {name: block.slot[name][:1] for name in reader.fixed}
            try:
                place = reader.locate(numbers[position : position + 1])
                reader.read_fixed(place, row, seed=course.seed, epoch=course.epoch)
                reader.read_rest(place)
            except _NO_SAMPLES_FAULT:
                raise
            except Exception as error:
                found = bad_sample(reader, number, error)
                if not self._skip_bad:
                    raise found from error
                block.bad.append(found)
                good[position] = False
        if not block.bad:  # it was not a sample that failed
            raise cause
        kept = np.concatenate([[0], np.cumsum(good)])
        block.cuts = kept[block.cuts].tolist()
        self._gather(block, numbers[good], reader.locate(numbers[good]))


def _work(reader: Reader, course: Course, steps_per_block: int) -> Iterator[_Work]:
    """The blocks of the course's remaining steps.

    Order and places are computed for many blocks at a time: a call costs more than a thousand numbers.
    """
    spans = _spans(course.plan.num_steps(course.consumed), steps_per_block)
    group_size = max(1, _ORDER_SAMPLES // (steps_per_block * course.plan.batch_size))
    while group := list(itertools.islice(spans, group_size)):
        first = group[0].start
        positions, cuts = course.plan.positions_of(course.consumed, range(first, group[-1].stop))
        numbers = course.order.at(course.epoch, positions)
        places = reader.locate(numbers)
        for span in group:
            here = cuts[span.start - first : span.stop - first + 1]
            inside = slice(here[0], here[-1])
            yield _Work(span, [cut - here[0] for cut in here], numbers[inside], places[inside])


def _spans(num_steps: int, steps_per_block: int) -> Iterator[range]:
    """Steps cut into blocks: one step, then two, four, … up to ``steps_per_block``."""
    start, size = 0, 1
    while start < num_steps:
        stop = min(start + size, num_steps)
        yield range(start, stop)
        start, size = stop, min(2 * size, steps_per_block)
