"""Sessions: long recordings that windows are cut from, in a store or in HDF5 files as they are.

Each has a number, a key, a length in time steps and a track for every field. A session is opened
when it is first read; nothing of that crosses a fork or a pickle.
"""

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, SourceError, UsageError
from stoker.loader._session_tracks import (
    ChunkCache,
    FlatTrack,
    ForkSafe,
    Handles,
    MappedTrack,
    Track,
    open_tracks,
)
from stoker.loader._window_plan import Integers
from stoker.store import Store
from stoker.store._layout import ChunkedColumn
from stoker.store._mapping import map_readonly
from stoker.store._shard import FixedField, RaggedField, Shard
from stoker.store.sources._hdf5_fields import datasets_below
from stoker.store.sources._listing import to_strings
from stoker.store.sources._nearest import did_you_mean, listed, nearest_sibling

TimeAxis: TypeAlias = int | Mapping[str, int] | None
Columns: TypeAlias = dict[str, tuple[Any, tuple[str, ...]]]  # dotted path -> dataset, column of it

_MAX_OPENED = 32_768  # sessions; each may be a mapping, of the 65,530 that Linux allows a process
_ALIKE = "choose with fields=[...], or say where time is with time_axis="


@dataclass(frozen=True)
class SessionField:
    """What a field has in common in all sessions; ``shape`` lacks the time axis."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axis: int

    @classmethod
    def of(cls, track: Track) -> "SessionField":
        """The track's field; values will be in the machine's byte order."""
        shape = track.shape[: track.axis] + track.shape[track.axis + 1 :]
        return cls(track.dtype.newbyteorder("="), shape, track.axis)

    def with_steps(self, num_steps: int) -> tuple[int, ...]:
        """The shape of that many time steps."""
        return (*self.shape[: self.axis], num_steps, *self.shape[self.axis :])

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)} a step, time on axis {self.axis}"


class Sessions(ForkSafe, ABC):
    """Sessions by number; safe to use from many threads."""

    lengths: Integers
    """Time steps in each."""
    fields: dict[str, SessionField]
    identity = ""
    """Differs where contents differ, if that is known."""

    def __init__(self, cache_bytes: int) -> None:
        super().__init__()
        self._cache = ChunkCache(cache_bytes)
        self._handles = Handles()
        self._opened: dict[int, dict[str, Track]] = {}

    def __len__(self) -> int:
        return len(self.lengths)

    def tracks(self, number: int) -> dict[str, Track]:
        """The session's tracks by field."""
        tracks = self._opened.get(number)
        if tracks is None:
            with self.lock:
                tracks = self._opened.get(number) or self._open(number)
                self._opened[number] = tracks
                if len(self._opened) > _MAX_OPENED:
                    del self._opened[next(iter(self._opened))]
        return tracks

    def close(self) -> None:
        """Let go of files and cached chunks; a later read opens the files again."""
        with self.lock:
            self._opened.clear()
        self._cache.clear()
        self._handles.close()

    @abstractmethod
    def key(self, number: int) -> str:
        """The session's name."""

    @abstractmethod
    def attributes(self, number: int) -> dict[str, Any]:
        """What is known of the session besides its fields."""

    @abstractmethod
    def _open(self, number: int) -> dict[str, Track]: ...

    def __getstate__(self) -> dict[str, Any]:
        own = {"lock", "_cache", "_handles", "_opened"}
        state = {name: value for name, value in self.__dict__.items() if name not in own}
        return state | {"cache_bytes": self._cache.max_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Sessions.__init__(self, state.pop("cache_bytes"))
        self.__dict__.update(state)


class StoreSessions(Sessions):
    """Every sample of a store is a session; time is the last axis unless ``time_axis`` says otherwise."""

    def __init__(
        self, store: Store, names: Sequence[str] | None, *, time_axis: TimeAxis, cache_bytes: int
    ) -> None:
        super().__init__(cache_bytes)
        self._store = store
        self.identity = store.content_digest
        numbers = store.numbers
        if len(numbers) == 0:
            raise SourceError(f"there must be at least one session, this view of {store.path} has none")
        self._shard, self._row = store.index.shard[numbers], store.index.row[numbers]
        num_rows = np.array([entry.num_samples for entry in store.manifest.shards])
        if (self._shard >= len(num_rows)).any() or (self._row >= num_rows[self._shard]).any():
            raise DamagedStoreError(f"the index of {store.path} points outside its shards")
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
            raise SourceError(f"the samples of {store.path} have no arrays, so that nothing can be cut")
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
        return {name: _plain(shard.fields[name].value(row)) for name in small}

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
            raise SourceError(f"{rule}; session {self._store.key(int(number))!r} has {found}; {_ALIKE}")

    def _place(self, number: int) -> tuple[Shard, int]:
        return self._store.shards[int(self._shard[number])], int(self._row[number])


class FileSessions(Sessions):
    """Every HDF5 file is a session; time is the first axis unless ``time_axis`` says otherwise.

    ``names`` are columns of compound tables, or datasets, each by as much of its path as tells it
    apart. Without names: the columns of the only table, or all datasets where there is no table.
    """

    def __init__(
        self,
        paths: list[str],
        keys: list[str],
        names: Sequence[str] | None,
        *,
        group: str | None,
        dataset: str | None,
        time_axis: TimeAxis,
        cache_bytes: int,
    ) -> None:
        super().__init__(cache_bytes)
        self._paths = to_strings(paths)
        self._keys = to_strings(keys)
        self._names = names
        self._group = group
        self._dataset = dataset
        self._time_axis = time_axis
        self.fields = {}
        self.lengths = np.full(len(paths), -1)
        for number in range(len(paths)):
            self.tracks(number)

    def key(self, number: int) -> str:
        """The file's path, as it was given or below the folder that was given."""
        return self._keys[number]

    def attributes(self, number: int) -> dict[str, Any]:
        """The HDF5 attributes of the groups from the file's root to the one that holds the data."""
        found: dict[str, Any] = {}
        with self._file(number) as file:
            dataset, _ = next(iter(self._choose(file).values()))
            place = dataset.parent.name.rstrip("/")
            for stop in [i for i, letter in enumerate(f"{place}/") if letter == "/"]:
                attributes = file[place[:stop] or "/"].attrs
                found |= {name: _plain(value) for name, value in attributes.items()}
        return found

    def _open(self, number: int) -> dict[str, Track]:
        path = self._paths[number]
        with self._file(number) as file:
            chosen = {
                name: (dataset, column, time_axis_of(name, dataset.ndim, self._time_axis, 0))
                for name, (dataset, column) in self._choose(file).items()
            }
            tracks = open_tracks(
                chosen, path=path, content=_map(path), cache=self._cache, handles=self._handles
            )
        found = {name: SessionField.of(track) for name, track in tracks.items()}
        lengths = {name: track.shape[track.axis] for name, track in tracks.items()}
        length = next(iter(lengths.values()))
        if set(lengths.values()) != {length}:
            steps = listed(f"{name} {size}" for name, size in lengths.items())
            raise SourceError(
                f"the fields of a session must be equally long; in {path!r} they have {steps} steps; {_ALIKE}"
            )
        if not self.fields:
            self.fields, self._names = found, list(found)
        for name, field in found.items():
            if field != self.fields[name]:
                raise SourceError(
                    f"all sessions must be alike but for time; in {path!r} {name} is {field}, before "
                    f"it was {self.fields[name]}; pack them with a transform that makes them alike"
                )
        if self.lengths[number] not in {-1, length}:
            raise SourceError(f"{path!r} was changed since its windows were counted; make the windows anew")
        self.lengths[number] = length
        return tracks

    def _choose(self, file: Any) -> Columns:
        columns = _columns_below(_group(file, self._group))
        if self._dataset is not None:
            owners = {dataset.name.strip("/").replace("/", "."): dataset for dataset, _ in columns.values()}
            only = owners[_match(self._dataset, owners, "dataset of numbers")]
            columns = {name: found for name, found in columns.items() if found[0] == only}
        if self._names is None:
            return _discover(columns)
        return {name: columns[_match(name, columns, "field")] for name in self._names}

    @contextmanager
    def _file(self, number: int) -> Iterator[Any]:
        import h5py

        path = self._paths[number]
        try:
            with h5py.File(path, "r") as file:
                yield file
        except FileNotFoundError:
            raise SourceError(f"there is no file {path!r}{nearest_sibling(Path(path))}") from None
        except (OSError, RuntimeError, KeyError) as error:
            raise SourceError(f"{path!r} is not a readable HDF5 file: {error}") from error


def time_axis_of(name: str, num_axes: int, time_axis: TimeAxis, default: int) -> int:
    """Which of a field's axes is time, counted from the front; the only axis where there is one."""
    given = time_axis.get(name) if isinstance(time_axis, Mapping) else time_axis
    axis = default if given is None else given
    if num_axes == 1:
        return 0
    if not isinstance(axis, int) or not -num_axes <= axis < num_axes:
        raise UsageError(f"time_axis must be one of the {num_axes} axes of {name!r}, got {axis!r}")
    return axis % num_axes


def _map(path: str) -> NDArray[np.uint8]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return map_readonly(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _group(file: Any, name: str | None) -> Any:
    import h5py

    found = file.get(name or "/")
    if isinstance(found, h5py.Group):
        return found
    groups: list[str] = []
    file.visititems(lambda path, item: groups.append(path) if isinstance(item, h5py.Group) else None)
    raise unknown("group", name or "/", groups)


def _columns_below(group: Any) -> Columns:
    """Every dataset of numbers, and every such column of the tables."""
    return {
        ".".join([name, *column]): (dataset, column)
        for name, dataset in datasets_below(group).items()
        if dataset.shape
        for column in _numeric_columns(dataset.dtype)
    }


def _numeric_columns(dtype: np.dtype[Any]) -> Iterator[tuple[str, ...]]:
    if dtype.names is None:
        if dtype.base.kind in "biufc":
            yield ()
        return
    for name in dtype.names:
        for column in _numeric_columns(dtype[name]):
            yield (name, *column)


def _discover(columns: Columns) -> Columns:
    """The columns of the only table, or all datasets; by what is left of the path they share."""
    tables = {dataset.name for dataset, column in columns.values() if column}
    if len(tables) > 1 or not columns:
        raise SourceError(
            f"one table, or datasets of equal length, can be found without help; there are "
            f"{listed(columns)}; choose with dataset= or fields=[...]"
        )
    chosen = {name: found for name, found in columns.items() if found[1] or not tables}
    levels = zip(*[name.split(".")[:-1] for name in chosen], strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda level: len(set(level)) == 1, levels))
    return {".".join(name.split(".")[shared:]): found for name, found in chosen.items()}


def _match(name: str, known: Collection[str], what: str) -> str:
    wanted = name.strip("/").replace("/", ".")
    ends = [path for path in known if path == wanted] or [p for p in known if p.endswith(f".{wanted}")]
    if len(ends) > 1:
        raise SourceError(f"{what} {name!r} could be any of {listed(ends)}; write more of its path")
    if not ends:
        raise unknown(what, name, known)
    return ends[0]


def unknown(what: str, name: str, known: Collection[str]) -> SourceError:
    """The error for a name that is not there; says what is, and what was probably meant."""
    near = did_you_mean(name, [*known, *(path.rpartition(".")[2] for path in known)])
    return SourceError(f"there is no {what} {name!r}{near} (there are: {listed(known)})")


def _plain(value: Any) -> Any:
    """An attribute as Python has it: bytes as text, single numbers as numbers."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray) and value.dtype.kind in "SO":
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return None if type(value).__name__ == "Empty" else value
