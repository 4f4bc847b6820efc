"""The fields in an HDF5 group: one per dataset, one per column of a compound table.

Names are the path below the group with dots for slashes: ``timeseries.emg`` is the column ``emg``
of the table ``timeseries``, or the dataset ``timeseries/emg``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stoker.errors import SourceError
from stoker.store.sources._nearest import did_you_mean, listed
from stoker.store.sources._reader import Sample


def datasets_below(group: Any) -> dict[str, Any]:
    """Every dataset below the group by its dotted name; links are not followed."""
    import h5py

    found: dict[str, Any] = {}

    def note(path: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            name = path.replace("/", ".")
            if name in found:
                raise SourceError(f"two datasets would both give the field {name!r}")
            found[name] = item

    group.visititems(note)
    return found


def field_names(name: str, dtype: Any) -> list[str]:
    """The fields that a dataset of this name and type gives."""
    if dtype.names is None:
        return [name]
    return [field for column in dtype.names for field in field_names(f"{name}.{column}", dtype[column])]


def choose_datasets(datasets: dict[str, Any], fields: Sequence[str] | None) -> dict[str, Any]:
    """The datasets that give the wanted fields: no more is read than those."""
    if fields is None:
        return datasets
    owner = {field: name for name, dataset in datasets.items() for field in field_names(name, dataset.dtype)}
    for field in fields:
        if field not in owner:
            raise SourceError(
                f"no dataset gives the field {field!r}{did_you_mean(field, owner)} (fields: {listed(owner)})"
            )
    wanted = {owner[field] for field in fields}
    return {name: dataset for name, dataset in datasets.items() if name in wanted}


def read_fields(group: Any, fields: Sequence[str] | None) -> Sample:
    """All datasets below the group, or the wanted fields of them, whole."""
    sample: Sample = {}
    for name, dataset in choose_datasets(datasets_below(group), fields).items():
        sample |= split(name, dataset[()])
    if not sample:
        raise SourceError("there is no dataset in it")
    return sample if fields is None else {field: sample[field] for field in fields}


def split(name: str, value: Any) -> Sample:
    """What was read from a dataset as fields: a compound value gives one per column."""
    names = getattr(getattr(value, "dtype", None), "names", None)
    if names is None:
        return {name: _plain(name, value)}
    sample: Sample = {}
    for column in names:
        sample |= split(f"{name}.{column}", value[column])
    return sample


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    array = np.asarray(value, order="C")
    if array.dtype.kind not in "biufc":
        raise SourceError(
            f"dataset {name!r} holds {array.dtype} {list(array.shape)}, not numbers or one text; "
            "leave it out with fields=[...]"
        )
    return array
