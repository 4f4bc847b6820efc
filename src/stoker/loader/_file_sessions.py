"""Sessions that are HDF5 files as they are, and which of their columns are the fields."""

import itertools
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SourceError
from stoker.loader._hdf5_tracks import open_tracks
from stoker.loader._session_tracks import Track
from stoker.loader._sessions import (
    MAKE_ALIKE,
    SessionField,
    Sessions,
    TimeAxis,
    plain,
    time_axis_of,
    unknown,
)
from stoker.store._mapping import map_readonly
from stoker.store.sources._hdf5_fields import datasets_below
from stoker.store.sources._listing import to_strings
from stoker.store.sources._nearest import listed, nearest_sibling

Columns: TypeAlias = dict[str, tuple[Any, tuple[str, ...]]]  # dotted path -> dataset, column of it


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
                found |= {name: plain(value) for name, value in attributes.items()}
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
                f"the fields of a session must be equally long; in {path!r} they have {steps} steps; "
                f"{MAKE_ALIKE}"
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
