"""Writing HDF5 without letting libhdf5 touch the disk or the data.

A full disk would leave libhdf5's handles half closed, and its buffers would hold the data twice. So
the file is laid out in a sparse file in memory: libhdf5 writes its own few pages there and allots
room for each large array; the arrays themselves go from their buffers straight to the disk.
"""

import io
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xxhash

from stoker.store._codec import Compression, dataset_options
from stoker.store._samples import Array

_PAGE = 4096  # every dataset of a page or more starts on one
_DIRECT_BYTES = 1 << 16  # smaller arrays are libhdf5's to write
CHUNK_BYTES = 1 << 16  # compressed: enough to compress well, little enough to read for one sample

_ZEROS = bytes(_PAGE)


class Image:
    """The bytes of a file, as pieces in order; the same datasets always give the same bytes."""

    def __init__(self, datasets: Mapping[str, Array], compression: Compression) -> None:
        self._sparse = _SparseFile()
        self._arrays = _lay_out(self._sparse, datasets, compression)
        for offset, array in self._arrays.items():
            self._sparse.overlay(offset, array)
        self.num_bytes = self._sparse.size
        state = xxhash.xxh3_128()
        for piece in self.pieces():
            state.update(piece)
        self.digest = state.hexdigest()

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The file's bytes from first to last."""
        position = 0
        for offset, array in sorted(self._arrays.items()):
            yield from self._sparse.pages(position, offset)
            position = offset + len(array) // _PAGE * _PAGE
            yield array[: position - offset]
        yield from self._sparse.pages(position, self.num_bytes)


def _lay_out(
    sparse: "_SparseFile", datasets: Mapping[str, Array], compression: Compression
) -> dict[int, memoryview]:
    """Write the file but for its large arrays; gives those by the offset where they belong."""
    import h5py

    arrays = {}
    with h5py.File(
        sparse,
        "w",
        libver=("v110", "v110"),
        alignment_threshold=_PAGE,
        alignment_interval=_PAGE,
    ) as file:
        for path, array in datasets.items():
            if array.nbytes < _DIRECT_BYTES:
                file.create_dataset(path, data=array)
            elif compression == "none":
                dataset = _allot(file, path, array)
                arrays[dataset.id.get_offset()] = array.reshape(-1).view(np.uint8).data
            else:
                rows = max(1, CHUNK_BYTES * len(array) // array.nbytes)
                chunks = (min(rows, len(array)), *array.shape[1:])
                options = dataset_options(compression, array.itemsize)
                file.create_dataset(path, data=array, chunks=chunks, **options)
    return arrays


def _allot(file: Any, path: str, array: Array) -> Any:
    """A dataset whose room is set aside at once and never filled by libhdf5."""
    import h5py

    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    properties.set_obj_track_times(False)
    parent = file.require_group(path.rpartition("/")[0] or "/")
    h5py.h5d.create(
        parent.id,
        path.rpartition("/")[2].encode(),
        h5py.h5t.py_create(array.dtype, logical=True),
        h5py.h5s.create_simple(array.shape),
        dcpl=properties,
    )
    return file[path]


class _SparseFile(io.RawIOBase):
    """A file in memory that keeps only the pages somebody wrote."""

    def __init__(self) -> None:
        self.size = 0
        self._position = 0
        self._pages: dict[int, bytearray] = {}

    def overlay(self, offset: int, array: memoryview) -> None:
        """Put an array's last, partial page under what libhdf5 wrote behind it."""
        tail = len(array) % _PAGE
        if tail:
            self._page((offset + len(array)) // _PAGE)[:tail] = array[len(array) - tail :]
        self.size = max(self.size, offset + len(array))

    def pages(self, start: int, stop: int) -> Iterator[bytes | memoryview]:
        """The bytes from ``start``, where a page begins, to ``stop``."""
        for position in range(start, stop, _PAGE):
            page = self._pages.get(position // _PAGE, _ZEROS)
            yield memoryview(page)[: stop - position]

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        for number, inside, size in _cut(self._position, len(view)):
            self._page(number)[inside : inside + size] = view[done : done + size]
            done += size
        self._position += done
        self.size = max(self.size, self._position)
        return done

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        done = 0
        for number, inside, size in _cut(self._position, min(len(view), self.size - self._position)):
            view[done : done + size] = self._pages.get(number, _ZEROS)[inside : inside + size]
            done += size
        self._position += done
        return done

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def truncate(self, size: int | None = None) -> int:
        self.size = self._position if size is None else size
        return self.size

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def _page(self, number: int) -> bytearray:
        return self._pages.setdefault(number, bytearray(_PAGE))


def _cut(start: int, size: int) -> Iterator[tuple[int, int, int]]:
    """A stretch of bytes by pages: page number, first byte in it, number of bytes."""
    edges = [start, *range((start // _PAGE + 1) * _PAGE, start + size, _PAGE), start + size]
    for left, right in itertools.pairwise(edges):
        if right > left:
            yield left // _PAGE, left % _PAGE, right - left
