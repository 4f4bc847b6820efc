"""One field of several files as one array."""

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

from stoker.store._stacked import Range, stack

PAGE, HUGE_PAGE = 4096, 2 << 20


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


def rows_of(column: Any, ranges: list[Range]) -> NDArray[Any]:
    """All rows that are there, shard by shard."""
    pairs = zip(column.first_row.tolist(), ranges, strict=True)
    return np.concatenate([column.array[first : first + part.num_rows] for first, part in pairs])


@given(st.lists(st.tuples(st.integers(0, 3 * PAGE), st.integers(1, 9)), min_size=1), st.integers(1, 400))
def test_what_is_smaller_than_a_page_may_lie_anywhere(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int]], row_bytes: int
) -> None:
    ranges, expected = write(tmp_path_factory.mktemp("files"), parts, row_bytes)
    column = stack(ranges, (row_bytes,), np.dtype(np.uint8), mapped=True)
    assert column is not None
    assert np.array_equal(rows_of(column, ranges), expected)


@given(
    st.lists(
        st.tuples(st.integers(0, 20).map(lambda n: n * PAGE), st.integers(1, 9)), min_size=1, max_size=5
    ),
    st.integers(1, 3 * PAGE) | st.sampled_from([PAGE, 2 * PAGE, 16_000]),
)
def test_rows_are_those_of_the_files(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int]], row_bytes: int
) -> None:
    ranges, expected = write(tmp_path_factory.mktemp("files"), parts, row_bytes)
    column = stack(ranges, (row_bytes,), np.dtype(np.uint8), mapped=True)
    assert column is not None
    assert np.array_equal(rows_of(column, ranges), expected)


@pytest.mark.parametrize("row_bytes", [16_000, 16_004, 12_288, 1 << 20])
def test_large_ranges_lie_where_huge_pages_can_be_mapped(tmp_path: Path, row_bytes: int) -> None:
    num_rows = 5 * HUGE_PAGE // 2 // row_bytes
    ranges, expected = write(tmp_path, [(PAGE, num_rows), (PAGE, 1), (PAGE, num_rows)], row_bytes)
    column = stack(ranges, (row_bytes,), np.dtype(np.uint8), mapped=True)
    assert column is not None
    assert all(column.populate(number) for number in range(3))
    assert np.array_equal(rows_of(column, ranges), expected)
    base = column.array.ctypes.data
    for number in (0, 2):
        address = base + int(column.first_row[number]) * row_bytes
        assert (address - ranges[number].offset) % HUGE_PAGE == 0


def test_offsets_that_no_row_can_meet_are_mapped_all_the_same(tmp_path: Path) -> None:
    row_bytes = 1 << 20  # whose places are multiples of 1 MiB
    ranges, expected = write(tmp_path, [(PAGE, 3), (5 * PAGE, 3), (PAGE + row_bytes, 3)], row_bytes)
    column = stack(ranges, (row_bytes,), np.dtype(np.uint8), mapped=True)
    assert column is not None
    assert np.array_equal(rows_of(column, ranges), expected)


def test_where_addresses_are_scarce_ranges_lie_close_together(tmp_path: Path) -> None:
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
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        narrow, after = rows()
        assert wide > 4 << 30 > narrow
        assert np.array_equal(before, after)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
