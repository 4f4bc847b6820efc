"""Locks between processes: one byte of a file for each shard, and one descriptor for any number of them.

A shard's byte is found by its digest. The locks belong to the open file (Linux: "open file description
locks"): two descriptors of one process exclude each other as two processes do, and whatever a killed
process held is free at once. A forked child shares the parent's open files, and with them its locks: it
closes them before it does anything else, and `Uses` there hold on their own what they held.
"""

import contextlib
import enum
import errno
import fcntl
import os
import struct
import weakref
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from stoker.errors import StoreWriteError
from stoker.store._durable import write_error

_DIGITS = 15  # of the digest: 60 bits; two shards that share a byte wait for each other, no more
_open_now: set[FileIO] = set()  # whose locks are this process's own


class Kind(enum.IntEnum):
    """What a lock is for."""

    FETCH = 0  # one process fetches a shard
    USE = 1  # shared by those that map it; alone by whoever removes it
    ROOM = 2  # one process at a time makes room


ALL = "0" * 32  # for a lock that is not of one shard


@contextlib.contextmanager
def locked(path: Path, kind: Kind, digest: str) -> Iterator[None]:
    """Hold the lock alone, having waited for it; threads exclude each other too."""
    with _opened(path) as file:
        _set(file, fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, kind, digest)
        yield


@contextlib.contextmanager
def locked_if_free(path: Path, kind: Kind, digest: str) -> Iterator[bool]:
    """Hold the lock alone if nobody has it; yields whether it is held."""
    with _opened(path) as file:
        try:
            _set(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, kind, digest)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                raise
            is_held = False
        else:
            is_held = True
        yield is_held


@contextlib.contextmanager
def used(path: Path, digest: str) -> Iterator[None]:
    """Nobody removes the shard meanwhile; waits while it is being removed."""
    with _opened(path) as file:
        _set(file, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, Kind.USE, digest)
        yield


class Uses:
    """Shards that an object maps, which are there: as long as it lives, nobody removes them.

    Should a file be removed all the same, what is mapped stays readable.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: set[str] = set()
        self.start_anew()
        _alive.add(self)

    def hold(self, digest: str) -> None:
        """From now on; waits while it is being removed."""
        _set(self._current(), fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, Kind.USE, digest)
        self._held.add(digest)

    def drop(self, digest: str) -> None:
        """No longer."""
        self._held.discard(digest)
        _set(self._current(), fcntl.F_OFD_SETLK, fcntl.F_UNLCK, Kind.USE, digest)

    def start_anew(self) -> None:
        """What a forked child does first: hold all that is held by an open file of its own."""
        self._file = _open(self._path)
        weakref.finalize(self, _release, self._file)
        for digest in self._held:
            _set(self._file, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, Kind.USE, digest)

    def _current(self) -> FileIO:
        if self._file.closed:  # in a forked child, where it could not be opened
            self.start_anew()
        return self._file


_alive: "weakref.WeakSet[Uses]" = weakref.WeakSet()


def _start_anew() -> None:
    while _open_now:  # closed and not unlocked: the parent's are the same open files
        _open_now.pop().close()
    for uses in list(_alive):
        with contextlib.suppress(StoreWriteError):  # as its folder is gone, say: told when it is needed
            uses.start_anew()


os.register_at_fork(after_in_child=_start_anew)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[FileIO]:
    file = _open(path)
    try:
        yield file
    finally:
        _release(file)


def _open(path: Path) -> FileIO:
    try:
        file = FileIO(path, "a+")
    except OSError as error:
        raise write_error(path, error) from error
    _open_now.add(file)
    return file


def _release(file: FileIO) -> None:
    """Unlock all and close: closing alone would leave the locks to a child that was forked just now."""
    _open_now.discard(file)
    if not file.closed:  # it is in a child that was forked meanwhile
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _lock(fcntl.F_UNLCK, 0, 0))
        file.close()


def _set(file: FileIO, command: int, lock: int, kind: Kind, digest: str) -> None:
    place = (int(kind) << (4 * _DIGITS)) | int(digest[:_DIGITS], 16)
    fcntl.fcntl(file, command, _lock(lock, place, 1))


def _lock(lock: int, first: int, num_bytes: int) -> bytes:
    """As fcntl wants it; no number of bytes stands for all."""
    return struct.pack("hhqqi4x", lock, os.SEEK_SET, first, num_bytes, 0)
