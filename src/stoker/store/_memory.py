"""Memory that can be copied into at full speed.

Large arrays of NumPy's begin 16 bytes behind a page, behind the allocator's own notes. Copying whole
pages there from where pages begin, as in mapped fields, is the worst case of some processors' copy
instruction: ``benchmarks/copying.py`` has it at a seventh of the speed. Rows of whole cache lines never
meet it in memory that begins on one, other rows seldom.
"""

import ctypes
import math
from typing import Any

import numpy as np

from stoker.store._samples import Array

_CACHE_LINE = 64


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Like ``numpy.empty``, from a cache line on."""
    num_bytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(num_bytes + _CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % _CACHE_LINE
    return owner(memory.data[start:], shape, dtype)


def owner(memory: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array over the memory that all slices of it keep alive: its reference count tells of them.

    Slices of a view of another array would keep only that one alive, also through a memoryview.
    """
    block = (ctypes.c_ubyte * memory.nbytes).from_buffer(memory)
    return np.ndarray(shape, dtype, memoryview(block))
