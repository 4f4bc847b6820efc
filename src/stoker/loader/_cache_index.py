"""The mapped index of a cache: words and records that all processes see, the lock, the counters.

Locks belong to an open file, so every process opens the index for itself, a forked one right after the
fork; the kernel lets go of them when it dies. Hits and misses are counted by each process in a pair of
words of its own, which it claims by a lock too: no count is lost, and a hit waits for nobody.
"""

import contextlib
import mmap
import os
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from stoker.loader import _cache_files as layout
from stoker.loader._cache_files import Address, Files

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WRITING = 0  # the byte that a writer locks; those behind it stand for the counters


class Index:
    """Words (by position) and records [N, 4] of a cache."""

    def __init__(self, files: Files, num_records: int) -> None:
        self.files = files
        self._close = weakref.finalize(self, files.close)
        self._map = mmap.mmap(files.index, layout.index_bytes(num_records))
        self.words = memoryview(self._map).cast("Q")
        self.records: NDArray[np.uint64] = np.ndarray(
            (num_records, layout.RECORD_WORDS), np.uint64, self._map, 8 * layout.FIRST_RECORD
        )
        self._counter: int | None = None
        self._mutex = threading.Lock()
        self._counting = threading.Lock()
        _indices.add(self)

    @property
    def address(self) -> Address:
        """Where other processes find the files, as long as this one lives and has them open."""
        return Address(os.getpid(), self.files, self.words[layout.TOKEN])

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No other thread or process is in here."""
        with self._mutex:
            layout.lock(self.files.index, _WRITING, wait=True)
            try:
                yield
            finally:
                layout.unlock(self.files.index, _WRITING)

    def count(self, *, hits: int = 0, misses: int = 0) -> None:
        """Add to this process's counters."""
        with self._counting:
            if self._counter is None:
                self._counter = self._claim_counter()
            self.words[self._counter] += hits
            self.words[self._counter + 1] += misses

    def counts(self) -> tuple[int, int, int]:
        """Hits, misses and evictions of all processes since the files were made."""
        first = layout.FIRST_COUNTER
        counters = self.words[first : first + 2 * layout.NUM_COUNTERS].tolist()
        return sum(counters[::2]), sum(counters[1::2]), self.words[layout.EVICTIONS]

    def claim_check(self, run: int, limit: int) -> bool:
        """Whether this call is one of the first ``limit`` of the run, in whatever process."""
        words = self.words
        if words[layout.CHECKED_BY] == run and words[layout.NUM_CHECKED] >= limit:
            return False
        with self.alone():
            if words[layout.CHECKED_BY] != run:
                words[layout.CHECKED_BY], words[layout.NUM_CHECKED] = run, 0
            words[layout.NUM_CHECKED] += 1
            return words[layout.NUM_CHECKED] <= limit

    def return_check(self, run: int) -> None:
        """As if it had not been claimed."""
        with self.alone():
            if self.words[layout.CHECKED_BY] == run:
                self.words[layout.NUM_CHECKED] -= 1

    def stop(self, run: int) -> bool:
        """Say that nothing more is stored in this run; False if that was said before."""
        with self.alone():
            first, self.words[layout.STOPPED_FOR] = self.words[layout.STOPPED_FOR] != run, run
            return first

    def is_stopped(self, run: int) -> bool:
        """Whether any process of the run said so."""
        return self.words[layout.STOPPED_FOR] == run

    def close(self) -> None:
        """Let go of the files; those without a name are freed when no process has them any more."""
        if not self._close.alive:
            return
        _indices.discard(self)
        self._close()
        self.words.release()
        del self.records
        with contextlib.suppress(BufferError):  # another thread is still reading
            self._map.close()

    def start_in_child(self) -> None:
        """After a fork: locks and counters of its own."""
        self._close.detach()
        self.files = self.files.described_anew()
        self._close = weakref.finalize(self, self.files.close)
        self._counter = None
        self._mutex = threading.Lock()
        self._counting = threading.Lock()

    def _claim_counter(self) -> int:
        """A pair of words that no living process adds to; what dead ones counted stays in it."""
        for pair in range(layout.NUM_COUNTERS - 1):
            if layout.lock(self.files.index, _WRITING + 1 + pair, wait=False):
                return layout.FIRST_COUNTER + 2 * pair
        return layout.FIRST_COUNTER + 2 * (layout.NUM_COUNTERS - 1)  # shared: may miss a few


_indices: "weakref.WeakSet[Index]" = weakref.WeakSet()


def _start_in_child() -> None:
    for index in list(_indices):
        index.start_in_child()


os.register_at_fork(after_in_child=_start_in_child)
