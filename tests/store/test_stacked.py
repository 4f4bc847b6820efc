"""One field of several files as one array."""

import math
import mmap
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stoker.store._mapping import HUGE_PAGE
from stoker.store._stacked import Range, StackedColumn, _starts, stack

PAGE = mmap.PAGESIZE
OFFSETS = st.integers(0, 1000).map(lambda pages: pages * PAGE)


def write(folder: Path, parts: list[tuple[int, int]], row_bytes: int) -> tuple[list[Range], NDArray[Any]]:
    """A file for each (offset, rows), noise around the rows; gives the ranges and the rows of all of them."""
    rng = np.random.default_rng(0)
    ranges, rows = [], []
    for number, (offset, num_rows) in enumerate(parts):
        content = rng.integers(0, 256, offset + num_rows * row_bytes + 7, np.uint8)
        path = folder / f"{number}"
        path.write_bytes(content.tobytes())
        ranges.append(Range(path, len(content), offset, num_rows))
        rows.append(content[offset:-7].reshape(num_rows, row_bytes))
    return ranges, np.concatenate(rows)


def stacked(ranges: list[Range], row_bytes: int) -> StackedColumn:
    column = stack(ranges, (row_bytes,), np.dtype(np.uint8), mapped=True)
    assert column is not None
    return column


def rows_of(column: StackedColumn, ranges: list[Range]) -> NDArray[Any]:
    """All rows that are there, shard by shard."""
    pairs = zip(column.first_row.tolist(), ranges, strict=True)
    return np.concatenate([column.array[first : first + part.num_rows] for first, part in pairs])


@given(st.lists(st.tuples(st.integers(0, 3 * PAGE), st.integers(1, 9)), min_size=1), st.integers(1, 400))
def test_what_is_smaller_than_a_page_may_lie_anywhere(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int]], row_bytes: int
) -> None:
    ranges, expected = write(tmp_path_factory.mktemp("files"), parts, row_bytes)
    assert np.array_equal(rows_of(stacked(ranges, row_bytes), ranges), expected)


@given(
    st.lists(st.tuples(OFFSETS.filter(lambda n: n < 20 * PAGE), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(1, 3 * PAGE) | st.sampled_from([PAGE, 2 * PAGE, 16_000]),
)
def test_rows_are_those_of_the_files(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int]], row_bytes: int
) -> None:
    ranges, expected = write(tmp_path_factory.mktemp("files"), parts, row_bytes)
    assert np.array_equal(rows_of(stacked(ranges, row_bytes), ranges), expected)


@given(
    st.lists(st.tuples(OFFSETS, st.integers(1, 5000)), min_size=1, max_size=6),
    st.integers(1, 1 << 21) | st.integers(1, 512).map(lambda pages: pages * PAGE),
    st.booleans(),
)
def test_places_lie_on_the_grid_apart_and_where_huge_pages_fit(
    parts: list[tuple[int, int]], row_bytes: int, huge: bool
) -> None:
    ranges = [Range(Path(), 0, offset, num_rows) for offset, num_rows in parts]
    *starts, end = _starts(ranges, row_bytes, huge=huge)
    grid, last = math.lcm(PAGE, row_bytes), 0
    for start, part in zip(starts, ranges, strict=True):
        assert start % grid == 0
        nearest = -(-last // grid) * grid
        remainder = (part.offset - ranges[0].offset) % HUGE_PAGE
        places = range(nearest, nearest + math.lcm(grid, HUGE_PAGE), grid)
        fitting = [place for place in places if place % HUGE_PAGE == remainder]
        if huge and fitting and part.num_rows * row_bytes >= HUGE_PAGE:
            assert start == fitting[0]
        else:
            assert start == nearest
        last = start + part.num_rows * row_bytes
    assert last <= end < last + 2 * grid
    assert end % grid == 0


@pytest.mark.parametrize("row_bytes", [16_000, 16_004, 12_288])
def test_large_ranges_are_mapped_where_huge_pages_fit(tmp_path: Path, row_bytes: int) -> None:
    num_rows = 5 * HUGE_PAGE // 2 // row_bytes
    parts = [(PAGE, num_rows), (3 * PAGE, 1), (7 * PAGE, num_rows)]
    ranges, expected = write(tmp_path, parts, row_bytes)
    column = stacked(ranges, row_bytes)
    for number in range(3):
        column.populate(number, huge=True)
    assert np.array_equal(rows_of(column, ranges), expected)
    places = [column.array[first:].ctypes.data for first in column.first_row.tolist()]
    for number in (0, 2):
        assert (places[number] - ranges[number].offset) % HUGE_PAGE == 0
    # small ranges are not read in huge pages
    assert [is_huge_wanted(place) for place in places] == [True, False, True]


def is_huge_wanted(address: int) -> bool:
    """Whether huge pages were asked for in the mapping that begins there."""
    here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            here = int(first.split("-")[0], 16) == address
        elif here and first == "VmFlags:":
            return "hg" in line.split()
    raise AssertionError(f"nothing is mapped at {address:x}")


def test_offsets_that_no_row_can_meet_are_mapped_all_the_same(tmp_path: Path) -> None:
    row_bytes = 1 << 20  # whose places are multiples of 1 MiB
    ranges, expected = write(tmp_path, [(PAGE, 3), (5 * PAGE, 3), (PAGE + row_bytes, 3)], row_bytes)
    assert np.array_equal(rows_of(stacked(ranges, row_bytes), ranges), expected)


def test_what_cannot_be_stacked_is_told(tmp_path: Path) -> None:
    part = Range(tmp_path, 0, 0, 5)
    for ranges, shape in (
        ([], (3,)),
        ([part], (0, 3)),
        ([part, Range(tmp_path, 0, 0, 0)], (3,)),
        ([part], (1 << 44,)),  # more than there are addresses
    ):
        assert stack(ranges, shape, np.dtype(np.uint8), mapped=False) is None


def test_where_addresses_are_limited_none_are_spent_on_gaps(tmp_path: Path) -> None:
    row_bytes = 16_004  # rows meet huge pages every 8 GB
    num_rows = HUGE_PAGE // row_bytes + 1
    write(tmp_path, [(PAGE, num_rows), (PAGE, num_rows)], row_bytes)
    script = f"""
        import resource
        from pathlib import Path
        import numpy as np
        from stoker.store._stacked import Range, stack
        paths = [Path({str(tmp_path)!r}) / name for name in "01"]
        ranges = [Range(path, path.stat().st_size, {PAGE}, {num_rows}) for path in paths]
        def rows():
            column = stack(ranges, ({row_bytes},), np.dtype(np.uint8), mapped=True)
            parts = [column.array[first : first + {num_rows}] for first in column.first_row]
            return column.array.nbytes, np.concatenate(parts)
        wide, before = rows()
        resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))  # the gaps would fit
        narrow, after = rows()
        assert wide > 1 << 32 > 1 << 27 > narrow, (wide, narrow)
        assert np.array_equal(before, after)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
