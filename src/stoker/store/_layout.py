"""Reading HDF5 around libhdf5, through a mapping.

libhdf5 is asked once where each dataset lies; every answer is checked against the file's size, and
from then on the mapping is used: no lock, no handle that could cross a fork.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, UnsafeStoreError
from stoker.store._codec import check_filters, decode_chunk
from stoker.store._image import CHUNK_BYTES
from stoker.store._mapping import map_readonly
from stoker.store._samples import Array

_MAX_CHUNK_BYTES = 2**31
_MAX_DATASETS = 10_000
_REMEDY = "`stoker repair` makes it anew"


def digest(content: bytes | memoryview) -> str:
    """The name that the content's bytes give a file: 32 hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(content)


class Column:
    """One dataset of a file, read by rows of its first axis."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def num_bytes(self) -> int:
        """Size of all rows, decoded."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, start: int, stop: int) -> Array:
        """Rows ``start:stop``; may be a read-only view of the mapping."""
        raise NotImplementedError

    def take(self, rows: NDArray[np.integer[Any]]) -> Array:
        """The given rows, in that order, as a new array."""
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: FBT001 - numpy's protocol
        return np.array(self.read(0, len(self)), dtype=dtype, copy=copy)


class MappedColumn(Column):
    """An uncompressed dataset: a window onto the mapped file."""

    def __init__(self, array: Array, offset: int) -> None:
        self.array = array
        self.offset = offset  # where its bytes begin in the file
        self.shape = array.shape
        self.dtype = array.dtype

    def read(self, start: int, stop: int) -> Array:
        """Rows ``start:stop``, as a view."""
        return self.array[start:stop]

    def take(self, rows: NDArray[np.integer[Any]]) -> Array:
        """The given rows, copied."""
        return self.array.take(rows, axis=0)


class ChunkedColumn(Column):
    """A compressed dataset: the places of its chunks, decoded on demand."""

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        rows_per_chunk: int,
        filters: Sequence[int],
        places: NDArray[np.int64],  # [chunks, 2]: offset and size in the file
        content: NDArray[np.uint8],
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self._rows = rows_per_chunk
        self._filters = filters
        self._places = places
        self._content = content

    def read(self, start: int, stop: int) -> Array:
        """Rows ``start:stop``, decoded."""
        first, last = start // self._rows, max(start, stop - 1) // self._rows
        if start >= stop:
            return np.empty((0, *self.shape[1:]), self.dtype)
        chunks = [self._chunk(number) for number in range(first, last + 1)]
        rows = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
        return rows[start - first * self._rows : stop - first * self._rows]

    def take(self, rows: NDArray[np.integer[Any]]) -> Array:
        """The given rows; each chunk that holds some of them is decoded once."""
        taken = np.empty((len(rows), *self.shape[1:]), self.dtype)
        numbers = rows // self._rows
        for number in np.unique(numbers):
            here = numbers == number
            taken[here] = self._chunk(int(number))[rows[here] - number * self._rows]
        return taken

    def _chunk(self, number: int) -> Array:
        offset, size = self._places[number]
        num_bytes = self._rows * math.prod(self.shape[1:]) * self.dtype.itemsize
        stored = self._content[offset : offset + size].data
        decoded = decode_chunk(stored, self._filters, num_bytes, self.dtype.itemsize)
        return decoded.view(self.dtype).reshape(self._rows, *self.shape[1:])


def map_file(path: Path, expected_bytes: int) -> NDArray[np.uint8]:
    """The file's content, mapped for reading, if it has just the size it should have."""
    with open_checked(path, expected_bytes) as descriptor:
        try:
            return map_readonly(descriptor, expected_bytes)
        except OSError as error:
            raise DamagedStoreError(f"{path} cannot be mapped: {error}") from error


