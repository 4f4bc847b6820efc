"""Mapping a file without keeping it open.

Python's own ``mmap`` keeps a descriptor for each mapping (until 3.13), so that a store of a
thousand shards would meet the usual limit of 1,024 open files. The mapping here lives as long as
any array over it, and no longer.
"""

import ctypes
import mmap
import os
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

PROT_READ, MAP_SHARED = 1, 1

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

_FAILED = ctypes.c_void_p(-1).value


def map_readonly(descriptor: int, num_bytes: int) -> NDArray[np.uint8]:
    """The first ``num_bytes`` of an open file as a read-only array; the descriptor may be closed.

    The file must be at least that long: touching a page beyond its end kills the process.
    """
    if num_bytes == 0:
        return np.empty(0, np.uint8)
    address = map_call(None, num_bytes, PROT_READ, MAP_SHARED, descriptor, 0)
    block = (ctypes.c_ubyte * num_bytes).from_address(address)
    # not at exit: another thread may still read while the interpreter winds down
    weakref.finalize(block, libc.munmap, address, num_bytes).atexit = False
    content: NDArray[np.uint8] = np.frombuffer(memoryview(block), np.uint8)
    content.flags.writeable = False
    return content


def expect_random_access(array: NDArray[Any]) -> None:
    """Have the system read no more of a mapped array than what is touched, instead of 128 kB around it."""
    start = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    libc.madvise(start, array.ctypes.data + array.nbytes - start, mmap.MADV_RANDOM)


def map_call(
    address: int | None, num_bytes: int, protection: int, flags: int, descriptor: int, offset: int
) -> int:
    """The system's mmap; gives the address, or raises OSError."""
    found: int = libc.mmap(address, num_bytes, protection, flags, descriptor, offset)
    if found == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found
