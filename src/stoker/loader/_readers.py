"""Reading batches out of a store: one gather a field into a given buffer, from any thread.

Fields of one shape in uncompressed shards are stacked into one mapped array, and a batch is one copy of
some of its rows. Whatever cannot be stacked (compressed, smaller than a page, too many shards) is
gathered shard by shard. Ragged fields and text are read batch by batch.
"""

import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.config import available_memory_bytes
from stoker.errors import BadSampleError, DamagedStoreError, UsageError
from stoker.loader._arrivals import Arrivals, FetchAhead, ahead_of
from stoker.loader._copying import RowCopier
from stoker.loader._course import Course, Data
from stoker.loader._windows import Windows
from stoker.store._layout import Column, MappedColumn, check_size
from stoker.store._manifest import FieldSpec, shard_path
from stoker.store._mapping import populate
from stoker.store._samples import Array
from stoker.store._stacked import Range, StackedColumn, stack
from stoker.store._store import Store
from stoker.store.remote import RemoteShards

_CHECK_S = 0.5  # between two looks at the sizes of all shards
_SMALL_BYTES = 64  # of a value that is copied twice rather than taken block by block
_MAX_STACKED_SHARDS = 8192  # a mapping each, of the 65,530 that Linux allows a process


class Reader(Data, Protocol):
    """Data that threads can gather from."""

    fixed: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]  # fields of one shape
    has_rest: bool  # whether there are others
    rest_bytes: int  # of a sample's others in a batch, about
    at_memory_speed: bool  # whether reading is nothing but copying

    def check(self) -> None:
        """Raise DamagedStoreError if the data cannot be read safely any more."""

    def expect(self, num_bytes: int, in_turn_bytes: int) -> None:
        """Be told, before an epoch, how much it reads, and how large the buffers are that take turns."""

    def locate(self, numbers: NDArray[np.int64]) -> Any:
        """Where these samples lie: something with a length that can be sliced, for the others here."""

    def read_fixed(self, places: Any, out: Mapping[str, Array], *, seed: int, epoch: int) -> None:
        """Fill the first ``len(places)`` rows of every buffer in ``out``; thread-safe."""

    def read_rest(self, places: Any) -> dict[str, Any]:
        """The other fields of one batch: lists of strings, or of arrays that may be read-only views."""

    def ahead(self, course: Course) -> "Ahead | None":
        """Begin to fetch what the course needs, where it is far away; ended by ``close``."""

    num_parts: int  # that can be brought into memory one by one
    num_bytes: int  # of all of them

    def populate(self, part: int) -> None:
        """Bring a part into memory, as far as it is mapped."""


class Ahead(Protocol):
    """Something that fetches ahead of use."""

    def close(self) -> None:
        """End it."""


