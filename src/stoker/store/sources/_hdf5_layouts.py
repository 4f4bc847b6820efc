"""The two ways in which samples lie in one HDF5 file."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from stoker.errors import SourceError, UsageError
from stoker.store._strings import Strings
from stoker.store.sources._fingerprints import Words, column_word, column_words
from stoker.store.sources._hdf5_fields import (
    choose_datasets,
    datasets_below,
    read_fields,
    split,
)
from stoker.store.sources._hdf5_handle import Hdf5Handle
from stoker.store.sources._nearest import listed
from stoker.store.sources._reader import Sample


class Layout(Protocol):
    """Where sample i is. Made from an open group, it keeps names only."""

    def __len__(self) -> int: ...
    def key(self, i: int) -> str:
        """The sample's key."""

    def keys(self) -> Strings:
        """All keys."""

    def words(self) -> Words:
        """What tells the samples apart in their fingerprints, [N]."""

    def word(self, i: int) -> int:
        """``words()[i]``."""

    def read(self, handle: Hdf5Handle, i: int) -> Sample:
        """The sample."""


class RowsLayout:
    """Row i of every dataset is sample i."""

    def __init__(self, group: Any, fields: Sequence[str] | None) -> None:
        datasets = choose_datasets(datasets_below(group), fields)
        num_rows = {name: item.shape[0] for name, item in datasets.items() if item.shape}
        found = listed(f"{name} {item.shape}" for name, item in datasets.items())
        if not num_rows or (fields is not None and len(num_rows) < len(datasets)):
            raise SourceError(
                f"the fields in {group.name!r} must have rows, found {found}; "
                "if each of those is a sample, give layout='groups'"
            )
        if len(set(num_rows.values())) > 1:
            raise SourceError(
                f"datasets must have the same number of rows, found {found}; "
                "choose with fields=[...] or group=, or if each is a sample give layout='groups'"
            )
        self._num_rows = int(next(iter(num_rows.values())))
        if self._num_rows == 0:
            raise SourceError(f"datasets must have at least one row, found {found}")
        self._fields = fields
        self._paths = {name: datasets[name].name for name in num_rows}

    def __len__(self) -> int:
        return self._num_rows

    def key(self, i: int) -> str:
        """The row's number."""
        return str(i)

    def keys(self) -> Strings:
        """The rows' numbers."""
        return Strings.of(map(str, range(self._num_rows)))

    def words(self) -> Words:
        """The rows' numbers."""
        return np.arange(self._num_rows, dtype=np.uint64)

    def word(self, i: int) -> int:
        """The row's number."""
        return i

    def read(self, handle: Hdf5Handle, i: int) -> Sample:
        """Row i of each dataset; of a table the row is read first, a column would be read whole."""
        sample: Sample = {}
        for name, path in self._paths.items():
            sample |= split(name, handle.dataset(path)[i])
        return sample if self._fields is None else {field: sample[field] for field in self._fields}


class GroupsLayout:
    """Every group is a sample, or every dataset is one with the single field ``x``."""

    def __init__(self, group: Any, fields: Sequence[str] | None) -> None:
        import h5py

        kinds = {name: group.get(name, getclass=True) for name in group}
        names = sorted(kinds)
        if not names:
            raise SourceError(f"{group.name!r} must hold groups or datasets, it is empty")
        if len(set(kinds.values())) > 1:
            raise SourceError(
                f"{group.name!r} must hold either groups or datasets, it holds both: "
                f"{listed(names)}; choose another with group="
            )
        self._is_x = kinds[names[0]] is h5py.Dataset
        if self._is_x and fields is not None:
            raise UsageError(
                f"fields needs samples that are groups, those in {group.name!r} are datasets with "
                "the one field 'x'; leave fields out"
            )
        self._fields = fields
        self._names = Strings.of(names)

    def __len__(self) -> int:
        return len(self._names)

    def key(self, i: int) -> str:
        """The group's or dataset's name."""
        return self._names[i]

    def keys(self) -> Strings:
        """The names, sorted."""
        return self._names

    def words(self) -> Words:
        """The names' hashes."""
        return column_words(self._names)

    def word(self, i: int) -> int:
        """The name's hash."""
        return column_word(self._names, i)

    def read(self, handle: Hdf5Handle, i: int) -> Sample:
        """All of the group's datasets, or the one."""
        item = handle.group()[self._names[i]]
        return split("x", item[()]) if self._is_x else read_fields(item, self._fields)
