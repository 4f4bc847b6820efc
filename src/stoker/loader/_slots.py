"""Buffers that batches are read into, used again only when nobody can see them any more.

A batch given to the user is a tensor over a slot's array. Tensors and views of it share one storage,
which holds one reference to the array: its reference count tells whether any part of the batch is
still in use. A kept batch therefore never changes, and a plain loop never allocates.
"""

import sys
import threading
from collections.abc import Callable

from stoker.store._samples import Array

Slot = dict[str, Array]


class Slots:
    """A pool of equal slots that grows when all are in use.

    The slot that became free last is used first: what it held may still be in the processor's cache.
    """

    def __init__(self, allocate: Callable[[], Slot]) -> None:
        self._allocate = allocate
        self._num_slots = 0
        self._free: list[Slot] = []  # given back by us; the user may still see some of them
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._num_slots

    def take(self) -> Slot:
        """A slot that nobody sees; from any thread."""
        with self._lock:
            for place in range(len(self._free) - 1, -1, -1):
                if not _in_use(self._free[place]):
                    return self._free.pop(place)
            self._num_slots += 1
        return self._allocate()

    def give_back(self, slot: Slot) -> None:
        """We are done with the slot; it is free as soon as the user is."""
        with self._lock:
            self._free.append(slot)


def _in_use(slot: Slot) -> bool:
    """Whether anybody but the slot itself holds one of its arrays."""
    # the slot's dict, the loop variable, and getrefcount's own argument
    return any(sys.getrefcount(array) > 3 for array in slot.values())
