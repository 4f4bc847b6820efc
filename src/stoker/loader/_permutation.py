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
    key = 0
    for part in parts:
        key = _mixed((key + _GOLDEN + int(part)) & _MASK)
    return key


def _mixed(value: int) -> int:
    """`mix` of a single number, for which Python is quicker than numpy."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        value = (value ^ (value >> shift)) * factor & _MASK
    return value


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
        run = self._pass
        if len(positions) > 2 * int(self._high_mask):  # so many that no half goes unasked for
            run = functools.partial(self._pass_by_tables, self._tables())
        found = run(positions.astype(np.uint64))
        outside = np.flatnonzero(found >= self.size)
        while len(outside):
            found[outside] = run(found[outside])
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

    def _tables(self) -> list[NDArray[np.uint64]]:
        """What each round makes of each half that there can be."""
        low, high = (np.arange(int(mask) + 1, dtype=np.uint64) for mask in (self._low_mask, self._high_mask))
        even = [mix(low + key) & self._high_mask for key in self._keys[::2]]
        odd = [mix(high + key) & self._low_mask for key in self._keys[1::2]]
        return [table for pair in zip(even, odd, strict=True) for table in pair]

    def _pass_by_tables(
        self, tables: list[NDArray[np.uint64]], number: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        """The same: looked up, a round takes a quarter of the time."""
        high, low = number >> self._low_bits, number & self._low_mask
        for even, odd in zip(tables[::2], tables[1::2], strict=True):
            high ^= even.take(low.view(np.int64), mode="clip")  # quicker than a look at every index
            low ^= odd.take(high.view(np.int64), mode="clip")
        high <<= self._low_bits
        high |= low
        return high


@functools.lru_cache(maxsize=64)
def _small_permutation(size: int, key: int) -> NDArray[np.int64]:
    return np.argsort(mix(np.arange(size, dtype=np.uint64) + np.uint64(key)))
