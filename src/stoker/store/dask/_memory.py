"""Memory of a Dask worker: what is freed is used again while it packs.

Dask tells the C library of its workers to give freed memory back to the system at once
(``MALLOC_TRIM_THRESHOLD_``), and with that a switch is off by which glibc learns how large the arrays of a
program are. So the pages of each temporary array of a transform are mapped and cleared anew, sample after
sample, which takes longer than many a filter. Elsewhere nothing is changed.
"""

import ctypes
import os

_ORDER = "MALLOC_TRIM_THRESHOLD_"  # read by glibc when a process starts
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of its mallopt
_KEPT_BYTES = 256 << 20  # at the top of the heap
_LARGEST_KEPT_BYTES = 32 << 20  # of one array: the most that glibc takes
_USUAL_LARGEST_BYTES = 128 << 10


def keep_freed_memory() -> None:
    """Use it again, up to 256 MB."""
    if os.environ.get(_ORDER, "").isdecimal():
        _set(_KEPT_BYTES, _LARGEST_KEPT_BYTES)


def give_memory_back() -> None:
    """What was kept now, and from now on at once: as Dask has it."""
    order = os.environ.get(_ORDER, "")
    if order.isdecimal() and _set(int(order), _USUAL_LARGEST_BYTES):
        ctypes.CDLL(None).malloc_trim(0)


def _set(trim_bytes: int, largest_bytes: int) -> bool:
    """Whether this C library can be told."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    return bool(set_option(_TRIM_THRESHOLD, trim_bytes) and set_option(_MMAP_THRESHOLD, largest_bytes))
