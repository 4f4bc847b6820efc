"""128 bits per sample that change when the sample would.

A fingerprint mixes words of 64 bits: the file's size and time of change (or a hash of its bytes),
the label, the other columns, all starting from a seed that hashes what is common to all samples.
Two lanes with different seeds are mixed side by side; the mixing is SplitMix64's finaliser, a
bijection, so that a change in any single word always shows.

Everything is here twice: for all samples at once, and for one, which a packer asks for around every
read. NumPy on single numbers would take ten times as long as plain integers.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.store._strings import Strings
from stoker.store.sources._columns import Column

Words = NDArray[np.uint64]
Pair = tuple[int, int]

SECOND_LANE = 0xD6E8FEB86659FD93
MASK = 0xFFFF_FFFF_FFFF_FFFF
READ_BYTES = 1 << 20

_stat = os.stat


def seed_of(identity: str) -> int:
    """Where the mixing starts, from the text of all that the samples have in common."""
    return xxhash.xxh3_64_intdigest(identity.encode())


def stat_pair(path: str | bytes) -> Pair | None:
    """The file's size and time of change; None where it is not there."""
    try:
        status = _stat(path)
    except (OSError, ValueError):  # ValueError: a zero byte in the name
        return None
    return status.st_size, status.st_mtime_ns & MASK


def content_pair(path: str | bytes) -> Pair | None:
    """XXH3 (128 bits) of the file's bytes; None where they cannot be read."""
    state = xxhash.xxh3_128()
    try:
        with Path(os.fsdecode(path)).open("rb", buffering=0) as file:
            while block := file.read(READ_BYTES):
                state.update(block)
    except (OSError, ValueError):
        return None
    digest = state.intdigest()
    return digest >> 64, digest & MASK


def version_pair(num_bytes: int | None, version: str) -> Pair:
    """Size and version of an object far away, as its listing tells them."""
    return (MASK if num_bytes is None else num_bytes) & MASK, xxhash.xxh3_64_intdigest(version.encode())


def pairs_of(look: Callable[[bytes], Pair | None], paths: Sequence[bytes]) -> tuple[Words, list[int]]:
    """What ``look`` finds for each path, [N, 2], and the numbers of those where it finds nothing.

    With ``stat_pair`` nine tenths of the time are the system's.
    """
    found = array("Q")
    append = found.append
    missing = []
    for i, path in enumerate(paths):
        pair = look(path)
        if pair is None:
            missing.append(i)
            pair = (0, 0)
        append(pair[0])
        append(pair[1])
    return np.frombuffer(found, np.uint64).reshape(-1, 2), missing


def column_words(column: Column) -> Words:
    """One word per value: a number's own bits, a string's hash."""
    if not isinstance(column, Strings):
        return column.view(np.uint64)
    return np.fromiter(map(xxhash.xxh3_64_intdigest, column.encoded()), np.uint64, len(column))


def column_word(column: Column, i: int) -> int:
    """``column_words(column)[i]``."""
    if not isinstance(column, Strings):
        return int(column[i].view(np.uint64))
    return xxhash.xxh3_64_intdigest(column[i].encode())


def mix(seed: int, words: Iterable[Words]) -> Words:
    """The fingerprints, [N, 2], of samples given as columns of words, each [N]."""
    lanes = np.array([[seed, seed ^ SECOND_LANE]], np.uint64)
    for word in words:
        lanes = (lanes ^ word[:, np.newaxis]) + np.uint64(0x9E3779B97F4A7C15)
        lanes = (lanes ^ (lanes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        lanes = (lanes ^ (lanes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        lanes ^= lanes >> np.uint64(31)
    return lanes


def mix_one(seed: int, words: Sequence[int]) -> bytes:
    """``mix`` for one sample, as bytes."""
    lanes = 0
    for place, start in ((0, seed), (64, seed ^ SECOND_LANE)):
        x = start
        for word in words:
            x = ((x ^ word) + 0x9E3779B97F4A7C15) & MASK
            x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
            x ^= x >> 31
        lanes |= x << place
    return lanes.to_bytes(16, "little")
