"""Sessions that are the samples of a store."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, SourceError
from stoker.loader._session_tracks import FlatTrack, MappedTrack, Track
from stoker.loader._sessions import (
    MAKE_ALIKE,
    SessionField,
    Sessions,
    TimeAxis,
    plain,
    time_axis_of,
    unknown,
)
from stoker.loader._window_plan import Integers
from stoker.store import Store
from stoker.store._layout import ChunkedColumn
from stoker.store._shard import FixedField, RaggedField, Shard
from stoker.store.remote import RemoteShards


class StoreSessions(Sessions):
    """Every sample of a store is a session; time is the last axis unless ``time_axis`` says otherwise."""

    def __init__(
        self, store: Store, names: Sequence[str] | None, *, time_axis: TimeAxis, cache_bytes: int
    ) -> None:
        super().__init__(cache_bytes)
        self._store = store
        self.identity = store.content_digest
        is_remote = isinstance(store.shards, RemoteShards)
        self.at_memory_speed = store.manifest.compression == "none" and not is_remote
        numbers = store.numbers
        if len(numbers) == 0:
            raise SourceError(f"there must be at least one session, this view of {store.location} has none")
        self._shard, self._row = store.index.shard[numbers], store.index.row[numbers]
        num_rows = np.array([entry.num_samples for entry in store.manifest.shards])
        if (self._shard >= len(num_rows)).any() or (self._row >= num_rows[self._shard]).any():
            raise DamagedStoreError(f"the index of {store.location} points outside its shards")
        usable = {name: spec for name, spec in store.fields.items() if spec.kind == "array" and spec.shape}
        for name in names or ():
            if name not in usable:
                raise unknown("array field", name, usable)
        self.fields, shapes, lengths = {}, {}, {}
        for name in names or usable:
            axis = time_axis_of(name, len(usable[name].shape), time_axis, -1)
            shapes[name] = self._shapes(name)
            lengths[name] = shapes[name][:, axis]
            sizes = np.delete(shapes[name], axis, axis=1)
            self._check((sizes == sizes[:1]).all(axis=1), "all sessions must be alike but for time", shapes)
            self.fields[name] = SessionField(np.dtype(usable[name].dtype), tuple(sizes[0].tolist()), axis)
        if not lengths:
            raise SourceError(f"the samples of {store.location} have no arrays, so that nothing can be cut")
        self.lengths = next(iter(lengths.values()))
        alike = np.all([length == self.lengths for length in lengths.values()], axis=0)
        self._check(alike, "the fields of a session must be equally long", shapes)

    def key(self, number: int) -> str:
        """The sample's key."""
        return self._store.key(number)

    def attributes(self, number: int) -> dict[str, Any]:
        """The sample's texts and single numbers."""
        shard, row = self._place(number)
        specs = self._store.fields.values()
        small = [spec.name for spec in specs if spec.kind == "string" or not spec.shape]
        return {name: plain(shard.fields[name].value(row)) for name in small}

    def _open(self, number: int) -> dict[str, Track]:
        shard, row = self._place(number)
        tracks: dict[str, Track] = {}
        for name, field in self.fields.items():
            stored = shard.fields[name]
            shape = field.with_steps(int(self.lengths[number]))
            size = int(np.prod(shape, dtype=object))
            if isinstance(stored, FixedField):
                first, last, offset = row, row + 1, row * size
            else:
                assert isinstance(stored, RaggedField)
                first, last = stored.offsets[row : row + 2].tolist()
                offset = first
                if last - first != size:
                    raise DamagedStoreError(
                        f"{self.key(number)}: {name} has {last - first} values, not {shape}"
                    )
            if isinstance(stored.column, ChunkedColumn):
                tracks[name] = FlatTrack(stored.column, offset, shape, field.axis, self._cache)
            else:
                tracks[name] = MappedTrack(stored.column.read(first, last).reshape(shape), field.axis)
        return tracks

    def _shapes(self, name: str) -> Integers:
        """[sessions, axes]."""
        spec = self._store.fields[name]
        shapes = np.empty((len(self._row), len(spec.shape)), np.int64)
        if not spec.ragged:
            shapes[:] = [size or 0 for size in spec.shape]
            return shapes
        for number in np.unique(self._shard):
            here = self._shard == number
            field = self._store.shards[int(number)].fields[name]
            shapes[here] = field.shapes_of(self._row[here].astype(np.int64))
        return shapes

    def _check(self, good: NDArray[np.bool_], rule: str, shapes: Mapping[str, Integers]) -> None:
        for number in np.flatnonzero(~good)[:1]:
            found = ", ".join(f"{name} {shape[number].tolist()}" for name, shape in shapes.items())
            raise SourceError(f"{rule}; session {self._store.key(int(number))!r} has {found}; {MAKE_ALIKE}")

    def _place(self, number: int) -> tuple[Shard, int]:
        return self._store.shards[int(self._shard[number])], int(self._row[number])
