"""An HDF5 file that is one sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stoker.store.sources._hdf5_fields import read_fields
from stoker.store.sources._reader import Reader, Sample, checked_names


@dataclass(frozen=True, kw_only=True)
class Hdf5Reader(Reader):
    """A field per dataset, groups joined by dots; compound tables give a field per column.

    ``fields`` chooses among them by those names; without it a dataset that is neither numbers nor
    one text makes the sample a bad one.
    """

    kind: ClassVar[str] = "HDF5"
    suffixes: ClassVar[tuple[str, ...]] = (".h5", ".hdf5")

    fields: Sequence[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", checked_names("fields", self.fields))

    def read(self, path: str) -> Sample:
        """The datasets, whole."""
        import h5py

        with h5py.File(path, "r") as file:
            return read_fields(file, self.fields)
