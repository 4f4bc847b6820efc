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
HUGE_PAGE = 2 << 20  # of x86-64, and of arm64 with pages of 4 KiB; elsewhere a needless gap
_MADV_HUGEPAGE, _MADV_POPULATE_READ = 14, 22  # the latter from Linux 5.14 on

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


def populate(array: NDArray[Any], *, huge: bool) -> bool:
    """Read a mapped array into memory and map its pages; False where the system cannot.

    Otherwise the first touch of each page costs a fault, which makes a first epoch crawl. With ``huge``,
    what is not in memory is read in huge pages: now, and again whenever it had to leave, so this is for
    what will stay.
    """
    start = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    return populate_range(start, array.ctypes.data + array.nbytes - start, huge=huge)


def populate_range(address: int, num_bytes: int, *, huge: bool) -> bool:
    """The same for a range of addresses that begins with a page."""
    if huge and num_bytes >= HUGE_PAGE:
        libc.madvise(address, num_bytes, _MADV_HUGEPAGE)
    done: int = libc.madvise(address, num_bytes, _MADV_POPULATE_READ)
    return done == 0


def map_call(
    address: int | None, num_bytes: int, protection: int, flags: int, descriptor: int, offset: int
) -> int:
    """The system's mmap; gives the address, or raises OSError."""
    found: int = libc.mmap(address, num_bytes, protection, flags, descriptor, offset)
    if found == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found
