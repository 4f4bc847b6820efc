"""A shard: some samples in one immutable HDF5 file, named by the digest of its bytes.

/fields/x                       [N, ...]   where all samples of the shard have one shape
/fields/x/values                [total]    where they differ: flattened values,
/fields/x/offsets               [N + 1]    cut here,
/fields/x/shapes                [N, ndim]  and shaped like this (absent for text)
/index/keys/{values,offsets}               the samples' keys
/index/fingerprints             [N, 2]     of source content and transform
/index/checksums                [N, F]     of each sample and field, fields in order of /meta
/meta                                      JSON: fields, transform, moments
"""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, UnsafeStoreError
from stoker.store._checksums import as_bytes, checksum, checksum_bytes
from stoker.store._layout import Column, open_columns
from stoker.store._manifest import FieldSpec, FileEntry, shard_path
from stoker.store._moments import Moments
from stoker.store._samples import Array, Sample
from stoker.store._strings import Strings

_MAX_META_BYTES = 1 << 24
_BLOCK_ROWS = 256  # decoded at a time when all rows are checked
_MAX_CHECKED = 1 << 24  # offsets of a table that is looked through when it is opened


@dataclass(frozen=True)
class ShardMeta:
    """What a shard says of itself beside its samples."""

    transform: str
    compression: str
    fields: tuple[FieldSpec, ...]
    moments: dict[str, Moments]

    def to_array(self) -> NDArray[np.uint8]:
        """As JSON bytes."""
        data = {
            "transform": self.transform,
            "compression": self.compression,
            "fields": [field.model_dump(mode="json") for field in self.fields],
            "moments": {name: part.to_dict() for name, part in self.moments.items()},
        }
        return np.frombuffer(json.dumps(data).encode(), np.uint8)

    @classmethod
    def from_column(cls, column: Column) -> "ShardMeta":
        """From JSON bytes."""
        if column.num_bytes > _MAX_META_BYTES:
            raise UnsafeStoreError(f"a shard's description of {column.num_bytes} bytes is too large")
        data = json.loads(np.asarray(column).tobytes())
        return cls(
            transform=data["transform"],
            compression=data["compression"],
            fields=tuple(FieldSpec.model_validate(field) for field in data["fields"]),
            moments={name: Moments.from_dict(part) for name, part in data["moments"].items()},
        )


class Shard:
    """Reads one shard. Holds a mapping and no handle: safe to share between threads and forks."""

    def __init__(self, root: Path, entry: FileEntry, *, path: Path | None = None) -> None:
        self.entry = entry
        self.path = shard_path(root, entry.digest) if path is None else path
        self._columns = open_columns(self.path, entry.num_bytes)
        try:
            self.meta = ShardMeta.from_column(self._columns["meta"])
            self.keys = strings(self._columns, "index/keys", entry.num_samples)
            self.fingerprints = self._column("index/fingerprints", np.uint64, (2,))
            self.checksums = self._column("index/checksums", np.uint64, (len(self.meta.fields),))
            self.fields = {spec.name: self._field(spec) for spec in self.meta.fields}
        except DamagedStoreError:
            raise
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UnsafeStoreError(f"{self.path} is not a shard: {error!r}") from error

    @classmethod
    def of_unknown_size(cls, root: Path, name: str, num_bytes: int) -> "Shard":
        """A shard that no manifest names: the number of its samples is its own word."""
        columns = open_columns(shard_path(root, name), num_bytes)
        if "index/fingerprints" not in columns:
            raise UnsafeStoreError(f"{shard_path(root, name)} is not a shard")
        rows = len(columns["index/fingerprints"])
        return cls(root, FileEntry(digest=name, num_bytes=num_bytes, num_samples=rows))

    def __len__(self) -> int:
        return self.entry.num_samples

    def sample(self, row: int) -> Sample:
        """One sample, copied out of the mapping."""
        return {name: field.value(row) for name, field in self.fields.items()}

    def damage(self, row: int, name: str) -> str | None:
        """What is wrong with one value, or None."""
        try:
            found = self.fields[name].checksum(row)
        except (DamagedStoreError, UnicodeDecodeError) as error:
            return str(error)
        return None if found == self._expected(name)[row] else "its checksum does not fit"

    def damaged_rows(self, name: str) -> list[tuple[int, str]]:
        """Every row of a field that is not what was written, and why."""
        try:
            differ = self.fields[name].checksums() != self._expected(name)
        except (DamagedStoreError, UnicodeDecodeError):  # some row cannot even be read: find it
            differ = np.ones(len(self), bool)
        damages = ((row, self.damage(row, name)) for row in np.flatnonzero(differ).tolist())
        return [(row, why) for row, why in damages if why is not None]

    @functools.cached_property
    def checksum_table(self) -> NDArray[np.uint64]:
        """All checksums [N, F]."""
        return np.asarray(self.checksums)

    @property
    def value_bytes(self) -> int:
        """Size of all values before compression."""
        return sum(field.column.num_bytes for field in self.fields.values())

    def _expected(self, name: str) -> NDArray[np.uint64]:
        position = [spec.name for spec in self.meta.fields].index(name)
        return self.checksum_table[:, position]

    def _field(self, spec: FieldSpec) -> "ShardField":
        if not spec.ragged:
            column = self._column(f"fields/{spec.name}", np.dtype(spec.dtype), _sizes(spec.shape))
            return FixedField(column)
        values = self._columns[f"fields/{spec.name}/values"]
        offsets = _offsets(self._columns[f"fields/{spec.name}/offsets"], len(self), len(values))
        if spec.kind == "string":
            return TextField(values, offsets)
        if values.dtype != np.dtype(spec.dtype) or len(values.shape) != 1:
            raise UnsafeStoreError(f"{self.path}: {spec.name} is not the flat array it should be")
        shapes = self._column(f"fields/{spec.name}/shapes", np.int64, (len(spec.shape),))
        return RaggedField(values, offsets, np.asarray(shapes))

    def _column(self, path: str, dtype: Any, row_shape: tuple[int, ...]) -> Column:
        column = self._columns[path]
        if column.shape != (len(self), *row_shape) or column.dtype != dtype:
            raise UnsafeStoreError(
                f"{self.path}: {path} is {column.dtype} {column.shape}, "
                f"should be {np.dtype(dtype)} {(len(self), *row_shape)}"
            )
        return column


