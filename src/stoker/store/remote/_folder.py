"""Files of many stores in one folder, each under the digest of its bytes, within a budget of bytes.

    shards/DIGEST.h5, index-DIGEST.h5    whole and checked, or absent
    .writing-BYTES-DIGEST.h5             being fetched; its name reserves the room
    .verifying-NAME/                     files that are no part of the cache, while somebody looks at them
    .cache.lock                          see ``_locks``

Any number of processes use it at once. Room is made by removing what was used least recently and what
nobody maps. A killed process leaves at most a ``.writing-`` file or a ``.verifying-`` folder, which the
next one that needs room removes.
"""

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import StokerError, StoreWriteError, UsageError
from stoker.store._durable import TEMPORARY_PREFIX, make_folder, sync_folder, write_error
from stoker.store._manifest import SHARD_FOLDER
from stoker.store.remote._locks import ALL, Kind, Uses, locked, locked_if_free, used

CACHE_VARIABLE = "STOKER_CACHE"
_DIGEST = re.compile(r"[0-9a-f]{32}")
_FILE = re.compile(r"(?:index-)?([0-9a-f]{32})\.h5")
_WRITING = re.compile(re.escape(TEMPORARY_PREFIX) + r"(\d+)-([0-9a-f]{32})\.h5")
_VERIFYING = ".verifying-"
_SHARE_OF_DISK = 0.9


class NoRoomError(Exception):
    """Everything in the folder is in use."""


class BusyError(Exception):
    """Another process, or thread, is fetching the file."""


@dataclass(frozen=True)
class _Found:
    path: Path
    digest: str
    num_bytes: int
    used: float  # when, for the last time; 0 for one that is being written


