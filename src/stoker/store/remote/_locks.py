"""Locks between processes: one byte of a file for each shard, and one descriptor for any number of them.

A shard's byte is found by its digest. The locks belong to the open file (Linux: "open file description
locks"): two descriptors of one process exclude each other as two processes do, and whatever a killed
process held is free at once.
"""

import contextlib
import enum
import errno
import fcntl
import os
import struct
import weakref
from collections.abc import Iterator
from pathlib import Path

from stoker.store._durable import write_error

_DIGITS = 15  # of the digest: 60 bits; two shards that share a byte wait for each other, no more


class Kind(enum.IntEnum):
    """What a lock is for."""

    FETCH = 0  # one process fetches a shard
    USE = 1  # shared by those that map it; alone by whoever removes it
    ROOM = 2  # one process at a time makes room


ALL = "0" * 32  # for a lock that is not of one shard


@contextlib.contextmanager
def locked(path: Path, kind: Kind, digest: str) -> Iterator[None]:
    """Hold the lock alone, having waited for it; threads exclude each other too."""
    descriptor = _open(path)
    try:
        _set(descriptor, fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, kind, digest)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_if_free(path: Path, kind: Kind, digest: str) -> Iterator[bool]:
    """Hold the lock alone if nobody has it; yields whether it is held."""
    descriptor = _open(path)
    try:
        try:
            _set(descriptor, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, kind, digest)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                raise
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


class Uses:
    """Shards that somebody here maps: as long as they are held, nobody removes them.

    A forked child holds its own. Should a file be removed all the same, what is mapped stays readable.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: set[str] = set()
        self._open_anew()

    def hold(self, digest: str) -> None:
        """From now on; waits while it is being removed."""
        self._after_fork()
        _set(self._descriptor, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, Kind.USE, digest)
        self._held.add(digest)

    def drop(self, digest: str) -> None:
        """No longer."""
        self._after_fork()
        self._held.discard(digest)
        _set(self._descriptor, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, Kind.USE, digest)

    def close(self) -> None:
        """Drop all."""
        self._held.clear()
        self._close()

    def _after_fork(self) -> None:
        if self._pid == os.getpid() and self._close.alive:
            return
        inherited = self._close if self._pid != os.getpid() else None
        self._open_anew()
        for digest in self._held:
            _set(self._descriptor, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, Kind.USE, digest)
        if inherited is not None:  # the parent's locks stay: its own descriptor is open there
            inherited()

    def _open_anew(self) -> None:
        self._descriptor = _open(self._path)
        self._pid = os.getpid()
        self._close = weakref.finalize(self, os.close, self._descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise write_error(path, error) from error


def _set(descriptor: int, command: int, lock: int, kind: Kind, digest: str) -> None:
    place = (int(kind) << (4 * _DIGITS)) | int(digest[:_DIGITS], 16)
    fcntl.fcntl(descriptor, command, struct.pack("hhqqi4x", lock, os.SEEK_SET, place, 1, 0))
