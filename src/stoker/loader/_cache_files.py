"""The two files of a cache: an index (mapped) and the samples (read and written at offsets).

In memory they have no name (memfd): whoever holds them open shares them, and the kernel frees them
with the last such process, however it ended. Unlike a folder in /dev/shm they know no size limit
but memory's and leave nothing to clean up. In a folder they stay from run to run.

The index begins with a page of words and a page of counters, then has a record for each sample.
"""

import contextlib
import fcntl
import json
import mmap
import os
import secrets
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from stoker.errors import StoreError, StoreMismatchError, UsageError
from stoker.store._durable import make_folder, write_error

# words (64 bits each) of the first page
(
    MAGIC,
    TOKEN,
    UNFINISHED,
    POSITION,
    NUM_BYTES,
    NUM_SAMPLES,
    EVICTIONS,
    CHECKED_BY,
    NUM_CHECKED,
    STOPPED_FOR,
) = range(10)
_IDENTITY_START, _IDENTITY_STOP = 512, 4096  # text, in the rest of that page
# pairs of words in the second page: hits and misses of one process each
FIRST_COUNTER, NUM_COUNTERS = 4096 // 8, 256
# words of a record: where the sample lies, how long, its checksum, when it was last used
FIRST_RECORD = 8192 // 8
OFFSET, LENGTH, CHECKSUM, USED = range(4)
RECORD_WORDS = 4

_MAGIC = int.from_bytes(b"stokrc\0\1", "big")  # the last byte is the version
_INDEX_NAME, _SAMPLES_NAME = "stoker-cache.index", "stoker-cache.samples"


@dataclass(frozen=True)
class Identity:
    """What a cache in a folder must have in common with the dataset that is to use it."""

    dataset: str
    num_samples: int
    version: str | None

    def __str__(self) -> str:
        version = "" if self.version is None else f", version {self.version!r}"
        return f"{self.dataset} ({self.num_samples} samples{version})"


@dataclass(frozen=True)
class Files:
    """Descriptors; whoever has them closes them."""

    index: int
    samples: int

    def close(self) -> None:
        """Let go of both."""
        os.close(self.index)
        os.close(self.samples)

    def described_anew(self) -> "Files":
        """The same files with an index whose locks are this process's own; replaces these."""
        index = os.open(f"/proc/self/fd/{self.index}", os.O_RDWR)
        os.close(self.index)
        return Files(index, self.samples)


@dataclass(frozen=True)
class Address:
    """Where another process finds the files of this one."""

    process: int
    files: Files
    token: int

    def open(self) -> Files | None:
        """The same files; None if they cannot be reached any more."""
        folder = Path(f"/proc/{self.process}/fd")
        try:
            files = _open(folder / str(self.files.index), folder / str(self.files.samples), os.O_RDWR)
        except OSError:
            return None
        if os.pread(files.index, 16, 0) == struct.pack("<QQ", _MAGIC, self.token):
            return files
        files.close()  # the process has ended, and another has its number
        return None


def index_bytes(num_samples: int) -> int:
    """Size of the index."""
    return 8 * (FIRST_RECORD + RECORD_WORDS * num_samples)


def in_memory(num_samples: int) -> Files:
    """Files without a name, in memory."""
    if not hasattr(os, "memfd_create"):
        raise UsageError("a cache in memory needs Linux; give path= to have it on disk")
    files = Files(os.memfd_create("stoker-cache.index"), os.memfd_create("stoker-cache.samples"))
    os.ftruncate(files.index, index_bytes(num_samples))  # pages are taken when they are written
    _begin(files.index, b"")
    return files


def in_folder(folder: Path, identity: Identity) -> Files:
    """The folder's files, made if they are not there.

    Raises:
        StoreMismatchError: they are of another dataset, version or length.
        StoreWriteError: they cannot be made.
    """
    make_folder(folder)
    try:
        with _folder_locked(folder):
            files = _open(folder / _INDEX_NAME, folder / _SAMPLES_NAME, os.O_RDWR | os.O_CREAT)
            try:
                _make_or_check(files, folder, identity)
            except BaseException:
                files.close()
                raise
    except StoreError:
        raise
    except OSError as error:
        raise write_error(folder, error) from error
    return files