class Shards(Sequence[Shard]):
    """The shards of a store, each opened when it is first needed.

    Two threads may open the same one at once: that is harmless, and a lock would not survive a fork.
    """

    def __init__(
        self, root: Path, entries: Sequence[FileEntry], fields: Sequence[FieldSpec] | None = None
    ) -> None:
        self.root = root
        self.entries = entries
        self._types = None if fields is None else {field.name: field.type for field in fields}
        self._opened: list[Shard | None] = [None] * len(entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, number: int) -> Shard:  # type: ignore[override]  # one at a time
        shard = self._opened[number]
        if shard is None:
            shard = Shard(self.root, self.entries[number])
            if self._types not in (None, {field.name: field.type for field in shard.meta.fields}):
                raise UnsafeStoreError(f"{shard.path} has other fields than the manifest says")
            self._opened[number] = shard
        return shard

    def column(self, shard: NDArray[Any], row: NDArray[Any], name: str) -> list[Any] | Array:
        """One field of the given rows, in order: an array where all values have one shape."""
        shard, row = np.asarray(shard, np.int64), np.asarray(row, np.int64)
        numbers = np.unique(shard).tolist()
        parts: dict[int, Any] = {n: self[n].fields[name].values(row[shard == n]) for n in numbers}
        if len(parts) == 1:
            return parts[numbers[0]]  # type: ignore[no-any-return]
        arrays = [part for part in parts.values() if isinstance(part, np.ndarray)]
        if len(arrays) == len(parts) and len({part.shape[1:] for part in arrays}) == 1:
            joined = np.empty((len(shard), *arrays[0].shape[1:]), arrays[0].dtype)
            for n in numbers:
                joined[shard == n] = parts[n]
            return joined
        values: list[Any] = [None] * len(shard)
        for n in numbers:
            for place, value in zip(np.flatnonzero(shard == n), parts[n], strict=True):
                values[place] = value
        return values

    def views(self, shard: NDArray[Any], row: NDArray[Any], name: str) -> list[Any]:
        """As ``column``, but a list in any case, of arrays that may be read-only views of a mapping."""
        values: list[Any] = [None] * len(shard)
        # all of one shard before the next: it may have to be fetched
        order = np.argsort(shard, kind="stable")
        numbers, rows = shard[order].tolist(), row[order].tolist()
        for place, number, inside in zip(order.tolist(), numbers, rows, strict=True):
            values[place] = self[number].fields[name].view(inside)
        return values