class CacheFolder:
    """The files in ``root``; ``max_bytes`` is what they may take together."""

    def __init__(self, root: Path, max_bytes: int | None) -> None:
        if max_bytes is not None and max_bytes < 1:
            raise UsageError(f"cache_bytes must be at least 1, got {max_bytes}")
        self.root = root
        make_folder(root / SHARD_FOLDER)
        self._locks = root / ".cache.lock"
        self.max_bytes = self._share_of_disk() if max_bytes is None else max_bytes

    def new_uses(self) -> Uses:
        """Nothing held yet."""
        return Uses(self._locks)

    @contextlib.contextmanager
    def used(self, digest: str) -> Iterator[None]:
        """Nobody removes the file of this digest meanwhile, be it there or not."""
        with used(self._locks, digest):
            yield

    def bring(
        self, path: Path, digest: str, num_bytes: int, fetch: Callable[[Path], None], *, room_bytes: int
    ) -> None:
        """Have the file; if it is not there, it is fetched. Only a context of ``used`` keeps it from removal.

        ``fetch`` writes a given file and raises unless it is what it should be. A file with holes takes only
        ``room_bytes`` of its ``num_bytes``. Waits for nobody.

        Raises:
            BusyError: it is not there yet, and another one is fetching it.
            NoRoomError: it is not there, and all that is there is in use.
            StoreWriteError: it is larger than the budget, or the disk is full.
        """
        if not _has(path, num_bytes):
            with locked_if_free(self._locks, Kind.FETCH, digest) as is_ours:
                if not is_ours:
                    raise BusyError
                if not _has(path, num_bytes):
                    self._fetch(path, digest, room_bytes, fetch)
        with contextlib.suppress(OSError):  # of another user: then its time says when it came
            os.utime(path)

    @contextlib.contextmanager
    def aside(self) -> Iterator[Path]:
        """A new folder for files that are no part of the cache, and not of its budget; removed at the end."""
        self._remove_forgotten()
        name = secrets.token_hex(16)
        with locked(self._locks, Kind.FETCH, name):
            path = self.root / f"{_VERIFYING}{name}"
            make_folder(path)
            try:
                yield path
            finally:
                shutil.rmtree(path, ignore_errors=True)

    def num_bytes(self) -> int:
        """What the files take, with the room reserved for those that are being fetched."""
        return sum(file.num_bytes for file in self._files())

    def _fetch(self, path: Path, digest: str, num_bytes: int, fetch: Callable[[Path], None]) -> None:
        temporary = self._reserve(digest, num_bytes)
        try:
            fetch(temporary)
            descriptor = os.open(temporary, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
            sync_folder(path.parent)
        except StokerError:
            raise
        except OSError as error:
            raise write_error(path, error) from error
        finally:
            temporary.unlink(missing_ok=True)

    def _reserve(self, digest: str, num_bytes: int) -> Path:
        if num_bytes > self.max_bytes:
            raise StoreWriteError(
                f"{self.root} may take {self.max_bytes} bytes, one shard alone has {num_bytes}; "
                "give more by cache_bytes="
            )
        temporary = self.root / f"{TEMPORARY_PREFIX}{num_bytes}-{digest}.h5"
        with locked(self._locks, Kind.ROOM, ALL):
            self._make_room(num_bytes, digest)
            try:
                temporary.touch()
            except OSError as error:
                raise write_error(temporary, error) from error
        return temporary

    def _make_room(self, num_bytes: int, digest: str) -> None:
        while not self._makes_room(num_bytes, digest):
            pass  # what was listed has arrived or gone since: look again

    def _makes_room(self, num_bytes: int, digest: str) -> bool:
        """Whether it could be made of the files that were there; False where one of them no longer is."""
        files = [file for file in self._files() if file.digest != digest]
        excess = sum(file.num_bytes for file in files) + num_bytes - self.max_bytes
        if excess > 0:
            self._remove_forgotten()
        for file in sorted(files, key=lambda file: file.used):
            if excess <= 0:
                break
            kind = Kind.USE if file.used else Kind.FETCH
            with locked_if_free(self._locks, kind, file.digest) as is_free:
                if is_free:
                    try:
                        file.path.unlink()
                    except FileNotFoundError:
                        return False
                    excess -= file.num_bytes
        if excess > 0:
            raise NoRoomError
        return True

    def _remove_forgotten(self) -> None:
        """What killed processes left aside."""
        for path in self.root.glob(f"{_VERIFYING}*"):
            name = path.name.removeprefix(_VERIFYING)
            if _DIGEST.fullmatch(name):
                with locked_if_free(self._locks, Kind.FETCH, name) as is_free:
                    if is_free:
                        shutil.rmtree(path, ignore_errors=True)

    def _files(self) -> list[_Found]:
        found = []
        for folder in (self.root, self.root / SHARD_FOLDER):
            with os.scandir(folder) as entries:
                for entry in entries:
                    if whole := _FILE.fullmatch(entry.name):
                        with contextlib.suppress(FileNotFoundError):
                            status = entry.stat()
                            path = Path(entry.path)
                            taken = min(status.st_size, 512 * status.st_blocks)  # there may be holes
                            found.append(_Found(path, whole[1], taken, status.st_mtime))
                    elif writing := _WRITING.fullmatch(entry.name):
                        found.append(_Found(Path(entry.path), writing[2], int(writing[1]), 0.0))
        return found

    def _share_of_disk(self) -> int:
        free = shutil.disk_usage(self.root).free
        return max(1, int(_SHARE_OF_DISK * (free + self.num_bytes())))


def cache_root(cache: str | os.PathLike[str] | None) -> Path:
    """The given folder, or that of the environment, or the user's own."""
    if cache is not None:
        return Path(cache).absolute()
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stoker"


def no_room(folder: CacheFolder, name: str) -> StoreWriteError:
    """The error for an object that found no room for as long as one waits."""
    return StoreWriteError(
        f"{folder.root} may take {folder.max_bytes} bytes, and all that it holds is in use; "
        f"there is no room for {name}: give more by cache_bytes="
    )


def _has(path: Path, num_bytes: int) -> bool:
    try:
        return path.stat().st_size == num_bytes
    except FileNotFoundError:
        return False