def punch(samples: int, start: int, length: int) -> None:
    """Give back the pages of a range of the file, which then reads as zeros.

    Raises:
        OSError: the file system cannot.
    """
    with mmap.mmap(samples, length, offset=start) as mapped:
        mapped.madvise(mmap.MADV_REMOVE)


def can_punch(samples: int) -> bool:
    """Whether the file system gives back parts of a file; tried behind its end."""
    end = os.fstat(samples).st_size
    start = end + -end % mmap.PAGESIZE
    try:
        os.ftruncate(samples, start + mmap.PAGESIZE)
        punch(samples, start, mmap.PAGESIZE)
    except OSError:
        return False
    finally:
        os.ftruncate(samples, end)
    return True


def lock(index: int, byte: int, *, wait: bool) -> bool:
    """Lock a byte for this open file, until it is unlocked or closed; False if another has it."""
    try:
        _set_lock(index, fcntl.F_WRLCK, byte, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK)
    except BlockingIOError:
        return False
    return True


def unlock(index: int, byte: int) -> None:
    """Let others lock the byte."""
    _set_lock(index, fcntl.F_UNLCK, byte, fcntl.F_OFD_SETLK)


def _set_lock(index: int, kind: int, byte: int, command: int) -> None:
    # struct flock: type, whence, start, length, process (none: the lock belongs to the open file)
    fcntl.fcntl(index, command, struct.pack("hhqqi0q", kind, os.SEEK_SET, byte, 1, 0))


@contextlib.contextmanager
def _folder_locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open(index: Path, samples: Path, flags: int) -> Files:
    first = os.open(index, flags, 0o644)
    try:
        return Files(first, os.open(samples, flags, 0o644))
    except BaseException:
        os.close(first)
        raise


def _make_or_check(files: Files, folder: Path, identity: Identity) -> None:
    if os.pread(files.index, 8, 0) not in {b"", bytes(8)}:
        _check(files.index, folder, identity)
        return
    os.ftruncate(files.samples, 0)  # new, or its maker was killed
    os.ftruncate(files.index, 0)
    # a mapped page for which the disk has no room kills the process: take them all now
    os.posix_fallocate(files.index, 0, index_bytes(identity.num_samples))
    _begin(files.index, json.dumps(asdict(identity)).encode())


def _begin(index: int, identity: bytes) -> None:
    if len(identity) > _IDENTITY_STOP - _IDENTITY_START:
        raise UsageError(f"version must be short, got {len(identity)} bytes of names and version")
    os.pwrite(index, identity, _IDENTITY_START)
    os.pwrite(index, struct.pack("<Q", secrets.randbits(64)), 8 * TOKEN)
    os.pwrite(index, struct.pack("<Q", _MAGIC), 8 * MAGIC)  # last: without it, all is made anew


def _check(index: int, folder: Path, identity: Identity) -> None:
    page = os.pread(index, _IDENTITY_STOP, 0)
    remedy = "give another path, or delete that folder"
    (magic,) = struct.unpack_from("<Q", page)
    if magic != _MAGIC:
        raise StoreMismatchError(f"{folder / _INDEX_NAME} is no cache of this version of Stoker: {remedy}")
    try:
        found = Identity(**json.loads(page[_IDENTITY_START:].rstrip(b"\0")))
    except (ValueError, TypeError):
        found = None
    if found != identity:
        raise StoreMismatchError(
            f"{folder} caches {found or 'something unreadable'}, not {identity}: {remedy}"
        )
    if os.fstat(index).st_size != index_bytes(identity.num_samples):
        raise StoreMismatchError(f"{folder / _INDEX_NAME} has lost its end: {remedy}")
