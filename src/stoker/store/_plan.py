"""What a packing run must do: a pure comparison of what the source has with what is packed."""

from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.errors import SourceError
from stoker.store._strings import Strings


@dataclass(frozen=True)
class Known:
    """Rows that are packed already; later parts of a concatenation give way to earlier ones."""

    keys: Strings
    fingerprints: NDArray[np.uint64]  # [M, 2]
    shard: NDArray[np.int64]
    row: NDArray[np.int64]

    @classmethod
    def concatenate(cls, parts: "list[Known]") -> "Known":
        """All parts one after the other."""
        if len(parts) == 1:
            return parts[0]
        empty = np.zeros(0, np.int64)
        lengths = [np.diff(part.keys.offsets) for part in parts]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([empty, *lengths]))])
        values = [part.keys.values for part in parts]
        return cls(
            keys=Strings(np.concatenate([np.zeros(0, np.uint8), *values]), offsets.astype(np.int64)),
            fingerprints=np.concatenate(
                [np.zeros((0, 2), np.uint64), *(part.fingerprints for part in parts)]
            ),
            shard=np.concatenate([empty, *(part.shard for part in parts)]),
            row=np.concatenate([empty, *(part.row for part in parts)]),
        )


def match_keys(keys: Strings, known: Strings) -> NDArray[np.int64]:
    """For each key its position in ``known`` (the first one), or -1.

    Equal tables, the common case of an unchanged source, are matched by one comparison.

    Raises:
        SourceError: two samples of the source have the same key.
    """
    if keys == known:
        return np.arange(len(keys))
    ours, theirs = _hashes(keys), _hashes(known)
    distinct, first_seen, counts = np.unique(ours, return_index=True, return_counts=True)
    if len(distinct) < len(ours):
        twice = keys[int(first_seen[counts > 1][0])]
        raise SourceError(f"keys must be unique, but two samples have the key {twice!r}")
    if len(known) == 0:
        return np.full(len(keys), -1)
    order = np.argsort(theirs, kind="stable")
    place = np.searchsorted(theirs[order], ours).clip(max=len(known) - 1)
    position = order[place]
    return np.where(theirs[position] == ours, position, -1)


def _hashes(keys: Strings) -> NDArray[np.bytes_]:
    """128 bits a key, in a form that numpy sorts."""
    digests = bytearray()
    for key in keys.encoded():
        digests += xxhash.xxh3_128_digest(key)
    return np.frombuffer(digests, "S16")
