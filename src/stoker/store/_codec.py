"""Compression: how a chunk is written through HDF5's filters and decoded without libhdf5.

libhdf5 decodes behind one global lock; the functions here are plain calls that release the
interpreter's lock, so that threads can decode side by side.
"""

import importlib.util
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, MissingExtraError, UsageError

Compression: TypeAlias = Literal["none", "lz4", "zstd", "gzip"]

_GZIP, _SHUFFLE, _LZ4, _ZSTD = 1, 2, 32004, 32015  # registered numbers of HDF5's filters
_LIBRARIES = {"lz4": ("hdf5plugin", "lz4"), "zstd": ("hdf5plugin", "zstandard")}


def check_compression(compression: str) -> None:
    """Raise unless the compression exists and its libraries are installed."""
    if compression not in get_args(Compression):
        choices = ", ".join(get_args(Compression))
        raise UsageError(f"compression must be one of {choices}, got {compression!r}")
    for library in _LIBRARIES.get(compression, ()):
        if importlib.util.find_spec(library) is None:
            raise MissingExtraError(f"compression {compression!r}", extra="compression", library=library)


def dataset_options(compression: Compression, itemsize: int) -> dict[str, Any]:
    """Arguments of ``h5py.create_dataset`` for a chunked dataset of that compression.

    Bytes of equal significance are put together first (HDF5's shuffle filter): it costs little and
    makes floating-point data compressible at all.
    """
    shuffle = {"shuffle": itemsize > 1}
    if compression == "gzip":
        return {**shuffle, "compression": "gzip", "compression_opts": 4}
    import hdf5plugin

    chosen = hdf5plugin.LZ4() if compression == "lz4" else hdf5plugin.Zstd(clevel=3)
    return {**shuffle, **chosen}


def decode_chunk(
    stored: memoryview, filters: Sequence[int], num_bytes: int, itemsize: int
) -> NDArray[np.uint8]:
    """The chunk's bytes, exactly ``num_bytes`` of them.

    Raises:
        DamagedStoreError: the stored bytes do not decode to that many.
    """
    data: bytes | memoryview = stored
    try:
        for number in reversed(filters):
            if number == _SHUFFLE:
                planes = np.frombuffer(data, np.uint8).reshape(itemsize, -1)
                data = np.ascontiguousarray(planes.T).data.cast("B")
            else:
                data = _DECODERS[number](data, num_bytes)
    except MissingExtraError:
        raise
    except Exception as error:  # each library raises its own kinds for bytes that do not decode
        raise DamagedStoreError(f"a chunk does not decode: {error}") from error
    if len(data) != num_bytes:
        raise DamagedStoreError(f"a chunk decodes to {len(data)} bytes instead of {num_bytes}")
    return np.frombuffer(data, np.uint8)


def check_filters(filters: Sequence[int]) -> None:
    """Raise unless every filter of a chunked dataset can be decoded here."""
    for number in filters:
        if number == _LZ4:
            check_compression("lz4")
        elif number == _ZSTD:
            check_compression("zstd")
        elif number not in {_GZIP, _SHUFFLE}:
            raise DamagedStoreError(f"unknown HDF5 filter number {number}")


def _gunzip(data: bytes | memoryview, num_bytes: int) -> bytes:
    return zlib.decompressobj().decompress(data, num_bytes + 1)


def _unlz4(data: bytes | memoryview, num_bytes: int) -> bytes:
    """HDF5's framing: total size (8 bytes), block size (4), then each block after its size (4)."""
    import lz4.block

    total, block = struct.unpack_from(">QI", data)
    if total != num_bytes or block == 0:
        raise ValueError(f"header says {total} bytes in blocks of {block}")
    parts: list[bytes] = []
    position, done = 12, 0
    while done < total:
        size = min(block, total - done)
        (stored,) = struct.unpack_from(">I", data, position)
        piece = data[position + 4 : position + 4 + stored]
        if stored == size:  # an incompressible block is kept as it is
            parts.append(bytes(piece))
        else:
            parts.append(lz4.block.decompress(piece, uncompressed_size=size))
        position += 4 + stored
        done += size
    return b"".join(parts)


def _unzstd(data: bytes | memoryview, num_bytes: int) -> bytes:
    import zstandard

    size = zstandard.frame_content_size(data)
    if size not in {num_bytes, -1}:
        raise ValueError(f"header says {size} bytes")
    decoded: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=num_bytes)
    return decoded


_DECODERS: dict[int, Callable[[bytes | memoryview, int], bytes]] = {
    _GZIP: _gunzip,
    _LZ4: _unlz4,
    _ZSTD: _unzstd,
}
