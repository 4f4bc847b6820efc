"""Reading batches out of a store: one gather a field into a given buffer, from any thread.

Fields of one shape in uncompressed shards are stacked into one mapped array, and a batch is one
``numpy.take``. Whatever cannot be stacked (compressed, smaller than a page, too many shards) is
gathered shard by shard. Ragged fields and text are read batch by batch.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stoker.errors import BadSampleError, DamagedStoreError, UsageError
from stoker.loader._course import Data
from stoker.loader._windows import Windows
from stoker.store._manifest import FieldSpec, shard_path
from stoker.store._samples import Array
from stoker.store._stacked import Range, StackedColumn, stack
from stoker.store._store import Store

_MAX_STACKED_SHARDS = 8192  # a mapping each, of the 65,530 that Linux allows a process


class Reader(Data, Protocol):
    """Data that threads can gather from."""

    fixed: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]  # fields of one shape

    def read_fixed(
        self, numbers: NDArray[np.int64], out: Mapping[str, Array], *, seed: int, epoch: int
    ) -> None:
        """Fill the first ``len(numbers)`` rows of every buffer in ``out``; thread-safe."""

    def read_rest(self, numbers: NDArray[np.int64]) -> dict[str, Any]:
        """The other fields of one batch: lists of arrays or strings."""

    num_parts: int  # that can be brought into memory one by one
    num_bytes: int  # of all of them

    def populate(self, part: int) -> None:
        """Bring a part into memory, as far as it is mapped."""


class StoreReader:
    """Reads a store, or a split or selection of one."""

    def __init__(self, store: Store, fields: tuple[str, ...] | None) -> None:
        self.store = store
        chosen = _chosen(store, fields)
        self.identity = f"{store.content_digest}:{len(store)}:{','.join(chosen)}"
        self.fixed: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            name: (np.dtype(spec.dtype), _sizes(spec)) for name, spec in chosen.items() if not spec.ragged
        }
        self._rest = [name for name, spec in chosen.items() if spec.ragged]
        self._numbers = None if len(store.numbers) == len(store.index) else store.numbers
        self.num_parts = len(store.manifest.shards)
        self.num_bytes = sum(entry.num_bytes for entry in store.manifest.shards)
        self._num_rows = np.array([entry.num_samples for entry in store.manifest.shards], np.uint32)
        self._fields = {name: self._open(name) for name in self.fixed}

    def __len__(self) -> int:
        return len(self.store)

    def key(self, number: int) -> str:
        """The sample's key in the store."""
        return self.store.key(number)

    def read_fixed(
        self,
        numbers: NDArray[np.int64],
        out: Mapping[str, Array],
        *,
        seed: int,  # noqa: ARG002 - nothing random here
        epoch: int,  # noqa: ARG002
    ) -> None:
        """One gather a field."""
        shard, row = self._places(numbers)
        for name, buffer in out.items():
            self._fields[name].gather(shard, row, buffer[: len(numbers)])

    def read_rest(self, numbers: NDArray[np.int64]) -> dict[str, Any]:
        """Ragged fields and text."""
        if not self._rest:
            return {}
        shard, row = self._places(numbers)
        return {name: list(self.store.shards.column(shard, row, name)) for name in self._rest}

    def populate(self, part: int) -> None:
        """Read a shard's mapped fields in one go and map their pages."""
        for field in self._fields.values():
            field.populate(part)

    def _places(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Shard and row of each sample; an index that points elsewhere goes no further."""
        whole = numbers if self._numbers is None else self._numbers[numbers]
        shard, row = self.store.index.shard[whole], self.store.index.row[whole]
        if len(shard) and (shard.max() >= len(self._num_rows) or (row >= self._num_rows[shard]).any()):
            raise DamagedStoreError("the index points outside the shards; run `stoker verify`")
        return shard, row

    def _open(self, name: str) -> "_Gather":
        entries = self.store.manifest.shards
        if len(entries) <= _MAX_STACKED_SHARDS and all(name in entry.offsets for entry in entries):
            ranges = [
                Range(
                    shard_path(self.store.path, entry.digest),
                    entry.num_bytes,
                    entry.offsets[name],
                    entry.num_samples,
                )
                for entry in entries
            ]
            stacked = stack(ranges, self.fixed[name][1], self.fixed[name][0])
            if stacked is not None:
                return _Stacked(stacked)
        return _ByShard(self.store, name)


class WindowReader:
    """Reads windows over sessions; see ``stoker.windows``."""

    num_parts = 0  # nothing is brought in ahead of use
    num_bytes = 0

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.identity = windows.identity
        self.fixed: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]] = windows.fields

    def __len__(self) -> int:
        return len(self._windows)

    def key(self, number: int) -> str:
        """Session and start."""
        return self._windows.key(number)

    def read_fixed(
        self, numbers: NDArray[np.int64], out: Mapping[str, Array], *, seed: int, epoch: int
    ) -> None:
        """Copies of slices, moved by the jitter of (seed, epoch, window)."""
        self._windows.read_into(numbers, dict(out), seed=seed, epoch=epoch)

    def read_rest(self, numbers: NDArray[np.int64]) -> dict[str, Any]:  # noqa: ARG002 - windows are all alike
        """Nothing."""
        return {}

    def populate(self, part: int) -> None:
        """Nothing."""


class _Gather(Protocol):
    def gather(self, shard: NDArray[Any], row: NDArray[Any], out: Array) -> None: ...

    def populate(self, number: int) -> None: ...


class _Stacked:
    """One take from the stacked array."""

    def __init__(self, stacked: StackedColumn) -> None:
        self._stacked = stacked

    def gather(self, shard: NDArray[Any], row: NDArray[Any], out: Array) -> None:
        rows = self._stacked.first_row[shard] + row
        # "clip" spares a copy; the rows were checked before
        np.take(self._stacked.array, rows, axis=0, out=out, mode="clip")

    def populate(self, number: int) -> None:
        self._stacked.populate(number)


class _ByShard:
    """A gather for each shard that has some of the rows."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def gather(self, shard: NDArray[Any], row: NDArray[Any], out: Array) -> None:
        for number in np.unique(shard):
            here = shard == number
            field = self._store.shards[int(number)].fields[self._name]
            out[here] = np.asarray(field.values(row[here].astype(np.int64)))

    def populate(self, number: int) -> None:
        pass


def bad_sample(reader: Reader, number: int, error: Exception) -> BadSampleError:
    """The error that names the sample which cannot be read."""
    return BadSampleError(reader.key(number), f"{type(error).__name__}: {error}")


def _chosen(store: Store, fields: tuple[str, ...] | None) -> dict[str, FieldSpec]:
    if fields is None:
        return store.fields
    unknown = [name for name in fields if name not in store.fields]
    if unknown:
        raise UsageError(f"there is no field {unknown[0]!r}; there are {sorted(store.fields)}")
    return {name: store.fields[name] for name in fields}


def _sizes(spec: FieldSpec) -> tuple[int, ...]:
    return tuple(size for size in spec.shape if size is not None)
