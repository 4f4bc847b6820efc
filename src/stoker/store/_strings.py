"""A read-only sequence of strings in two arrays instead of a million Python objects.

Keys, paths and string fields live in this form on disk (``values`` + ``offsets``) and in memory:
8 bytes a string beyond its text, nothing for the garbage collector to visit, nothing for a forked
worker to copy by touching reference counts.
"""

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

_BLOCK = 65536  # strings cut at a time


class Strings(Sequence[str]):
    """Strings as UTF-8 ``values`` (uint8 [total]) cut at ``offsets`` (int64 [N + 1])."""

    def __init__(self, values: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self.values = values
        self.offsets = offsets

    @classmethod
    def of(cls, strings: Iterable[str]) -> "Strings":
        """The table of the given strings."""
        values, sizes = bytearray(), array("q", [0])
        listed = iter(strings)
        while block := list(itertools.islice(listed, _BLOCK)):
            text = "".join(block)
            values += text.encode()
            # one byte a character, or each string encoded to learn its size
            sizes.extend(map(len, block if text.isascii() else map(str.encode, block)))
        return cls(np.frombuffer(values, np.uint8), np.cumsum(np.frombuffer(sizes, np.int64)))

    @classmethod
    def numbers(cls, count: int, width: int) -> "Strings":
        """The numbers below `count`, each in so many digits, which must be enough."""
        digits = np.empty((count, width), np.uint8)
        for first in range(0, count, _BLOCK):
            block = digits[first : first + _BLOCK]
            left = np.arange(first, first + len(block))
            for place in range(width - 1, -1, -1):
                left, block[:, place] = np.divmod(left, 10)
        digits += ord("0")
        return cls(digits.reshape(-1), np.arange(0, (count + 1) * width, width))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, item: int) -> str: ...
    @overload
    def __getitem__(self, item: slice) -> list[str]: ...
    def __getitem__(self, item: int | slice) -> str | list[str]:
        if isinstance(item, slice):
            return [self[i] for i in range(*item.indices(len(self)))]
        count = len(self)
        i = item + count if item < 0 else item
        if not 0 <= i < count:
            raise IndexError(f"string number {item} of {count}")
        return self.values[self.offsets[i] : self.offsets[i + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        return (text.decode() for text in self.encoded())

    def encoded(self) -> Iterator[bytes]:
        """Every string as UTF-8."""
        for first in range(0, len(self), _BLOCK):
            cuts = self.offsets[first : first + _BLOCK + 1]
            text = self.values[cuts[0] : cuts[-1]].tobytes()
            inside = (cuts - cuts[0]).tolist()
            yield from map(text.__getitem__, map(slice, inside, inside[1:]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Strings):
            return NotImplemented
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]  # compares by content, like the arrays in it
