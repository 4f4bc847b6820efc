"""Batches of data that can be gathered: read by threads into slots, cut out of them as tensors."""

import functools
import itertools
import os
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from stoker.config import available_memory_bytes
from stoker.loader._blocks import BlockReader
from stoker.loader._collate import Collation, tensors_of
from stoker.loader._course import INDEX, Course, Fetched
from stoker.loader._device import Transfer
from stoker.loader._readers import Ahead, Reader, fits_in_memory
from stoker.loader._slots import Buffers, Slot, Slots

_BLOCK_BYTES = 4 << 20  # of 2, 4 and 8 MiB none was clearly faster for samples of 16 kB
_MAX_STEPS_PER_BLOCK = 64
_MAX_BUDGET_BYTES = 1 << 30


class ThreadFeed:
    """Reads ahead in threads of this process; after a fork, in new ones."""

    def __init__(
        self,
        reader: Reader,
        transfer: Transfer,
        *,
        batch_size: int,
        collation: Collation,
        num_threads: int,
        memory_bytes: int | None,
    ) -> None:
        self._reader = reader
        self._collation = collation
        # at memory speed the consumer reads as well, whenever it would have to wait
        self.consumer_reads = reader.at_memory_speed
        self._num_threads = max(1, num_threads - 1) if self.consumer_reads else num_threads
        batch_bytes = batch_size * _sample_bytes(reader)
        self.steps_per_block = max(1, min(_BLOCK_BYTES // batch_bytes, _MAX_STEPS_PER_BLOCK))
        self._batch_bytes = batch_bytes
        self.block_bytes = batch_bytes * self.steps_per_block
        self._num_ahead = _blocks_ahead(self.block_bytes, num_threads, memory_bytes)
        rows = batch_size * self.steps_per_block
        # not a method of ours: a cycle would keep a forgotten loader's threads until a collection
        self._allocate = functools.partial(_allocate, transfer, reader.fixed, rows)
        self._slots = Slots(self._allocate)
        self._buffers = Buffers()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        self._blocks: BlockReader | None = None
        self._ahead: Ahead | None = None
        self._warmer: ThreadPoolExecutor | None = None
        self._warm = False

    def populate(self, parts: Iterable[int]) -> None:
        """Bring these parts of the data into memory and wait for them; no more is read ahead of use."""
        with ThreadPoolExecutor(self._num_threads) as pool:
            list(pool.map(self._reader.populate, parts))
        self._warm = True

    def batches(self, course: Course, *, skip_bad: bool) -> Generator[Fetched]:
        """The batches of the course's remaining steps, in order.

        Raises:
            BadSampleError: a sample cannot be read.
        """
        import torch

        self._stop()
        self._reader.check()
        epoch_bytes = course.plan.num_steps(course.consumed) * self._batch_bytes
        self._reader.expect(epoch_bytes, (self._num_ahead + 1) * self.block_bytes)
        self._warm_up()
        ahead = self._ahead = self._reader.ahead(course)
        pool = self._threads()
        self._blocks = BlockReader(
            self._reader,
            course,
            self._slots,
            pool,
            collate=functools.partial(self._collation, room=self._buffers.array),
            steps_per_block=self.steps_per_block,
            num_ahead=self._num_ahead,
            num_threads=self._num_threads,
            skip_bad=skip_bad,
        )
        from_numpy = torch.from_numpy
        blocks = iter(self._blocks)
        try:
            for block in blocks:
                for place, (start, stop) in enumerate(itertools.pairwise(block.cuts)):
                    # a tensor of a slice is made in a third of the time of a slice of a tensor
                    tensors = {name: from_numpy(array[start:stop]) for name, array in block.slot.items()}
                    if block.rest:
                        tensors |= tensors_of(block.rest[place])
                        block.rest[place] = {}  # ours to give away: its memory is free when the user is done
                    bad = () if place else block.bad
                    fetched = Fetched(block.steps[place], stop - start, tensors, tensors[INDEX], bad)
                    del tensors
                    yield fetched
                    del fetched
        finally:
            if ahead is not None and self._pid == os.getpid():  # first: a block may wait for what it fetches
                ahead.close()
            blocks.close()

    def close(self) -> None:
        """Stop reading and let go of the threads."""
        self._stop()
        for pool in (self._pool, self._warmer):
            if pool is not None and self._pid == os.getpid():
                pool.shutdown(cancel_futures=True)
        self._pool = self._warmer = None

    @property
    def num_slots(self) -> int:
        """Buffers in use; constant in a plain loop."""
        return len(self._slots)

    def _stop(self) -> None:
        """End an iteration that was left early; in a forked child its threads are not there."""
        if self._blocks is not None and self._pid == os.getpid():
            if self._ahead is not None:
                self._ahead.close()
            self._blocks.close()
        self._blocks = self._ahead = None

    def _warm_up(self) -> None:
        """Once, beside the first epoch, read what fits into memory from end to end.

        Else that epoch would fault in page by page, at random.
        """
        if not self._warm and fits_in_memory(self._reader.num_bytes):
            self._warmer = ThreadPoolExecutor(1, thread_name_prefix="stoker-warmer")
            for part in range(self._reader.num_parts):
                self._warmer.submit(self._reader.populate, part)
        self._warm = True

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None or self._pid != os.getpid():
            if self._pid != os.getpid():  # a lock of the parent's may have been held during the fork
                self._pid, self._slots, self._buffers = os.getpid(), Slots(self._allocate), Buffers()
            self._pool = ThreadPoolExecutor(self._num_threads, thread_name_prefix="stoker-reader")
        return self._pool


def _allocate(
    transfer: Transfer, fixed: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]], rows: int
) -> Slot:
    slot = {name: transfer.buffer((rows, *shape), dtype) for name, (dtype, shape) in fixed.items()}
    slot[INDEX] = transfer.buffer((rows,), np.dtype(np.int64))
    return slot


def _sample_bytes(reader: Reader) -> int:
    fixed = sum(int(np.prod(shape)) * dtype.itemsize for dtype, shape in reader.fixed.values())
    return 8 + fixed + reader.rest_bytes


def _blocks_ahead(block_bytes: int, num_threads: int, memory_bytes: int | None) -> int:
    """As many as keep the threads busy, as far as the memory goes; one more is with the user."""
    budget = min(_MAX_BUDGET_BYTES, available_memory_bytes() // 8) if memory_bytes is None else memory_bytes
    return max(1, min(2 * num_threads, budget // block_bytes - 1))
