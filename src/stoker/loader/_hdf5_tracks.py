"""Which track reads a dataset of an HDF5 file: a view of it, its chunks, or h5py where it must be."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, MissingExtraError, SourceError
from stoker.loader._chunk_cache import ChunkCache
from stoker.loader._session_tracks import (
    ChunkedTrack,
    Chunks,
    Handles,
    HandleTrack,
    MappedTrack,
    Track,
    pick,
)
from stoker.store._codec import check_filters
from stoker.store._samples import Array

_MAX_CHUNK_BYTES = 2**31
_COUNTS_USERBLOCK = (1, 14, 4)  # since this HDF5, chunks' addresses count from the file's first byte


def open_tracks(
    chosen: Mapping[str, tuple[Any, Sequence[str], int]],
    *,
    path: str,
    content: NDArray[np.uint8],
    cache: ChunkCache,
    handles: Handles,
) -> dict[str, Track]:
    """The track of each chosen (h5py dataset, column of it, time axis), by name.

    ``content`` is the mapped file. The datasets are not used after this.
    """
    opened: dict[str, Array | Chunks | None] = {}
    tracks: dict[str, Track] = {}
    for name, (dataset, column, axis) in chosen.items():
        if dataset.name not in opened:
            opened[dataset.name] = _open_directly(dataset, f"{path}: {dataset.name}", content, cache)
        found = opened[dataset.name]
        if isinstance(found, Chunks):
            tracks[name] = ChunkedTrack(found, column, axis)
        elif found is not None:
            tracks[name] = MappedTrack(pick(found, column), axis)
        else:
            tracks[name] = HandleTrack(handles, path, dataset, column, axis)
    return tracks


def _open_directly(
    dataset: Any, where: str, content: NDArray[np.uint8], cache: ChunkCache
) -> Array | Chunks | None:
    """The dataset as a view of the mapped file or as its chunks; None if only h5py can read it."""
    import h5py

    properties = dataset.id.get_create_plist()
    shape, dtype = dataset.shape, dataset.dtype
    if dtype.hasobject or properties.get_external_count() or not _is_stored_as_is(dataset):
        return None
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes == 0:
        return np.empty(shape, dtype)
    if properties.get_layout() == h5py.h5d.CHUNKED:
        return _open_chunks(dataset, where, content, cache)
    # compact and virtual data, and what was never written, have no place of their own in the file
    offset = dataset.id.get_offset() if properties.get_layout() == h5py.h5d.CONTIGUOUS else None
    if offset is None:
        return None
    if offset + num_bytes > len(content):
        raise SourceError(f"{where} claims {num_bytes} bytes, more than the file has; get the file anew")
    return np.ndarray(shape, dtype, content.data, offset)


def _open_chunks(dataset: Any, where: str, content: NDArray[np.uint8], cache: ChunkCache) -> Chunks | None:
    import h5py

    properties, sizes = dataset.id.get_create_plist(), dataset.chunks
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    try:
        check_filters(filters)
    except (DamagedStoreError, MissingExtraError):
        return None
    grid = [-(-size // chunk) for size, chunk in zip(dataset.shape, sizes, strict=True)]
    is_misplaced = dataset.file.userblock_size and h5py.version.hdf5_version_tuple < _COUNTS_USERBLOCK
    is_whole = dataset.id.get_num_chunks() == math.prod(grid)
    if is_misplaced or not is_whole or math.prod(sizes) * dataset.dtype.itemsize > _MAX_CHUNK_BYTES:
        return None
    places = np.full((*grid, 3), -1, np.int64)

    def place(chunk: Any) -> None:
        cell = tuple(first // size for first, size in zip(chunk.chunk_offset, sizes, strict=True))
        places[cell] = chunk.byte_offset, chunk.size, chunk.filter_mask

    dataset.id.chunk_iter(place)
    if (places < 0).any() or (places[..., 0] + places[..., 1] > len(content)).any():
        raise SourceError(f"{where} has chunks beyond the end of the file; get the file anew")
    return Chunks(where, dataset.shape, dataset.dtype, sizes, filters, places, content, cache)


def _is_stored_as_is(dataset: Any) -> bool:
    """Whether values lie in the file just as NumPy's type would have them."""
    import h5py

    try:
        same: bool = dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype, logical=True))
    except (TypeError, ValueError):
        return False
    return same
