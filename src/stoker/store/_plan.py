"""What a packing run must do: a pure comparison of what the source has with what is packed."""

from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.errors import SourceError
from stoker.store._strings import Strings


@dataclass(frozen=True)
class Known:
    """Rows that are packed already, all of one place: an old store, or a shard left behind."""

    keys: Strings
    fingerprints: NDArray[np.uint64]  # [M, 2]
    shard: NDArray[np.int64]
    row: NDArray[np.int64]


@dataclass(frozen=True)
class Reuse:
    """For each sample of the source where it is packed already, -1 where it is not."""

    shard: NDArray[np.int64]
    row: NDArray[np.int64]
    fingerprints: NDArray[np.uint64]  # of what is packed

    def drop(self, shards: set[int]) -> None:
        """Use no row of these shards after all."""
        gone = np.isin(self.shard, list(shards))
        self.shard[gone] = self.row[gone] = -1
        self.fingerprints[gone] = 0


def find_reuse(keys: Strings, now: NDArray[np.uint64] | None, parts: list[Known]) -> Reuse:
    """Where each sample is packed with the fingerprint it has ``now``.

    Without fingerprints (``now`` is None) the last part that knows the key counts: only reading the
    sample will tell whether it still fits.
    """
    reuse = Reuse(
        shard=np.full(len(keys), -1),
        row=np.full(len(keys), -1),
        fingerprints=np.zeros((len(keys), 2), np.uint64),
    )
    for part in parts:
        position = match_keys(keys, part.keys)
        found = position >= 0
        if now is not None:
            found[found] = (part.fingerprints[position[found]] == now[found]).all(axis=1)
        reuse.shard[found] = part.shard[position[found]]
        reuse.row[found] = part.row[position[found]]
        reuse.fingerprints[found] = part.fingerprints[position[found]]
    return reuse


def match_keys(keys: Strings, known: Strings) -> NDArray[np.int64]:
    """For each key its position in ``known`` (the first one), or -1.

    Equal tables, the common case of an unchanged source, are matched by one comparison.
    """
    if keys == known:
        return np.arange(len(keys))
    if len(known) == 0:
        return np.full(len(keys), -1)
    ours, theirs = _hashes(keys), _hashes(known)
    order = np.argsort(theirs, kind="stable")
    place = np.searchsorted(theirs[order], ours).clip(max=len(known) - 1)
    position = order[place]
    return np.where(theirs[position] == ours, position, -1)


def check_unique(keys: Strings) -> None:
    """Raise SourceError if two samples have the same key."""
    distinct, first_seen, counts = np.unique(_hashes(keys), return_index=True, return_counts=True)
    if len(distinct) < len(keys):
        twice = keys[int(first_seen[counts > 1][0])]
        raise SourceError(f"keys must be unique, but two samples have the key {twice!r}")


def _hashes(keys: Strings) -> NDArray[np.bytes_]:
    """128 bits a key, in a form that numpy sorts."""
    digests = bytearray()
    for key in keys.encoded():
        digests += xxhash.xxh3_128_digest(key)
    return np.frombuffer(digests, "S16")
