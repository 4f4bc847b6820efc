"""What does a gather cost by where its buffers lie, how many there are, and how its source is mapped?

    python benchmarks/copying.py [--quick]

These are the facts behind how the loader lays out memory. Rows of a file in the page cache are taken at
random by ``numpy.take``, in one thread: into one buffer that begins on a cache line, into one that begins 16
bytes behind a page, as NumPy's large arrays do, and into several in turn, as batches are that somebody still
holds. The file is mapped in huge pages, where the system has them, or in small ones.

Large rows are also copied by the loader's compiled loop, which goes around the caches, into several buffers
of 4 and of 16 MiB; there, once more, with somebody who reads each batch.
"""

import argparse
import itertools
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measuring import Report, interleave
from stoker.loader._copying import RowCopier
from stoker.store._stacked import Range, stack

PAGE = mmap.PAGESIZE
FILE_BYTES, BUFFER_BYTES = 512 << 20, 4 << 20
SEVERAL, REPETITIONS = 6, 9

Array = NDArray[Any]
Copy = Callable[[Array, Array, Array], object]  # from an array, which rows, into a buffer


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repetition, to try the benchmark")
    repetitions = 1 if parser.parse_args().quick else REPETITIONS
    report = Report("copying", ("numpy",))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        path.write_bytes(os.urandom(1 << 20) * (FILE_BYTES >> 20))
        for row_bytes in (16_000, 65_536, 1 << 20):
            add_rows(report, path, row_bytes, repetitions)
        for row_bytes in (65_536, 1 << 20):
            add_loop(report, path, row_bytes, repetitions)
    report.write()


def add_rows(report: Report, path: Path, row_bytes: int, repetitions: int) -> None:
    """The speeds for rows of that size, and what each change costs."""
    source = in_huge_pages(path, row_bytes)
    plain, several = "one buffer on a cache line", f"{SEVERAL} buffers in turn"
    behind, small = "one buffer 16 bytes behind a page", "source in small pages"
    buffers = {
        plain: [buffer(row_bytes, 64)],
        behind: [buffer(row_bytes, 16)],
        several: [buffer(row_bytes, 64) for _ in range(SEVERAL)],
    }
    runs = {name: partial(speed, source, given) for name, given in buffers.items()}
    runs[small] = partial(speed, in_small_pages(path, row_bytes), buffers[plain])
    interleave(runs, 1)
    values = interleave(runs, repetitions)
    workload = f"rows of {row_bytes:,} bytes at random, 1 thread"
    for name, found in values.items():
        report.add(workload, name, found, "GB/s")
    for name in (behind, several, small):
        ratios = [found / best for found, best in zip(values[name], values[plain], strict=True)]
        report.add(workload, f"{name} / {plain}", ratios, "ratio")


def add_loop(report: Report, path: Path, row_bytes: int, repetitions: int) -> None:
    """What the compiled loop brings."""
    source = in_huge_pages(path, row_bytes)
    ways: dict[str, Copy] = {"numpy.take": take, "loop around the caches": loop(row_bytes)}
    for buffer_bytes, is_read in ((BUFFER_BYTES, False), (4 * BUFFER_BYTES, False), (4 * BUFFER_BYTES, True)):
        buffers = [buffer(row_bytes, 64, buffer_bytes) for _ in range(SEVERAL)]
        runs = {
            name: partial(speed, source, buffers, copy=copy, is_read=is_read) for name, copy in ways.items()
        }
        interleave(runs, 1)
        values = interleave(runs, repetitions)
        reading = ", each read by its user" if is_read else ""
        size = f"{SEVERAL} buffers of {buffer_bytes >> 20} MiB in turn{reading}"
        workload = f"rows of {row_bytes:,} bytes at random into {size}, 1 thread"
        for name, found in values.items():
            report.add(workload, name, found, "GB/s")
        pairs = zip(*reversed(values.values()), strict=True)
        ratios = [mine / theirs for mine, theirs in pairs]
        report.add(workload, "loop around the caches / numpy.take", ratios, "ratio")


def take(source: Array, rows: Array, out: Array) -> None:
    """As the loader copies where it has no loop."""
    np.take(source, rows, axis=0, out=out, mode="clip")


def loop(row_bytes: int) -> Copy:
    """The loader's, for so much that it is worth it."""
    copier = RowCopier(row_bytes)
    copier.expect(1 << 40, 1 << 40)
    return copier.copy


def in_huge_pages(path: Path, row_bytes: int) -> Array:
    """The file's rows, mapped as the loader maps a field."""
    rows = Range(path, FILE_BYTES, 0, FILE_BYTES // row_bytes)
    column = stack([rows], (row_bytes,), np.dtype(np.uint8), mapped=True)
    assert column is not None
    column.populate(0, huge=True)
    return column.array[: rows.num_rows]  # behind them there are addresses only


def in_small_pages(path: Path, row_bytes: int) -> Array:
    """The same rows, mapped without."""
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    mapping.madvise(mmap.MADV_NOHUGEPAGE)
    num_rows = FILE_BYTES // row_bytes
    return np.frombuffer(mapping, np.uint8, num_rows * row_bytes).reshape(num_rows, row_bytes)


def buffer(row_bytes: int, behind: int, buffer_bytes: int = BUFFER_BYTES) -> Array:
    """Memory for some rows that begins so many bytes behind a page, touched once."""
    num_bytes = buffer_bytes // row_bytes * row_bytes
    memory = np.ones(num_bytes + 2 * PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE + behind
    return memory[start : start + num_bytes].reshape(-1, row_bytes)


def speed(rows: Array, buffers: list[Array], *, copy: Copy = take, is_read: bool = False) -> float:
    """GB/s of all rows in a new order."""
    order = np.random.default_rng().permutation(len(rows))
    turns, size = itertools.cycle(buffers), len(buffers[0])
    num_gb = len(order) // size * size * int(rows.shape[1]) / 1e9
    start = time.perf_counter()
    for first in range(0, len(order) - size + 1, size):
        out = next(turns)
        copy(rows, order[first : first + size], out)
        if is_read:
            out.view(np.uint64).sum()
    return num_gb / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
