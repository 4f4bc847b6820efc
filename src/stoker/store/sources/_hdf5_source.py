"""One HDF5 file that holds many samples."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stoker.errors import BadSampleError, SourceError, UsageError
from stoker.store._strings import Strings
from stoker.store._url import is_url
from stoker.store.sources._fingerprints import mix
from stoker.store.sources._hdf5_handle import Hdf5Handle
from stoker.store.sources._hdf5_layouts import GroupsLayout, Layout, RowsLayout
from stoker.store.sources._here import FileHere
from stoker.store.sources._nearest import did_you_mean, listed, nearest_sibling
from stoker.store.sources._reader import Sample, checked_names, reading
from stoker.store.sources._source import Source

VERSION = 1
"""Raised when the same file would give other samples than before: it enters the fingerprints."""


class Hdf5Source(Source):
    """The samples in one HDF5 file.

    The file is opened by the first read in each process, and can be shared with forked and spawned
    workers. Any change to the file changes every fingerprint.

    Args:
        path: The file, or its URL: then it is fetched whole, into a temporary folder.
        layout: "rows": every dataset below ``group`` is a field (every column, of a compound table)
            and row i of each is sample i; the key is the row's number. "groups": every group in
            ``group`` is a sample and the datasets in it are its fields, or every dataset in
            ``group`` is a sample with the one field ``x``; the key is its name.
        group: Where in the file.
        fields: Which fields, by their names; all, if not given.

    Raises:
        SourceError: The file cannot be read or does not have that layout; says what it has instead.
        UsageError: An option that cannot be.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        layout: Literal["rows", "groups"] = "rows",
        group: str = "/",
        fields: Sequence[str] | None = None,
    ) -> None:
        if layout not in ("rows", "groups"):
            raise UsageError(f"layout must be 'rows' or 'groups', got {layout!r}")
        wanted = checked_names("fields", fields)
        super().__init__(f"{VERSION} {layout} {group} {wanted}")
        self._title = os.fspath(path)
        self._file = FileHere(self._title if is_url(self._title) else str(Path(path).absolute()))
        self._handle = Hdf5Handle(self._file, group)
        self._layout = _look(self._file, RowsLayout if layout == "rows" else GroupsLayout, group, wanted)
        self.channel_axis = {}
        self.classes = {}

    def __len__(self) -> int:
        return len(self._layout)

    def __repr__(self) -> str:
        return f"Hdf5Source({self._title!r}: {len(self)} samples)"

    def key(self, index: int) -> str:
        """The row's number or the group's name."""
        return self._layout.key(self._number(index))

    def keys(self) -> Strings:
        """Every sample's key, in order."""
        return self._layout.keys()

    def fingerprints(self) -> NDArray[np.uint64]:
        """Every sample's fingerprint, uint64 [N, 2]; zeros where the file is not there."""
        pair = self._file.pair()
        if pair is None:
            return np.zeros((len(self), 2), np.uint64)
        size, time = (np.array([word], np.uint64) for word in pair)
        return mix(self._seed, [size, time, self._layout.words()])

    def close(self) -> None:
        """Closes the file; a later read opens it again."""
        self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self, i: int) -> Sample:
        with reading(self._layout.key(i), self._file.name):
            return self._layout.read(self._handle, i)

    def _words(self, i: int) -> list[int] | None:
        pair = self._file.pair()
        return None if pair is None else [*pair, self._layout.word(i)]


def _look(
    file: FileHere, kind: type[RowsLayout | GroupsLayout], group: str, fields: Sequence[str] | None
) -> Layout:
    import h5py

    try:
        with h5py.File(file.path, "r") as opened:
            return kind(_find_group(opened, group), fields)
    except BadSampleError as error:
        raise SourceError(error.why) from error
    except FileNotFoundError:
        raise SourceError(f"there is no file {file.name!r}{nearest_sibling(Path(file.name))}") from None
    except (OSError, KeyError, RuntimeError) as error:
        raise SourceError(f"{file.name!r} is not a readable HDF5 file: {error}") from error


def _find_group(file: Any, name: str) -> Any:
    import h5py

    found = file.get(name)
    if isinstance(found, h5py.Group):
        return found
    if found is not None:
        raise SourceError(
            f"group must name a group, {name!r} is a dataset; give the group that it is in and "
            "choose with fields="
        )
    groups = ["/"]
    file.visititems(lambda path, item: groups.append(path) if isinstance(item, h5py.Group) else None)
    raise SourceError(f"there is no group {name!r}{did_you_mean(name, groups)} (groups: {listed(groups)})")