class StoreReader:
    """Reads a store, or a split or selection of one."""

    def __init__(self, store: Store, fields: tuple[str, ...] | None) -> None:
        self.store = store
        chosen = _chosen(store, fields)
        self._numbers = None if store.is_whole else store.numbers
        selected = "all" if self._numbers is None else xxhash.xxh3_64_hexdigest(self._numbers.tobytes())
        self.identity = f"{store.content_digest}:{selected}:{','.join(chosen)}"
        self.fixed: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            name: (np.dtype(spec.dtype), _sizes(spec)) for name, spec in chosen.items() if not spec.ragged
        }
        self._rest = [name for name, spec in chosen.items() if spec.ragged]
        self.has_rest = bool(self._rest)
        self.rest_bytes = _rest_bytes(store) if self.has_rest else 0
        self.num_parts = len(store.manifest.shards)
        self.num_bytes = sum(entry.num_bytes for entry in store.manifest.shards)
        self._num_rows = np.array([entry.num_samples for entry in store.manifest.shards], np.uint32)
        self._arrivals: Arrivals | None = None
        self._ahead: FetchAhead | None = None
        if isinstance(store.shards, RemoteShards):
            self.num_parts = 0  # what comes is in memory anyway
            self._fields = self._open_remote(store.shards)
        else:
            self._fields = {name: self._open(name, mapped=True) for name in self.fixed}
        self._checked = time.monotonic()
        stacked = all(isinstance(field, _Stacked) for field in self._fields.values())
        self.at_memory_speed = stacked and not self._rest

    def __len__(self) -> int:
        return len(self.store)

    def key(self, number: int) -> str:
        """The sample's key in the store."""
        return self.store.key(number)

    def check(self) -> None:
        """That no shard was cut short: reading a mapping beyond its file's end kills the process.

        One that was removed can still be read.
        """
        for entry in self.store.shards.entries:
            path = shard_path(self.store.path, entry.digest)
            with contextlib.suppress(FileNotFoundError):
                check_size(path, path.stat().st_size, entry.num_bytes)
        self._checked = time.monotonic()

    def expect(self, num_bytes: int, in_turn_bytes: int) -> None:
        """Copy large samples in the way that is best for so much."""
        for field in self._fields.values():
            if isinstance(field, _Stacked):
                field.copier.expect(num_bytes, in_turn_bytes)

    def locate(self, numbers: NDArray[np.int64]) -> "_Places":
        """Shard and row of each sample; an index that points elsewhere goes no further."""
        if time.monotonic() > self._checked + _CHECK_S:
            self.check()
        whole = numbers if self._numbers is None else self._numbers[numbers]
        shard, row = self.store.index.shard[whole], self.store.index.row[whole]
        try:
            inside = bool((row < self._num_rows[shard]).all())
        except IndexError:
            inside = False
        if not inside:
            raise DamagedStoreError("the index points outside the shards; run `stoker verify`")
        fields = self._fields.items()
        return _Places(shard, row, {name: field.locate(shard, row) for name, field in fields})

    def read_fixed(
        self,
        places: "_Places",
        out: Mapping[str, Array],
        *,
        seed: int,  # noqa: ARG002 - nothing random here
        epoch: int,  # noqa: ARG002
    ) -> None:
        """One gather a field."""
        if self._ahead is not None:
            self._ahead.advance(len(places))
        if self._arrivals is not None:
            self._arrivals.wait_for(places.shard, None if self._ahead is None else self._ahead.stop)
        elif isinstance(self.store.shards, RemoteShards):
            self._read_by_shard(places, out)
            return
        for name, buffer in out.items():
            self._fields[name].gather(places, name, buffer[: len(places)])

    def read_rest(self, places: "_Places") -> dict[str, Any]:
        """Ragged fields and text."""
        return {name: self.store.shards.views(places.shard, places.row, name) for name in self._rest}

    def populate(self, part: int) -> None:
        """Read a shard's mapped fields in one go and map their pages."""
        if self._arrivals is not None:
            self._arrivals.bring(part, None)
        will_stay = fits_in_memory(self.num_bytes)
        for field in self._fields.values():
            field.populate(part, huge=will_stay)
        for column in self.rest_columns(part).values():
            if isinstance(column, MappedColumn):
                populate(column.array, huge=will_stay)

    def rest_columns(self, part: int) -> dict[str, Column]:
        """Where a shard, which is opened, keeps ragged fields and text; nothing of one that is far away."""
        if isinstance(self.store.shards, RemoteShards) or not self._rest:
            return {}
        fields = self.store.shards[part].fields
        return {name: fields[name].column for name in self._rest}

    def ahead(self, course: Course) -> "Ahead | None":
        """The shards of a remote store, in the order of their use."""
        shards = self.store.shards
        if not isinstance(shards, RemoteShards):
            return None
        bring = shards.fetch if self._arrivals is None else self._arrivals.bring
        self._ahead = None
        if self._arrivals is not None and self._arrivals.has(self._used):
            return None
        self._ahead = ahead_of(course, self.store, bring)
        return self._ahead

    def _open_remote(self, shards: RemoteShards) -> "dict[str, _Gather]":
        """Columns that are mapped shard by shard, if the cache can hold all that this view needs."""
        self._used = self.store.used_shards
        if not shards.fits(self._used.tolist()):
            return {name: _ByShard(self.store) for name in self.fixed}
        fields = {name: self._open(name, mapped=False) for name in self.fixed}
        stacked = [field.stacked for field in fields.values() if isinstance(field, _Stacked)]
        self._arrivals = Arrivals(shards, stacked, populate=fits_in_memory(self.num_bytes))
        return fields

    def _read_by_shard(self, places: "_Places", out: Mapping[str, Array]) -> None:
        """All fields of one shard before the next: the cache may be too small to come back to it."""
        for number in np.unique(places.shard).tolist():
            here = np.flatnonzero(places.shard == number)
            fields, rows = self.store.shards[number].fields, places.row[here].astype(np.int64)
            for name, buffer in out.items():
                buffer[here] = np.asarray(fields[name].values(rows))

    def _open(self, name: str, *, mapped: bool) -> "_Gather":
        entries = self.store.manifest.shards
        if len(entries) <= _MAX_STACKED_SHARDS and all(name in entry.offsets for entry in entries):
            ranges = [
                Range(
                    shard_path(self.store.path, file.digest),
                    entry.num_bytes,
                    entry.offsets[name],
                    entry.num_samples,
                )
                for entry, file in zip(entries, self.store.shards.entries, strict=True)
            ]
            stacked = stack(ranges, self.fixed[name][1], self.fixed[name][0], mapped=mapped)
            if stacked is not None:
                # those of shards that are not there yet must not be looked at ahead of time
                is_small = mapped and stacked.row_bytes <= _SMALL_BYTES
                return _StackedSmall(stacked) if is_small else _Stacked(stacked)
        return _ByShard(self.store)


