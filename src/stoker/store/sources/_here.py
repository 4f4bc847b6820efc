"""A file of which a path is needed for long: where it is, or, from a URL, where it was brought to."""

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from posixpath import basename

from stoker.store._url import is_url
from stoker.store.sources._files import files_at
from stoker.store.sources._fingerprints import Pair


class FileHere:
    """One file; from a URL it is fetched whole when its path is first asked for, and removed with this.

    A forked child reads its parent's copy; a pickled one fetches its own.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self._is_remote = is_url(path)
        base, self._name = path.rsplit("/", 1) if self._is_remote else ("/", path)
        self._files = files_at(base, "stat")
        self._path = None if self._is_remote else path

    @property
    def path(self) -> str:
        """A path at which it can be read.

        Raises:
            BadSampleError: it cannot be had, however often one tries.
            StoreUnreachableError: nothing answers.
        """
        if self._path is None:
            folder = tempfile.mkdtemp(prefix="stoker-")
            weakref.finalize(self, _remove, folder, os.getpid())
            self._path = str(Path(folder) / basename(self._name))
            try:
                with self._files.local(self._name, self.name) as fetched:
                    shutil.move(fetched, self._path)
            except BaseException:
                self._path = None
                raise
        return self._path

    def pair(self) -> Pair | None:
        """128 bits that change when the file does; None where it is not there."""
        return self._files.pair(self._name)

    def __reduce__(self) -> tuple[type["FileHere"], tuple[str]]:
        return FileHere, (self.name,)


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # a forked child has the object, not the folder
        shutil.rmtree(folder, ignore_errors=True)
