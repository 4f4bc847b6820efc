"""Mapping a file without keeping it open.

Python's own ``mmap`` keeps a descriptor for each mapping (until 3.13), so that a store of a
thousand shards would meet the usual limit of 1,024 open files. The mapping here lives as long as
any array over it, and no longer.
"""

import ctypes
import os
import weakref

import numpy as np
from numpy.typing import NDArray

_PROT_READ, _MAP_SHARED = 1, 1
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def map_readonly(descriptor: int, num_bytes: int) -> NDArray[np.uint8]:
    """The first ``num_bytes`` of an open file as a read-only array; the descriptor may be closed.

    The file must be at least that long: touching a page beyond its end kills the process.
    """
    if num_bytes == 0:
        return np.empty(0, np.uint8)
    address = _libc.mmap(None, num_bytes, _PROT_READ, _MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    block = (ctypes.c_ubyte * num_bytes).from_address(address)
    # not at exit: another thread may still read while the interpreter winds down
    weakref.finalize(block, _libc.munmap, address, num_bytes).atexit = False
    content: NDArray[np.uint8] = np.frombuffer(memoryview(block), np.uint8)
    content.flags.writeable = False
    return content