@contextlib.contextmanager
def open_checked(path: Path, expected_bytes: int) -> Iterator[int]:
    """A descriptor of the file, if it has just the size it should have.

    A mapping that is longer than its file kills the process (SIGBUS) instead of raising.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise DamagedStoreError(f"{path} cannot be opened: {error.strerror}; {_REMEDY}") from error
    try:
        check_size(path, os.fstat(descriptor).st_size, expected_bytes)
        yield descriptor
    finally:
        os.close(descriptor)


def check_size(path: Path, num_bytes: int, expected_bytes: int) -> None:
    """Raise DamagedStoreError unless the file has the size it should have."""
    if num_bytes != expected_bytes:
        raise DamagedStoreError(
            f"{path} has {num_bytes} bytes, the manifest says {expected_bytes}; {_REMEDY}"
        )


def open_columns(path: Path, expected_bytes: int) -> dict[str, Column]:
    """Every dataset of the file, by path, after all that the file claims was checked.

    Raises:
        DamagedStoreError: the file is not the HDF5 file it was.
        UnsafeStoreError: it holds links, external or virtual data, foreign types or filters, or
            datasets larger than itself.
    """
    import h5py

    content = map_file(path, expected_bytes)
    try:
        with h5py.File(path, "r", locking=False) as file:  # it never changes; some systems cannot lock
            return {name: _open_dataset(dataset, content, path) for name, dataset in _datasets(file, path)}
    except DamagedStoreError:
        raise
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise DamagedStoreError(f"{path} is not a readable HDF5 file: {error}") from error


def _datasets(file: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Name and dataset of everything in the file, following nothing but hard links."""
    import h5py

    pending = [("", file)]
    num_seen = 0
    while pending:
        prefix, group = pending.pop()
        for name in group:
            num_seen += 1
            if num_seen > _MAX_DATASETS or prefix.count("/") > 4:
                raise UnsafeStoreError(f"{path} holds too many or too deeply nested objects")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise UnsafeStoreError(f"{path}: {prefix}{name} is a link to elsewhere; stores hold none")
            found = group[name]
            if isinstance(found, h5py.Group):
                pending.append((f"{prefix}{name}/", found))
            elif isinstance(found, h5py.Dataset):
                yield f"{prefix}{name}", found
            else:
                raise UnsafeStoreError(f"{path}: {prefix}{name} is neither group nor dataset")


def _open_dataset(dataset: Any, content: NDArray[np.uint8], path: Path) -> Column:
    import h5py

    where = f"{path}: {dataset.name}"
    properties = dataset.id.get_create_plist()
    layout = properties.get_layout()
    if layout == h5py.h5d.VIRTUAL or properties.get_external_count():
        raise UnsafeStoreError(f"{where} keeps its data in other files; stores never do")
    dtype, shape = dataset.dtype, dataset.shape
    if shape is None or len(shape) == 0 or dtype.kind not in "biufc" or dtype.hasobject:
        raise UnsafeStoreError(f"{where} has type {dtype} and shape {shape}; stores have no such")
    num_bytes = math.prod(shape) * dtype.itemsize
    if layout == h5py.h5d.CONTIGUOUS:
        if num_bytes == 0:
            return MappedColumn(np.empty(shape, dtype), 0)
        offset = dataset.id.get_offset()
        if offset is None or offset + num_bytes > len(content):
            raise UnsafeStoreError(f"{where} claims {num_bytes} bytes, more than the file has")
        return MappedColumn(np.ndarray(shape, dtype, content.data, offset), offset)
    if layout != h5py.h5d.CHUNKED:
        raise UnsafeStoreError(f"{where} has an unknown layout")
    return _open_chunked(dataset, content, where)


def _open_chunked(dataset: Any, content: NDArray[np.uint8], where: str) -> ChunkedColumn:
    shape, dtype, chunks = dataset.shape, dataset.dtype, dataset.chunks
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    check_filters(filters)
    rows = chunks[0]
    num_chunks = -(-shape[0] // rows)
    chunk_bytes = math.prod(chunks) * dtype.itemsize
    largest = _MAX_CHUNK_BYTES if rows == 1 else CHUNK_BYTES
    if chunks[1:] != shape[1:] or chunk_bytes > largest:
        raise UnsafeStoreError(f"{where} has chunks of {chunks}; stores cut along the first axis")
    if num_chunks > len(content) or dataset.id.get_num_chunks() != num_chunks:
        raise UnsafeStoreError(f"{where} claims more rows than its chunks hold")
    places = np.zeros((num_chunks, 2), np.int64)

    def place(chunk: Any) -> None:
        if chunk.filter_mask:
            raise UnsafeStoreError(f"{where} has chunks that skip a filter; stores have none")
        places[chunk.chunk_offset[0] // rows] = chunk.byte_offset, chunk.size

    dataset.id.chunk_iter(place)
    if (places[:, 0] < 0).any() or (places.sum(axis=1) > len(content)).any():
        raise UnsafeStoreError(f"{where} has chunks beyond the end of the file")
    return ChunkedColumn(
        shape=shape,
        dtype=dtype,
        rows_per_chunk=rows,
        filters=filters,
        places=places,
        content=content,
    )
