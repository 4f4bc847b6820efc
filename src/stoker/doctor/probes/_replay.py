"""Batches that are given again: first from the host's memory, then, copied once, from the device's.

What remains of a step's time when data is always there is the ceiling of everything a better loader
could bring. A few batches are kept during warm-up; the ones that the loop was given, not clones, for
they cost nothing. A loop that changes its batches in place gets clones, restored before each use.
"""

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

MAX_KEPT = 8
MAX_KEPT_BYTES = 256 << 20  # beyond it, no more than two
MAX_LEAVES = 64  # of a batch, looked at in every step
NO_ADDRESS = -1


def tensors_of(batch: Any) -> list[Tensor]:
    """The tensors of a batch, as far as it is made of dicts, lists and tuples."""
    return [leaf for leaf in _leaves(batch, 4) if isinstance(leaf, Tensor)]


def pointers_of(batch: Any) -> set[int]:
    """Addresses of the memory that a batch's tensors and arrays lie in."""
    return look_at(batch)[0]


def look_at(batch: Any) -> tuple[set[int], int | None]:
    """Addresses of a batch's memory, and the length of its first tensor or array. Asked in every step."""
    if type(batch) is list and len(batch) == 2 and type(batch[0]) is type(batch[1]) is Tensor:
        return _look_at_pair(*batch)
    leaves = list(_leaves(batch, 4))
    found = {
        address_of(leaf) if isinstance(leaf, Tensor) else leaf.ctypes.data for leaf in leaves[:MAX_LEAVES]
    }
    found.discard(NO_ADDRESS)
    if not leaves or not leaves[0].ndim:
        return found, None
    return found, leaves[0].shape[0]


def _look_at_pair(x: Tensor, y: Tensor) -> tuple[set[int], int | None]:
    """The same of what nearly every batch is, in about half the time."""
    try:
        first = address_of(x) if x.storage_offset() else x.data_ptr()
        second = address_of(y) if y.storage_offset() else y.data_ptr()
    except (RuntimeError, NotImplementedError):
        first, second = address_of(x), address_of(y)
    found = {first, second}
    found.discard(NO_ADDRESS)
    return found, x.shape[0] if x.ndim else None


def address_of(tensor: Tensor) -> int:
    """Of the memory that it is a view of; or none, if it is sparse, nested, or inside a function transform.

    Reckoned, because `untyped_storage()` makes an object, which takes as long as all the rest.
    """
    try:
        return tensor.data_ptr() - int(tensor.storage_offset()) * tensor.element_size()
    except (RuntimeError, NotImplementedError):
        return NO_ADDRESS


def num_samples_of(batch: Any) -> int | None:
    """Length of the first tensor or array; None for a batch that has none."""
    return look_at(batch)[1]


