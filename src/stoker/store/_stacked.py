"""One field of all shards as one array: file ranges mapped side by side into one stretch of memory.

Shards are separate files, but a gather wants a single array, so that one ``numpy.take`` copies a
whole batch at memory speed. So a stretch of address space is reserved (it costs nothing), and the
field's bytes of each shard are mapped into it at a place where its rows fall onto the grid of row
sizes. Row r of shard s is then row ``first_row[s] + r`` of the stacked array; the rows between
two shards exist only as addresses, and nobody may touch them.

The grid: files map at multiples of a page, and a field of a page or more begins on one in its file.
A row boundary on a page boundary recurs every lcm(page, row) bytes; each shard starts at such a
place. (Fields of less than a page are copied.) If it can be had, a place is chosen that lies as far behind a
multiple of 2 MiB as the bytes do in their file: only there can the system map huge pages, which spare
a gather most of its address translations.
"""

import ctypes
import math
import mmap
import os
import resource
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import UnsafeStoreError
from stoker.store._layout import open_checked
from stoker.store._mapping import HUGE_PAGE, MAP_SHARED, PROT_READ, libc, map_call, populate_range
from stoker.store._samples import Array

_PAGE = mmap.PAGESIZE
_MAP_FIXED, _MAP_PRIVATE, _MAP_ANONYMOUS, _MAP_NORESERVE = 0x10, 0x02, 0x20, 0x4000
_PROT_NONE, _PROT_WRITE = 0, 2
_MAX_ADDRESS_BYTES = 1 << 45  # a quarter of what a process has on x86-64 and arm64
_MAX_HUGE_ADDRESS_BYTES = 1 << 40  # if gaps for huge pages need more, there are none


@dataclass(frozen=True)
class Range:
    """Rows of one field in one file, which must have just ``file_bytes`` bytes."""

    path: Path
    file_bytes: int
    offset: int
    num_rows: int


class StackedColumn:
    """The rows of several file ranges as one array [M, ...] with gaps; see ``first_row``."""

    def __init__(
        self,
        array: Array,
        first_row: NDArray[np.int64],
        ranges: Sequence[Range],
        places: list[tuple[int, int]],
    ) -> None:
        self.array = array
        self.first_row = first_row
        self._ranges = ranges
        self._places = places  # address and size of each shard's bytes

    @property
    def row_bytes(self) -> int:
        """Of one row; looking at a row for it could touch what is not mapped."""
        return self.array.strides[0]

    def map(self, number: int) -> None:
        """Map the bytes of shard ``number``; before that its rows must not be touched.

        Raises:
            DamagedStoreError: the file has another size than it should, or the range lies outside it.
        """
        part = self._ranges[number]
        _map_range(part, *self._places[number], part.num_rows * self.row_bytes)

    def populate(self, number: int, *, huge: bool) -> bool:
        """Read shard ``number`` into memory and map its pages, as ``stoker.store._mapping.populate``."""
        return populate_range(*self._places[number], huge=huge)


def stack(
    ranges: Sequence[Range], shape: tuple[int, ...], dtype: np.dtype[Any], *, mapped: bool
) -> StackedColumn | None:
    """Map the ranges as one array, or None where rows are empty or there is no room for them.

    Without ``mapped`` there are addresses only, and each range waits for ``map``.

    Raises:
        DamagedStoreError: a file has another size than it should, or the range lies outside it.
    """
    row_bytes = math.prod(shape) * dtype.itemsize
    if row_bytes == 0 or not all(part.num_rows for part in ranges) or not ranges:
        return None
    starts = _starts(ranges, row_bytes, huge=True)
    is_limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    if is_limited or starts[-1] > _MAX_HUGE_ADDRESS_BYTES:
        starts = _starts(ranges, row_bytes, huge=False)
    if starts[-1] > _MAX_ADDRESS_BYTES:
        return None
    block, base = _reserve(starts[-1], _page_of(ranges[0]))
    spans = [_span(part, row_bytes) for part in ranges]
    places = [(base + start, span) for start, span in zip(starts[:-1], spans, strict=True)]
    rows = np.frombuffer(memoryview(block), np.uint8)
    rows.flags.writeable = False
    array = np.ndarray((starts[-1] // row_bytes, *shape), dtype, rows.data)
    first_row = np.array(starts[:-1], np.int64) // row_bytes
    column = StackedColumn(array, first_row, ranges, places)
    for number in range(len(ranges)) if mapped else ():
        column.map(number)
    return column


def _starts(ranges: Sequence[Range], row_bytes: int, *, huge: bool) -> list[int]:
    """Where on the grid each range begins, and the end: as near to each other as ``huge`` pages allow."""
    grid = math.lcm(_PAGE, row_bytes)
    starts = []
    end = 0
    for part in ranges:
        start = _ceil(end, grid)
        if huge and part.num_rows * row_bytes >= HUGE_PAGE:
            start = _congruent(start, grid, _page_of(part) - _page_of(ranges[0]))
        starts.append(start)
        end = start + _span(part, row_bytes)
    return [*starts, _ceil(end, grid)]


def _congruent(start: int, grid: int, remainder: int) -> int:
    """The first place on the grid from ``start`` on with this remainder by huge pages, or ``start``."""
    common = math.gcd(grid, HUGE_PAGE)
    missing = (remainder - start) % HUGE_PAGE
    if missing % common:
        return start
    period = HUGE_PAGE // common
    return start + missing // common * pow(grid // common, -1, period) % period * grid


def _reserve(num_bytes: int, remainder: int) -> tuple[Any, int]:
    """Addresses without memory, freed with the block, from one with this remainder by huge pages on."""
    flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE
    reserved = num_bytes + HUGE_PAGE
    first = map_call(None, reserved, _PROT_NONE, flags, -1, 0)
    base = first + (remainder - first) % HUGE_PAGE
    block = (ctypes.c_ubyte * num_bytes).from_address(base)
    weakref.finalize(block, libc.munmap, first, reserved).atexit = False
    return block, base


def _page_of(part: Range) -> int:
    """Where in the file the page of its first byte begins."""
    return part.offset // _PAGE * _PAGE


def _span(part: Range, row_bytes: int) -> int:
    return _ceil(part.num_rows * row_bytes, _PAGE)


def _map_range(part: Range, address: int, span: int, num_bytes: int) -> None:
    with open_checked(part.path, part.file_bytes) as descriptor:
        if part.offset + num_bytes > part.file_bytes:
            raise UnsafeStoreError(f"{part.path} is smaller than the manifest says of its fields")
        if part.offset % _PAGE == 0:
            map_call(address, span, PROT_READ, MAP_SHARED | _MAP_FIXED, descriptor, part.offset)
            return
        # less than a page: it does not begin on one, so it is copied
        flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_FIXED
        map_call(address, span, PROT_READ | _PROT_WRITE, flags, -1, 0)
        content = os.pread(descriptor, num_bytes, part.offset)
        ctypes.memmove(address, content, len(content))


def _ceil(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
