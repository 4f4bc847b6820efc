"""Rows of a mapped field copied into a batch: by ``numpy.take``, or by a loop that goes around the caches.

Once the buffers that take turns outgrow the caches, what is written pushes out what was written before, and
is itself pushed out before it is used. By ``benchmarks/copying.py``, stores that go around the caches are
then up to 1.4 times as fast, and whoever reads the batch next finds it where it would have been anyway. The
loop needs numba.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stoker.config import call_kernel, can_compile
from stoker.store._samples import Array

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGE_ROW_BYTES = 64 << 10  # with rows of 16 kB NumPy is as fast
_CACHE_BYTES = 32 << 20  # of buffers in turn, beyond which numpy.take lost a fifth of its speed here
_WORTH_BYTES = 1 << 30  # to be read before numba's half a second comes back


class RowCopier:
    """Copies rows of one size into the buffers of one loader; from several threads at once."""

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes = row_bytes
        self._num_bytes = 0  # that were asked for
        self._aligned_bytes = 1
        self._loop: Callable[..., None] | None = None

    def expect(self, num_bytes: int, in_turn_bytes: int) -> None:
        """Be told that so many bytes will be read into buffers of so many in all."""
        self._num_bytes += num_bytes
        outgrows = self._row_bytes >= _LARGE_ROW_BYTES and in_turn_bytes > _CACHE_BYTES
        if self._loop is None and outgrows and self._num_bytes >= _WORTH_BYTES and can_compile():
            from stoker.loader._copy_kernel import ALIGNED_BYTES, PIECE_BYTES, copy_rows

            self._aligned_bytes = ALIGNED_BYTES
            if self._row_bytes % PIECE_BYTES == 0:
                self._loop = copy_rows

    def copy(self, source: Array, rows: NDArray[np.int64], out: Array) -> None:
        """Fill the rows of `out`, which is contiguous; nobody looks whether `source` has those rows."""
        if self._loop is None or out.ctypes.data % self._aligned_bytes:
            np.take(source, rows, axis=0, out=out, mode="clip")  # "raise" would copy twice
            return
        to, first, row_bytes = map(np.uintp, (out.ctypes.data, source.ctypes.data, self._row_bytes))
        call_kernel(self._loop, to, first, rows, row_bytes)
