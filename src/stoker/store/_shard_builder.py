"""Builds a shard: samples go in one by one, one immutable file comes out."""

from array import array
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoker.store import _memory
from stoker.store._checksums import as_bytes, checksum
from stoker.store._codec import Compression
from stoker.store._durable import Aside
from stoker.store._image import Image
from stoker.store._manifest import SHARD_BYTES, FieldSpec, FileEntry, shard_path
from stoker.store._moments import Moments, merge
from stoker.store._samples import Array, FieldType, Sample
from stoker.store._shard import Shard, ShardMeta, TextField, common_shape
from stoker.store._strings import Strings

_FIRST_BYTES = 1 << 12  # of a field's buffer, which doubles as it fills
_FEW_BYTES = 1 << 20  # more than these are moved once, to where a whole shard has room


class ShardBuilder:
    """Collects samples (copied at once, so that a source may reuse its buffers) for one shard.

    Emptied, it serves for the next one: memory that is fresh from the system costs more than all else
    that is done with a sample here.
    """

    def __init__(self, types: Mapping[str, FieldType], channel_axis: Mapping[str, int | None]) -> None:
        self._types = dict(types)
        self._channel_axis = channel_axis
        self._values = {name: _Buffer() for name in types}
        self.empty()

    def empty(self) -> None:
        """Forget the samples; keep the room they took."""
        self.num_bytes = 0
        self._keys: list[str] = []
        self._fingerprints = bytearray()
        self._checksums = array("Q")
        self._shapes: dict[str, list[tuple[int, ...]]] = {name: [] for name in self._types}
        for buffer in self._values.values():
            buffer.empty()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def fingerprints(self) -> NDArray[np.uint64]:
        """Those of the samples so far, [N, 2]."""
        return np.frombuffer(bytes(self._fingerprints), np.uint64).reshape(-1, 2)

    def add(self, key: str, fingerprint: bytes, sample: Sample) -> None:
        """Append one sample, whose fields must be of the builder's types."""
        for name in self._types:
            value = sample[name]
            data = value.encode() if isinstance(value, str) else as_bytes(value)
            self._values[name].append(data)
            self._shapes[name].append((len(data),) if isinstance(value, str) else value.shape)
            self._checksums.append(checksum(value))
            self.num_bytes += len(data)
        self._keys.append(key)
        self._fingerprints += fingerprint

    def extend(self, shard: Shard) -> None:
        """Append every sample of a shard of the same types, whose bytes the caller has checked."""
        rows = np.arange(len(shard))
        for name in self._types:
            field = shard.fields[name]
            data = as_bytes(field.column.read(0, len(field.column)))
            self._values[name].append(data)
            if isinstance(field, TextField):
                self._shapes[name] += [(size,) for size in np.diff(field.offsets).tolist()]
            else:
                self._shapes[name] += field.shapes_of(rows)
            self.num_bytes += len(data)
        names = [spec.name for spec in shard.meta.fields]
        ordered = shard.checksum_table[:, [names.index(name) for name in self._types]]
        self._checksums.frombytes(np.ascontiguousarray(ordered).tobytes())
        self._keys += shard.keys
        self._fingerprints += np.asarray(shard.fingerprints).tobytes()

    def publish(self, root: Path, transform: str, compression: Compression) -> FileEntry:
        """Write the shard, whole and forced to disk, under its digest."""
        entry, aside = self.write(root, transform, compression)
        aside.put_in_place()
        return entry

    def write(self, root: Path, transform: str, compression: Compression) -> tuple[FileEntry, Aside]:
        """Write the shard beside its place; the builder may be emptied then."""
        datasets: dict[str, Array] = {}
        specs, moments = [], {}
        for name, kind in self._types.items():
            shapes = self._shapes[name]
            spec = FieldSpec(
                name=name,
                kind=kind.kind,
                dtype=kind.dtype,
                shape=common_shape(shapes) if kind.kind == "array" else (),
                channel_axis=self._axis(name),
            )
            specs.append(spec)
            if kind.kind == "string":
                values = np.frombuffer(self._values[name].content, np.uint8)
                datasets |= _ragged(name, values, shapes)
                continue
            values = np.frombuffer(self._values[name].content, kind.dtype)
            if spec.ragged:
                datasets |= _ragged(name, values, shapes)
                datasets[f"fields/{name}/shapes"] = np.array(shapes, np.int64)
            else:
                datasets[f"fields/{name}"] = values.reshape(len(shapes), *shapes[0])
            if np.dtype(kind.dtype).kind != "c":
                moments[name] = _moments(values, shapes, spec)
        keys = Strings.of(self._keys)
        datasets |= {
            "index/keys/values": keys.values,
            "index/keys/offsets": keys.offsets,
            "index/fingerprints": self.fingerprints,
            "index/checksums": np.array(self._checksums, np.uint64).reshape(len(self), -1),
            "meta": ShardMeta(transform, compression, tuple(specs), moments).to_array(),
        }
        image = Image(datasets, compression)
        aside = Aside(shard_path(root, image.digest), image.pieces())
        entry = FileEntry(digest=image.digest, num_bytes=image.num_bytes, num_samples=len(self))
        return entry, aside

    def _axis(self, name: str) -> int | None:
        """The declared channel axis; by convention the first of two or more (PyTorch's layout)."""
        kind = self._types[name]
        default = 0 if kind.kind == "array" and kind.ndim >= 2 else None
        axis = self._channel_axis.get(name, default)
        return axis if axis is None or axis < kind.ndim else None


class _Buffer:
    """Bytes that are appended to; emptying keeps the memory."""

    def __init__(self) -> None:
        self._memory = _memory.empty((_FIRST_BYTES,), np.dtype(np.uint8)).data  # NumPy asks for huge pages
        self._size = 0

    @property
    def content(self) -> memoryview:
        return self._memory[: self._size]

    def append(self, data: bytes | memoryview) -> None:
        end = self._size + len(data)
        if end > len(self._memory):
            size = max(end, 2 * len(self._memory))
            if size > _FEW_BYTES:
                size = max(size, 2 * SHARD_BYTES)  # addresses: memory comes as it is written to
            grown = _memory.empty((size,), np.dtype(np.uint8)).data
            grown[: self._size] = self.content
            self._memory = grown
        self._memory[self._size : end] = data
        self._size = end

    def empty(self) -> None:
        self._size = 0


def _ragged(name: str, values: Array, shapes: list[tuple[int, ...]]) -> dict[str, Array]:
    offsets = np.zeros(len(shapes) + 1, np.int64)
    np.cumsum([int(np.prod(shape)) for shape in shapes], out=offsets[1:])
    return {f"fields/{name}/values": values, f"fields/{name}/offsets": offsets}


def _moments(values: Array, shapes: list[tuple[int, ...]], spec: FieldSpec) -> Moments:
    if not spec.ragged:
        return Moments.of(values.reshape(len(shapes), *shapes[0]), spec.channel_axis)
    axis = spec.channel_axis
    if axis is None or all(shape[axis] == 1 for shape in shapes):  # one channel: no need to tell them apart
        return Moments.of(values[None], None)
    parts, start = [], 0
    for shape in shapes:
        stop = start + int(np.prod(shape))
        parts.append(Moments.of(values[start:stop].reshape(1, *shape), spec.channel_axis))
        start = stop
    return merge(parts)
