"""Which samples a Dask task packs: pure, told what tasks cost, asked for the next range.

Samples are cut into *cells*, each as many as fill a shard: the shards that packing in one process gives. A
cell that takes long is packed in pieces, so that all workers have work until the end and a worker that dies
costs little; its pieces are then joined into the cell's shard. Joining reads and writes a shard once more,
which takes some tenths of a second: cells that are packed in a few seconds stay whole. Cells that are packed
in a moment go together: between two tasks a worker is idle for some 10 ms.
"""

import itertools
import math
from collections import deque
from dataclasses import dataclass

_LONGEST_S = 10.0  # a worker that dies loses at most about this much work for each of its threads
_WHOLE_AT_END_S = 2.0  # where there are fewer cells left than threads, shorter ones stay whole
_SHORTEST_S = 0.5
_TOGETHER_S = 1.0  # of quick cells
_TRUSTED = 3  # ranges whose cost is known, before cells go together: the first few samples tell little
_MAX_CELL = 1 << 18  # samples: what a task is told and tells stays below some megabytes
_PIECES_LEFT = 4  # for each thread towards the end: all finish together


@dataclass(frozen=True)
class Range:
    """Positions ``start:stop`` of the work: one of ``num_pieces`` of a cell, or whole cells of one size."""

    cell: int  # the first
    num_pieces: int
    start: int
    stop: int
    cell_size: int  # after so many positions a shard ends


class Ranges:
    """Hands out ranges from first to last; every position is in exactly one."""

    def __init__(self, num_samples: int, *, shard_bytes: int, batch_size: int | None) -> None:
        self._num_samples = num_samples
        self._shard_bytes = shard_bytes
        self._batch_size = batch_size
        self._next = 0
        self._num_cells = 0
        self._pieces: deque[Range] = deque()
        self._num_packed = self._num_bytes = 0
        self._seconds_per_sample: float | None = None
        self._num_learned = 0

    def learn(self, *, num_packed: int, num_bytes: int, num_samples: int, seconds: float) -> None:
        """Take in what a range cost; samples that were packed before count, but not as packed."""
        self._num_packed += num_packed
        self._num_bytes += num_bytes
        self._num_learned += 1
        if num_samples:
            latest, before = seconds / num_samples, self._seconds_per_sample
            self._seconds_per_sample = latest if before is None else (before + latest) / 2

    def take(self, num_threads: int) -> Range | None:
        """The next range for a cluster of so many threads, or None if there is no more."""
        if not self._pieces and self._next < self._num_samples:
            self._open_cell(max(1, num_threads))
        return self._pieces.popleft() if self._pieces else None

    def _open_cell(self, num_threads: int) -> None:
        start = self._next
        size = min(self._cell_size(), self._num_samples - start)
        num_cells = self._num_together(size, num_threads)
        num_pieces = math.ceil(size / self._piece_size(size, num_threads)) if num_cells == 1 else 1
        length = min(num_cells * size, self._num_samples - start)
        cuts = [start + length * piece // num_pieces for piece in range(num_pieces + 1)]
        self._pieces.extend(
            Range(self._num_cells, num_pieces, *cut, cell_size=size) for cut in itertools.pairwise(cuts)
        )
        self._next += length
        self._num_cells += num_cells

    def _num_together(self, cell_size: int, num_threads: int) -> int:
        """How many cells one task packs: several if they are quick, but all threads finish together."""
        if self._batch_size is not None or not self._seconds_per_sample or self._num_learned < _TRUSTED:
            return 1
        left_s = (self._num_samples - self._next) * self._seconds_per_sample
        fitting_s = min(_TOGETHER_S, left_s / (_PIECES_LEFT * num_threads))
        return max(1, min(int(fitting_s / (cell_size * self._seconds_per_sample)), _MAX_CELL // cell_size))

    def _cell_size(self) -> int:
        """As many samples as first reach the size of a shard; exact where all have one size."""
        if self._num_bytes == 0:
            return _MAX_CELL
        fitting = -(-self._shard_bytes * self._num_packed // self._num_bytes)
        return max(1, min(fitting, _MAX_CELL))

    def _piece_size(self, cell_size: int, num_threads: int) -> int:
        if self._batch_size is not None:
            return min(self._batch_size, cell_size)
        if not self._seconds_per_sample:
            return cell_size
        left_s = (self._num_samples - self._next) * self._seconds_per_sample
        at_end = self._num_samples - self._next < cell_size * num_threads
        if cell_size * self._seconds_per_sample < (_WHOLE_AT_END_S if at_end else _LONGEST_S):
            return cell_size
        fitting_s = min(_LONGEST_S, max(_SHORTEST_S, left_s / (_PIECES_LEFT * num_threads)))
        return max(1, min(cell_size, int(fitting_s / self._seconds_per_sample)))
