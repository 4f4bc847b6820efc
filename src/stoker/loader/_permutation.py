"""A permutation of n numbers as a function: any position at once, in O(1) memory.

A Feistel network permutes the numbers of b bits, the fewest that hold n. What falls outside n is
sent through again until it falls inside (cycle walking): still a permutation, of just the n
numbers, and fewer than two passes on average.

Shape: everything here works on arrays of positions, uint64 [K].
"""

import functools

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6  # with half the bits each; four are enough in theory (Luby and Rackoff)
_SMALL = 4096  # so few are sorted by a hash: a Feistel network of few bits is not random enough
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 0xFFFFFFFFFFFFFFFF


def mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 well-stirred bits of each number (SplitMix64's finaliser)."""
    value = value ^ (value >> np.uint64(30))
    value *= np.uint64(0xBF58476D1CE4E5B9)  # in place from here on: half the time of new arrays
    value ^= value >> np.uint64(27)
    value *= np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return value


def derive(*parts: int) -> int:
    """A key from several numbers, such as seed, epoch and purpose; each counts, in its place."""
    key = np.uint64(0)
    for part in parts:
        key = mix(np.array([(int(key) + _GOLDEN + (part & _MASK)) & _MASK], np.uint64))[0]
    return int(key)


class Permutation:
    """A permutation of ``range(size)`` that depends on ``key`` alone."""

    def __init__(self, size: int, key: int) -> None:
        self.size = size
        self._table = _small_permutation(size, key) if size <= _SMALL else None
        bits = max(2, (size - 1).bit_length())
        self._low_bits = np.uint64(bits // 2)
        self._low_mask = np.uint64((1 << (bits // 2)) - 1)
        self._high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
        self._keys = [np.uint64(derive(key, number)) for number in range(_ROUNDS)]

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each position goes; positions are in ``range(size)``."""
        if self._table is not None:
            return self._table[positions]
        found = self._pass(positions.astype(np.uint64))
        outside = np.flatnonzero(found >= self.size)
        while len(outside):
            found[outside] = self._pass(found[outside])
            outside = outside[found[outside] >= self.size]
        return found.astype(np.int64)

    def _pass(self, number: NDArray[np.uint64]) -> NDArray[np.uint64]:
        high, low = number >> self._low_bits, number & self._low_mask
        for even, odd in zip(self._keys[::2], self._keys[1::2], strict=True):
            high ^= mix(low + even) & self._high_mask
            low ^= mix(high + odd) & self._low_mask
        high <<= self._low_bits
        high |= low
        return high


@functools.lru_cache(maxsize=64)
def _small_permutation(size: int, key: int) -> NDArray[np.int64]:
    return np.argsort(mix(np.arange(size, dtype=np.uint64) + np.uint64(key)))
