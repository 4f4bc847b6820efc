"""Files that are whole or absent: written aside, forced to disk, then renamed into place."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable
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
    # its own: another thread, or a process of another machine, may write the same file now
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}-{path.name}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            for piece in content:
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise write_error(path, error) from error


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