class WindowReader:
    """Reads windows over sessions; see ``stoker.windows``."""

    num_parts = 0  # nothing is brought in ahead of use
    num_bytes = 0
    has_rest = False
    rest_bytes = 0

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.at_memory_speed = windows.at_memory_speed
        self.identity = windows.identity
        self.fixed: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]] = windows.fields

    def __len__(self) -> int:
        return len(self._windows)

    def key(self, number: int) -> str:
        """Session and start."""
        return self._windows.key(number)

    def check(self) -> None:
        """Nothing is mapped for longer than a read."""

    def expect(self, num_bytes: int, in_turn_bytes: int) -> None:
        """Windows are copied one by one."""

    def locate(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers themselves."""
        return numbers

    def read_fixed(
        self,
        places: NDArray[np.int64],
        out: Mapping[str, Array],
        *,
        seed: int,
        epoch: int,
    ) -> None:
        """Copies of slices, moved by the jitter of (seed, epoch, window)."""
        self._windows.read_into(places, dict(out), seed=seed, epoch=epoch)

    def read_rest(self, places: NDArray[np.int64]) -> dict[str, Any]:  # noqa: ARG002 - windows are all alike
        """Nothing."""
        return {}

    def ahead(self, course: Course) -> "Ahead | None":  # noqa: ARG002
        """Sessions of a remote store come when they are needed."""
        return None

    def populate(self, part: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class _Places:
    """Where some samples lie, and for each field what its gather made of that."""

    shard: NDArray[np.uint32]
    row: NDArray[np.uint32]
    fields: dict[str, Array]

    def __len__(self) -> int:
        return len(self.shard)

    def __getitem__(self, part: slice) -> "_Places":
        fields = {name: array[part] for name, array in self.fields.items()}
        return _Places(self.shard[part], self.row[part], fields)


class _Gather(Protocol):
    """Reads one field, in two steps: for many samples at once what is cheap, then block by block."""

    def locate(self, shard: NDArray[Any], row: NDArray[Any]) -> Array: ...

    def gather(self, places: _Places, name: str, out: Array) -> None: ...

    def populate(self, number: int, *, huge: bool) -> None: ...


class _Stacked:
    """Takes rows of the stacked array."""

    def __init__(self, stacked: StackedColumn) -> None:
        self.stacked = stacked
        self.copier = RowCopier(stacked.row_bytes)

    def locate(self, shard: NDArray[Any], row: NDArray[Any]) -> Array:
        """The rows to take."""
        rows: NDArray[np.int64] = self.stacked.first_row[shard] + row
        return rows

    def gather(self, places: _Places, name: str, out: Array) -> None:
        self.copier.copy(self.stacked.array, places.fields[name], out)  # rows that were checked before

    def populate(self, number: int, *, huge: bool) -> None:
        self.stacked.populate(number, huge=huge)


class _StackedSmall(_Stacked):
    """Takes small values, such as labels, for many samples at once."""

    def locate(self, shard: NDArray[Any], row: NDArray[Any]) -> Array:
        """The values."""
        return self.stacked.array.take(super().locate(shard, row), axis=0, mode="clip")

    def gather(self, places: _Places, name: str, out: Array) -> None:
        out[:] = places.fields[name]


class _ByShard:
    """A gather for each shard that has some of the rows."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def locate(self, shard: NDArray[Any], row: NDArray[Any]) -> Array:  # noqa: ARG002 - these are enough
        return shard

    def gather(self, places: _Places, name: str, out: Array) -> None:
        for number in np.unique(places.shard):
            here = places.shard == number
            field = self._store.shards[int(number)].fields[name]
            out[here] = np.asarray(field.values(places.row[here].astype(np.int64)))

    def populate(self, number: int, *, huge: bool) -> None:
        pass


def fits_in_memory(num_bytes: int) -> bool:
    """Whether so much can stay in memory, with as much again for everything else."""
    return num_bytes < available_memory_bytes() // 2


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


def _rest_bytes(store: Store) -> int:
    """Twice the mean of a sample's ragged fields and text, as batches are padded to their longest."""
    specs = [spec for spec in store.fields.values() if not spec.ragged]
    fixed = sum(np.dtype(spec.dtype).itemsize * math.prod(_sizes(spec)) for spec in specs)
    shards = store.manifest.shards
    num_samples = sum(entry.num_samples for entry in shards)
    return max(0, 2 * (sum(entry.value_bytes for entry in shards) // max(1, num_samples) - fixed))


def _sizes(spec: FieldSpec) -> tuple[int, ...]:
    return tuple(size for size in spec.shape if size is not None)
