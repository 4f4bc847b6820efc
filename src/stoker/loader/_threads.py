"""Batches of data that can be gathered: read by threads into slots, cut out of them as tensors."""

import functools
import itertools
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from stoker.config import available_memory_bytes
from stoker.loader._blocks import BlockReader
from stoker.loader._collate import Ragged, collate_rest
from stoker.loader._course import INDEX, Course, Fetched
from stoker.loader._device import Transfer
from stoker.loader._readers import Reader
from stoker.loader._slots import Slot, Slots

_BLOCK_BYTES = 8 << 20  # of 1, 2, 4 and 8 MiB the fastest for 16 kB samples; larger ones were not tried
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
        ragged: Ragged,
        num_threads: int,
        memory_bytes: int | None,
    ) -> None:
        self._reader = reader
        self._ragged: Ragged = ragged
        self._num_threads = num_threads
        batch_bytes = batch_size * _sample_bytes(reader)
        self._steps_per_block = max(1, min(_BLOCK_BYTES // batch_bytes, _MAX_STEPS_PER_BLOCK))
        self._num_ahead = _blocks_ahead(batch_bytes * self._steps_per_block, num_threads, memory_bytes)
        rows = batch_size * self._steps_per_block
        # not a method of ours: a cycle would keep a forgotten loader's threads until a collection
        self._slots = Slots(functools.partial(_allocate, transfer, reader.fixed, rows))
        self._pool: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        self._blocks: BlockReader | None = None
        self._warmer: ThreadPoolExecutor | None = None
        self._warm = False

    def populate(self) -> None:
        """Bring all data into memory and wait for it."""
        with ThreadPoolExecutor(self._num_threads) as pool:
            list(pool.map(self._reader.populate, range(self._reader.num_parts)))
        self._warm = True

    def batches(self, course: Course, *, skip_bad: bool) -> Iterator[Fetched]:
        """The batches of the course's remaining steps, in order.

        Raises:
            BadSampleError: a sample cannot be read.
        """
        import torch

        self._stop()
        self._warm_up()
        self._blocks = BlockReader(
            self._reader,
            course,
            self._slots,
            self._threads(),
            steps_per_block=self._steps_per_block,
            num_ahead=self._num_ahead,
            skip_bad=skip_bad,
        )
        for block in self._blocks:
            whole = {name: torch.from_numpy(array) for name, array in block.slot.items()}
            bad = block.bad
            for step, rest, (start, stop) in zip(
                block.steps, block.rest, itertools.pairwise(block.cuts), strict=True
            ):
                tensors: dict[str, Any] = {name: tensor[start:stop] for name, tensor in whole.items()}
                if rest:
                    tensors |= collate_rest(rest, self._ragged)
                yield Fetched(step, tensors, bad)
                bad = []
                del tensors

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
            self._blocks.close()
        self._blocks = None

    def _warm_up(self) -> None:
        """Once, beside the first epoch, read what fits into memory from end to end.

        Else that epoch would fault in page by page, at random.
        """
        if not self._warm and self._reader.num_bytes < available_memory_bytes() // 2:
            self._warmer = ThreadPoolExecutor(1, thread_name_prefix="stoker-warmer")
            for part in range(self._reader.num_parts):
                self._warmer.submit(self._reader.populate, part)
        self._warm = True

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._pool = ThreadPoolExecutor(self._num_threads, thread_name_prefix="stoker-reader")
        return self._pool


def _allocate(
    transfer: Transfer, fixed: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]], rows: int
) -> Slot:
    slot = {name: transfer.buffer((rows, *shape), dtype) for name, (dtype, shape) in fixed.items()}
    slot[INDEX] = transfer.buffer((rows,), np.dtype(np.int64))
    return slot


def _sample_bytes(reader: Reader) -> int:
    return 8 + sum(int(np.prod(shape)) * dtype.itemsize for dtype, shape in reader.fixed.values())


def _blocks_ahead(block_bytes: int, num_threads: int, memory_bytes: int | None) -> int:
    """As many as keep the threads busy, as far as the memory goes; one more is with the user."""
    budget = min(_MAX_BUDGET_BYTES, available_memory_bytes() // 8) if memory_bytes is None else memory_bytes
    return max(1, min(2 * num_threads, budget // block_bytes - 1))
