"""Files that are whole or absent: written aside, forced to disk, then renamed into place."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from stoker.errors import StoreWriteError

TEMPORARY_PREFIX = ".writing-"

_REMEDIES = {
    errno.ENOSPC: "free some space and run again: finished shards are kept",
    errno.EDQUOT: "your disk quota is used up: free some space and run again",
    errno.EFBIG: "the file size limit (ulimit -f) is too small for a shard",
    errno.EROFS: "the target is read-only: choose another folder",
    errno.EACCES: "no permission to write there: choose another folder",
    errno.EPERM: "no permission to write there: choose another folder",
}


def write_file(path: Path, content: Iterable[bytes | memoryview]) -> None:
    """Write a file, given in pieces, so that after a crash it is the old one or the new one.

    Raises:
        StoreWriteError: the disk is full, read-only or forbidden; nothing is left behind.
    """
    Aside(path, content).put_in_place()


class Aside:
    """A file that is written beside its place; where it shall be there is the old one, or none.

    Raises:
        StoreWriteError: the disk is full, read-only or forbidden; nothing is left behind.
    """

    def __init__(self, path: Path, content: Iterable[bytes | memoryview]) -> None:
        self._path = path
        # its own: another thread, or a process of another machine, may write the same file now
        self._temporary = path.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}-{path.name}")
        with self._or_nothing():
            self._descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                for piece in content:
                    rest = memoryview(piece)
                    while rest:
                        rest = rest[os.write(self._descriptor, rest) :]
            except BaseException:
                os.close(self._descriptor)
                raise

    def put_in_place(self) -> None:
        """Force it to disk, then rename it; to be called once. It waits for the disk and computes nothing.

        Raises:
            StoreWriteError: that failed; nothing is left behind.
        """
        with self._or_nothing():
            try:
                os.fsync(self._descriptor)
            finally:
                os.close(self._descriptor)
            self._temporary.replace(self._path)
            sync_folder(self._path.parent)

    @contextlib.contextmanager
    def _or_nothing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with contextlib.suppress(OSError):
                self._temporary.unlink(missing_ok=True)
            raise write_error(self._path, error) from error


def make_folder(path: Path) -> None:
    """Create the folder and its parents; StoreWriteError with a remedy where that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error


def sync_folder(path: Path) -> None:
    """Force the folder's entries (renames, removals) to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_error(path: Path, error: OSError) -> StoreWriteError:
    """The error for a path that cannot be written, with its remedy where one is known."""
    remedy = _REMEDIES.get(error.errno or 0)
    return StoreWriteError(
        f"cannot write {path}: {error.strerror or error}" + (f"; {remedy}" if remedy else "")
    )