class ShardField:
    """One field of a shard, by row."""

    column: Column

    def value(self, row: int) -> Array | str:
        """The value, as a new object."""
        raise NotImplementedError

    def view(self, row: int) -> Array | str:
        """The value; an array may be a read-only view of the mapping."""
        raise NotImplementedError

    def values(self, rows: NDArray[np.int64]) -> Array | list[Array] | list[str]:
        """The values of these rows: stacked where all have one shape, else a list."""
        raise NotImplementedError

    def shapes_of(self, rows: NDArray[np.int64]) -> list[tuple[int, ...]]:
        """The shapes of these rows."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def checksum(self, row: int) -> int:
        """The checksum of the value as it is now."""
        return checksum(self.value(row))

    def checksums(self) -> NDArray[np.uint64]:
        """The checksums of all rows."""
        num_rows = len(self)
        return np.fromiter(map(self.checksum, range(num_rows)), np.uint64, num_rows)


class FixedField(ShardField):
    """All samples of the shard have one shape."""

    def __init__(self, column: Column) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def shapes_of(self, rows: NDArray[np.int64]) -> list[tuple[int, ...]]:
        """The one shape."""
        return [self.column.shape[1:]] * len(rows)

    def value(self, row: int) -> Array:
        """The row, copied."""
        return np.array(self.view(row))

    def view(self, row: int) -> Array:
        """The row."""
        row_of_one: Array = self.column.read(row, row + 1)[0]
        return row_of_one

    def values(self, rows: NDArray[np.int64]) -> Array:
        """The rows, stacked."""
        return self.column.take(rows)

    def checksums(self) -> NDArray[np.uint64]:
        """Block by block, without a copy of what is mapped."""
        shape = self.column.shape[1:]
        row_bytes = math.prod(shape) * self.column.dtype.itemsize
        found = np.empty(len(self.column), np.uint64)
        for start in range(0, len(found), _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, len(found))
            data = as_bytes(self.column.read(start, stop))
            for i in range(stop - start):
                row = data[i * row_bytes : (i + 1) * row_bytes]
                found[start + i] = checksum_bytes(row, shape)
        return found


class RaggedField(ShardField):
    """Samples differ in size."""

    def __init__(self, column: Column, offsets: NDArray[np.int64], shapes: NDArray[np.int64]) -> None:
        self.column = column
        self.offsets = offsets
        self.shapes = shapes

    def __len__(self) -> int:
        return len(self.shapes)

    def value(self, row: int) -> Array:
        """The row, copied and in its own shape."""
        return np.array(self.view(row))

    def view(self, row: int) -> Array:
        """The row in its own shape."""
        shape = tuple(self.shapes[row].tolist())
        start, stop = int(self.offsets[row]), int(self.offsets[row + 1])
        if min(shape) < 0 or math.prod(shape) != stop - start:
            raise DamagedStoreError(f"its shape {shape} does not fit its {stop - start} values")
        return self.column.read(start, stop).reshape(shape)

    def shapes_of(self, rows: NDArray[np.int64]) -> list[tuple[int, ...]]:
        """As kept beside the values."""
        return [tuple(shape) for shape in self.shapes[rows].tolist()]

    def values(self, rows: NDArray[np.int64]) -> list[Array]:
        """The rows, each in its own shape."""
        return [self.value(row) for row in rows.tolist()]


class TextField(ShardField):
    """Strings, as UTF-8."""

    def __init__(self, column: Column, offsets: NDArray[np.int64]) -> None:
        self.column = column
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def shapes_of(self, rows: NDArray[np.int64]) -> list[tuple[int, ...]]:
        """Text has none."""
        return [()] * len(rows)

    def value(self, row: int) -> str:
        """The string."""
        data = self.column.read(int(self.offsets[row]), int(self.offsets[row + 1]))
        return data.tobytes().decode()

    view = value

    def values(self, rows: NDArray[np.int64]) -> list[str]:
        """The strings."""
        return [self.value(row) for row in rows.tolist()]


def strings(columns: Mapping[str, Column], path: str, num_samples: int) -> Strings:
    """The table of strings at that path of an HDF5 file, checked."""
    values = columns[f"{path}/values"]
    if values.dtype != np.uint8:
        raise UnsafeStoreError(f"{path}: text is kept as bytes, not as {values.dtype}")
    offsets = _offsets(columns[f"{path}/offsets"], num_samples, len(values))
    return Strings(np.asarray(values), offsets)


def common_shape(shapes: Sequence[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    """The shape that all have in common, None where they differ."""
    distinct = set(shapes)
    return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*distinct, strict=True))


def _sizes(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size is not None)


def _offsets(column: Column, num_samples: int, num_values: int) -> NDArray[np.int64]:
    if column.shape != (num_samples + 1,) or column.dtype != np.int64:
        raise UnsafeStoreError("a table of offsets has another length than its samples")
    offsets = np.asarray(column)
    # of a table longer than that only the ends: all would take long to read, and would be wrong text at worst
    is_rising = len(offsets) > _MAX_CHECKED or not (np.diff(offsets) < 0).any()
    if offsets[0] != 0 or offsets[-1] != num_values or not is_rising:
        raise UnsafeStoreError("a table of offsets points outside its values")
    return offsets
