"""An HDF5 file that is open in at most one process per handle."""

import os
from typing import Any

from stoker.store.sources._here import FileHere


class Hdf5Handle:
    """Opens the file on first use, and again in a forked or unpickled copy.

    A forked child must close what it inherited before it opens the file anew: HDF5 would otherwise
    find the file already open and go on with the parent's descriptor, whose position both would
    move.
    """

    def __init__(self, file: FileHere, group: str) -> None:
        self._at = file
        self._group = group
        self._file: Any = None
        self._opened_by = 0
        self._datasets: dict[str, Any] = {}

    def group(self) -> Any:
        """The h5py group, from a file that this process has opened."""
        if self._file is not None and self._opened_by != os.getpid():
            self.close()
        if self._file is None:
            import h5py

            self._file = h5py.File(self._at.path, "r")
            self._opened_by = os.getpid()
        return self._file[self._group]

    def dataset(self, name: str) -> Any:
        """A dataset, opened once: looking up its name costs more than reading a small row."""
        if self._opened_by != os.getpid() or name not in self._datasets:
            self._datasets[name] = self.group()[name]
        return self._datasets[name]

    def close(self) -> None:
        """Gives the file back; the next use opens it again."""
        self._datasets.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __getstate__(self) -> tuple[FileHere, str]:
        return self._at, self._group

    def __setstate__(self, state: tuple[FileHere, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]  # a copy starts closed, like a new one
