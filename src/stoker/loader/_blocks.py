"""Reading ahead: threads fill blocks of whole batches, in order, a bounded number at a time.

A block is several batches gathered in one go, because at memory speed a batch of small samples takes
less time than handing it from thread to thread.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import BadSampleError
from stoker.loader._course import INDEX, Course
from stoker.loader._readers import Reader, bad_sample
from stoker.loader._slots import Slot, Slots

_ORDER_SAMPLES = 16384


@dataclass
class Block:
    """Some batches of one rank, read: rows of the slot, cut at ``cuts``, one more than batches."""

    slot_number: int
    slot: Slot
    cuts: list[int]
    steps: list[int]  # the step that each batch is
    rest: list[dict[str, Any]]  # each batch's ragged fields and text
    bad: list[BadSampleError] = field(default_factory=list)


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
        steps_per_block: int,
        num_ahead: int,
        skip_bad: bool,
    ) -> None:
        self._reader = reader
        self._course = course
        self._slots = slots
        self._pool = pool
        self._num_ahead = num_ahead
        self._skip_bad = skip_bad
        self._pending: deque[Future[Block]] = deque()
        self._work = _work(course, steps_per_block)

    def __iter__(self) -> Iterator[Block]:
        try:
            self._fill()
            while self._pending:
                block = self._pending.popleft().result()
                self._fill()
                try:
                    yield block
                finally:
                    self._slots.give_back(block.slot_number)
        finally:
            self.close()

    def close(self) -> None:
        """Wait for what is being read and give every slot back."""
        self._work = iter(())
        while self._pending:
            future = self._pending.popleft()
            if not future.cancel() and future.exception() is None:
                self._slots.give_back(future.result().slot_number)

    def _fill(self) -> None:
        while len(self._pending) < self._num_ahead:
            work = next(self._work, None)
            if work is None:
                return
            number, slot = self._slots.take()
            self._pending.append(self._pool.submit(self._read, number, slot, *work))

    def _read(
        self, slot_number: int, slot: Slot, steps: range, cuts: list[int], numbers: NDArray[np.int64]
    ) -> Block:
        block = Block(slot_number, slot, cuts, list(steps), [])
        try:
            self._gather(block, numbers)
        except Exception as error:  # noqa: BLE001 - one bad sample must be found and named
            self._gather_singly(block, numbers, error)
        return block

    def _gather(self, block: Block, numbers: NDArray[np.int64]) -> None:
        course = self._course
        fixed = {name: block.slot[name] for name in self._reader.fixed}
        self._reader.read_fixed(numbers, fixed, seed=course.seed, epoch=course.epoch)
        block.slot[INDEX][: len(numbers)] = numbers
        block.rest = [
            self._reader.read_rest(numbers[start:stop]) for start, stop in itertools.pairwise(block.cuts)
        ]

    def _gather_singly(self, block: Block, numbers: NDArray[np.int64], cause: Exception) -> None:
        """Find the samples that cannot be read; raise for the first, or leave them all out."""
        course = self._course
        good = np.ones(len(numbers), bool)
        for place, number in enumerate(numbers.tolist()):
            single = numbers[place : place + 1]
            row = {name: block.slot[name][:1] for name in self._reader.fixed}
            try:
                self._reader.read_fixed(single, row, seed=course.seed, epoch=course.epoch)
                self._reader.read_rest(single)
            except Exception as error:
                found = bad_sample(self._reader, number, error)
                if not self._skip_bad:
                    raise found from error
                block.bad.append(found)
                good[place] = False
        if not block.bad:  # it was not a sample that failed
            raise cause
        kept = np.concatenate([[0], np.cumsum(good)])
        block.cuts = kept[block.cuts].tolist()
        self._gather(block, numbers[good])


def _work(course: Course, steps_per_block: int) -> Iterator[tuple[range, list[int], NDArray[np.int64]]]:
    """Each block's steps, where its batches begin and end, and its samples.

    The order is computed for many blocks at a time: a call costs more than a thousand numbers.
    """
    spans = _spans(course.plan.num_steps(course.consumed), steps_per_block)
    group_size = max(1, _ORDER_SAMPLES // (steps_per_block * course.plan.batch_size))
    while group := list(itertools.islice(spans, group_size)):
        parts = [[course.plan.positions(course.consumed, step) for step in span] for span in group]
        numbers = course.order.at(course.epoch, np.concatenate(list(itertools.chain(*parts))))
        start = 0
        for span, positions in zip(group, parts, strict=True):
            cuts = [0, *itertools.accumulate(len(part) for part in positions)]
            yield span, cuts, numbers[start : start + cuts[-1]]
            start += cuts[-1]


def _spans(num_steps: int, steps_per_block: int) -> Iterator[range]:
    """Steps cut into blocks: one step, then two, four, … up to ``steps_per_block``."""
    start, size = 0, 1
    while start < num_steps:
        stop = min(start + size, num_steps)
        yield range(start, stop)
        start, size = stop, min(2 * size, steps_per_block)
