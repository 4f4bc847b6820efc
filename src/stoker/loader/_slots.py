"""Buffers that batches are read into, used again only when nobody can see them any more.

A batch given to the user is a tensor over a slot's array. Tensors and views of it share one storage,
which holds one reference to the array: its reference count tells whether any part of the batch is
still in use. A kept batch therefore never changes, and a plain loop never allocates.
"""

import sys
from collections.abc import Callable

from stoker.store._samples import Array

Slot = dict[str, Array]


class Slots:
    """A pool of equal slots that grows when all are in use."""

    def __init__(self, allocate: Callable[[], Slot]) -> None:
        self._allocate = allocate
        self._slots: list[Slot] = []
        self._taken: set[int] = set()  # by position; being filled or handed out by us

    def __len__(self) -> int:
        return len(self._slots)

    def take(self) -> tuple[int, Slot]:
        """A slot that nobody sees, and its number."""
        for number, slot in enumerate(self._slots):
            if number not in self._taken and not _in_use(slot):
                self._taken.add(number)
                return number, slot
        self._slots.append(self._allocate())
        number = len(self._slots) - 1
        self._taken.add(number)
        return number, self._slots[number]

    def give_back(self, number: int) -> None:
        """We are done with the slot; it is free as soon as the user is."""
        self._taken.discard(number)


def _in_use(slot: Slot) -> bool:
    """Whether anybody but the pool holds one of the slot's arrays."""
    # the slot's dict, the loop variable, and getrefcount's own argument
    return any(sys.getrefcount(array) > 3 for array in slot.values())
