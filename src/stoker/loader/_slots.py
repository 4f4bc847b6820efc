"""Buffers that batches are read into, used again only when nobody can see them any more.

A batch given to the user is a tensor over a slot's array. Tensors and views of it share one storage,
which holds one reference to the array: its reference count tells whether any part of the batch is
still in use. A kept batch therefore never changes, and a plain loop never allocates.
"""

import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from stoker.store._memory import empty
from stoker.store._samples import Array

Slot = dict[str, Array]

_MAX_FREE = 8  # buffers of changing size that are kept for use again, when another is needed


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


class Buffers:
    """Memory for arrays of changing sizes, by the same rule."""

    def __init__(self) -> None:
        self._all: list[Array] = []  # flat, also those in use
        self._lock = threading.Lock()

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array over memory that nobody sees, with whatever it held before; from any thread."""
        num_bytes = math.prod(shape) * dtype.itemsize
        with self._lock:
            free = [self._all[place] for place in range(len(self._all)) if _is_free(self._all, place)]
            fitting = [flat for flat in free if len(flat) >= num_bytes]
            if fitting:
                found = min(fitting, key=len)
            else:
                found = empty((num_bytes + num_bytes // 4,), np.dtype(np.uint8))
                self._drop(free[:1] + free[_MAX_FREE:])  # too small, all of them
                self._all.append(found)
            return found[:num_bytes].view(dtype).reshape(shape)

    def _drop(self, flats: list[Array]) -> None:
        dropped = {id(flat) for flat in flats}
        self._all = [flat for flat in self._all if id(flat) not in dropped]


def _in_use(slot: Slot) -> bool:
    """Whether anybody but the slot itself holds one of its arrays."""
    return not all(_is_free(slot, name) for name in slot)


def _is_free(arrays: Any, place: Any) -> bool:
    """Whether nobody else refers to the array at that place of a list, or of a dict."""
    return _references(arrays, place) == _FREE


def _references(arrays: Any, place: Any) -> int:
    return sys.getrefcount(arrays[place])


_FREE = _references([np.empty(0)], 0)  # what is counted where only the list refers to it