class KeptBatches:
    """A few batches of one loader."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []
        self._offered: deque[_Kept] = deque()
        self._num_bytes = 0
        self._position = 0
        self.in_place = False  # the loop changes what it is given

    def __len__(self) -> int:
        return len(self._kept)

    def offer(self, batch: Any) -> None:
        """Keep a batch that is about to be given to the loop, unless there are enough."""
        num_bytes = sum(tensor.nbytes for tensor in tensors_of(batch))
        held = len(self._kept) + len(self._offered)
        is_full = held >= MAX_KEPT or (held >= 2 and self._num_bytes + num_bytes > MAX_KEPT_BYTES)
        if not is_full:
            self._offered.append(_Kept(batch, num_bytes=num_bytes, clones=self.in_place))

    def settle(self, *, is_last: bool = False) -> None:
        """Decide on batches that the loop is done with: all but the last, which it may have fetched ahead."""
        while len(self._offered) > (0 if is_last else 1):
            offered = self._offered.popleft()
            if offered.was_changed():
                self.in_place = True
            elif not self._kept or offered.num_samples == self._kept[0].num_samples:  # no epoch's short last
                self._kept.append(offered)
                self._num_bytes += offered.num_bytes
        if is_last:
            self._kept = [kept for kept in self._kept if kept.is_intact()]

    def give(self) -> Any:
        """The next batch, in turn; there must be one."""
        kept = self._kept[self._position % len(self._kept)]
        self._position += 1
        return kept.give()

    def pointers(self) -> set[int]:
        """Memory of all kept batches, which lives as long as they do."""
        return set().union(*(pointers_of(kept.batch) for kept in self._kept))


class _Kept:
    def __init__(self, batch: Any, *, num_bytes: int, clones: bool) -> None:
        self.num_bytes = num_bytes
        self.num_samples = num_samples_of(batch)
        self._pristine: list[Tensor] | None = None
        if clones:
            self._pristine = [tensor.clone() for tensor in tensors_of(batch)]
            copies = {id(tensor): tensor.clone() for tensor in tensors_of(batch)}
            self.batch = rebuilt(batch, copies)
        else:
            self.batch = rebuilt(batch, {})  # the loop may take items out of the one that it is given
        self._tensors = tensors_of(self.batch)
        self._versions = [_version(tensor) for tensor in self._tensors]

    def is_intact(self) -> bool:
        """False for one that the loop changed after all, and of which there is no clone."""
        return self._pristine is not None or not self.was_changed()

    def was_changed(self) -> bool:
        return any(
            _version(tensor) != version for tensor, version in zip(self._tensors, self._versions, strict=True)
        )

    def give(self) -> Any:
        if self._pristine is not None and self.was_changed():
            for tensor, pristine in zip(self._tensors, self._pristine, strict=True):
                tensor.copy_(pristine)
            self._versions = [_version(tensor) for tensor in self._tensors]
        return rebuilt(self.batch, {})


class DeviceResults:
    """Results of copies of kept batches, given again when the same copy is asked for."""

    def __init__(self, pointers: set[int]) -> None:
        self._pointers = pointers
        self._results: dict[Any, tuple[Tensor, int, Tensor]] = {}

    def holds(self, pointer: int) -> bool:
        """True for memory of a kept batch, or of a result: neither is freed, so no one else has it."""
        return pointer in self._pointers

    def get(self, key: Any) -> Tensor | None:
        """The result of an earlier copy, if the loop has not changed it in place since."""
        found = self._results.get(key)
        return found[0] if found is not None and _version(found[0]) == found[1] else None

    def put(self, key: Any, result: Tensor, source: Tensor) -> None:
        """Remember a copy. `source` is held with it, so that its memory stays its own."""
        self._results[key] = (result, _version(result), source)
        self._pointers.add(address_of(result))


def rebuilt(batch: Any, copies: Mapping[int, Tensor]) -> Any:
    """The same batch in new containers; tensors are the same, or those of `copies` by their id."""
    if isinstance(batch, Tensor):
        return copies.get(id(batch), batch)
    if isinstance(batch, dict) and type(batch) is dict:
        return {key: rebuilt(value, copies) for key, value in batch.items()}
    if isinstance(batch, list) and type(batch) is list:
        return [rebuilt(value, copies) for value in batch]
    if isinstance(batch, tuple):
        items = [rebuilt(value, copies) for value in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else tuple(items)
    if batch is None or isinstance(batch, str | bytes | int | float | np.ndarray):
        return batch
    try:
        return copy.copy(batch)
    except Exception:  # noqa: BLE001 - a class of the user's; then the object itself is given again
        return batch


def _leaves(batch: Any, depth: int) -> Iterator[Any]:
    kind = type(batch)
    if kind is Tensor or kind is np.ndarray or isinstance(batch, Tensor):
        yield batch
    elif depth and kind is not str:
        if isinstance(batch, Mapping):
            for value in batch.values():
                yield from _leaves(value, depth - 1)
        elif isinstance(batch, list | tuple):
            for value in batch[:MAX_LEAVES]:
                yield from _leaves(value, depth - 1)


def _version(tensor: Tensor) -> int:
    try:
        return int(tensor._version)  # noqa: SLF001 - autograd's count of changes in place
    except RuntimeError:  # made in inference mode: not counted
        return 0
