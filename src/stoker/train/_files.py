"""Files of a run that are whole or absent: written aside, forced to disk, then renamed into place."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from stoker.errors import CheckpointError
from stoker.store._durable import sync_folder

_TEMPORARY_PREFIX = ".writing-"


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends without an error.

    Raises:
        CheckpointError: the disk is full, read-only or forbidden; the old file is as it was.
    """
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, CheckpointError):
            raise CheckpointError(
                f"cannot write {path}: {error.strerror or error}; free some space or choose another folder"
            ) from error
        raise


def alias(path: Path, other: Path) -> None:
    """Make `other` the same file as `path`, in one move; a copy where the file system has no links."""
    temporary = _temporary(other)
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    try:
        temporary.hardlink_to(path)
    except OSError:
        with replaced(other) as copy, path.open("rb") as original:
            shutil.copyfileobj(original, copy)
        return
    temporary.replace(other)
    temporary.unlink(missing_ok=True)  # renaming onto another name of the same file does nothing
    sync_folder(other.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left half written; for the one process that writes here."""
    for path in folder.glob(f"{_TEMPORARY_PREFIX}*"):
        path.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f"{_TEMPORARY_PREFIX}{os.getpid()}-{path.name}")
