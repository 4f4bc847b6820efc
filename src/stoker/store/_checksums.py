"""The checksum of one field of one sample, and the digest of a whole store's content."""

import functools
from collections.abc import Iterable

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.store._samples import Array, Sample
from stoker.store._strings import Strings


def checksum(value: Array | str) -> int:
    """64 bits over the value's bytes and shape; equal however the shard lays it out."""
    if isinstance(value, str):
        text = value.encode()
        return xxhash.xxh3_64_intdigest(text, _seed((len(text),)))
    return checksum_bytes(as_bytes(value), value.shape)


def checksum_bytes(data: memoryview, shape: tuple[int, ...]) -> int:
    """The checksum of an array given as bytes."""
    return xxhash.xxh3_64_intdigest(data, _seed(shape))


def as_bytes(array: Array) -> memoryview:
    """The bytes of a C-contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def sample_digest(sample: Sample) -> bytes:
    """128 bits over names, types and values of a sample."""
    state = xxhash.xxh3_128()
    for name in sorted(sample):
        value = sample[name]
        kind = "str" if isinstance(value, str) else value.dtype.str
        state.update(f"{name}\0{kind}\0".encode())
        state.update(checksum(value).to_bytes(8, "little"))
    return state.digest()


def content_digest(description: str, keys: Strings, checksums: Iterable[NDArray[np.uint64]]) -> str:
    """128 bits over fields, keys and every value, in order; shards and compression do not count."""
    state = xxhash.xxh3_128(description.encode())
    state.update(as_bytes(np.ascontiguousarray(keys.offsets)))
    state.update(as_bytes(np.ascontiguousarray(keys.values)))
    for block in checksums:
        state.update(as_bytes(np.ascontiguousarray(block)))
    return state.hexdigest()


@functools.lru_cache(maxsize=4096)
def _seed(shape: tuple[int, ...]) -> int:
    return xxhash.xxh3_64_intdigest(np.array(shape, "<i8").tobytes())
