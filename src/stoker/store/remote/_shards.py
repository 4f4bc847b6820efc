"""The shards of a remote store: each made local when it is first needed, and held while it is open here."""

import contextlib
import functools
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, StoreError, StoreUnreachableError
from stoker.store._manifest import SHARD_FOLDER, FieldSpec, FileEntry, ShardEntry, shard_path
from stoker.store._shard import Shard, Shards
from stoker.store.remote._bucket import Bucket
from stoker.store.remote._folder import BusyError, CacheFolder, NoRoomError, no_room
from stoker.store.remote._locks import Uses
from stoker.store.remote._parts import Part, check_part, part_of
from stoker.store.remote._patience import Patience

_SHARE = 8  # of the budget that one process keeps open of a store that is larger than the budget: 1 / 8
_FAILED_S = 10.0  # for so long a failed fetch is not tried again: many threads may ask at once
_PAUSES = Patience(first_delay_s=0.01, longest_delay_s=0.2)  # until others are done, or let go of something
_READ_BYTES = 1 << 20


class RemoteShards(Shards):
    """As ``Shards``, out of the cache folder.

    Args:
        bucket: where they are.
        folder: where they come to.
        entries: of the manifest.
        fields: likewise.
        index_bytes: of the cache, which the index takes for as long as the store is open.
        parts: of shards that few rows are needed of, which come by range, by their numbers.
    """

    def __init__(
        self,
        bucket: Bucket,
        folder: CacheFolder,
        entries: Sequence[ShardEntry],
        fields: Sequence[FieldSpec],
        *,
        index_bytes: int,
        parts: Mapping[int, Part] | None = None,
    ) -> None:
        self._parts = {} if parts is None else parts
        here = [
            self._parts[number].entry if number in self._parts else entry
            for number, entry in enumerate(entries)
        ]
        super().__init__(folder.root, here, fields)
        self._published = entries
        self._fields = fields
        self._bucket = bucket
        self._folder = folder
        self._uses = folder.new_uses()
        self._recent: OrderedDict[int, None] = OrderedDict()  # those that are open, the latest last
        self._failed: dict[int, tuple[float, type[StoreError], str]] = {}  # when, and what was raised
        self._removed: set[int] = set()  # as they could not be opened: once
        self._index_bytes = index_bytes
        self.max_bytes = max(0, folder.max_bytes - index_bytes)
        self._max_open_bytes = math.inf if self.fits(range(len(entries))) else self.max_bytes / _SHARE

    def of_rows(self, shard: NDArray[Any], row: NDArray[Any]) -> "RemoteShards":
        """The shards for somebody who needs these rows only: by range, where they are few of a shard."""
        if 2 * len(row) > sum(entry.num_samples for entry in self.entries):
            return self
        order = np.lexsort((row, shard))
        numbers, starts = np.unique(shard[order], return_index=True)
        parts: dict[int, Part] = {}
        for number, some in zip(numbers.tolist(), np.split(row[order], starts)[1:], strict=True):
            rows = np.unique(some).astype(np.int64)
            if number >= len(self) or rows[-1] >= self._published[number].num_samples:
                continue  # a wrong index is found out when it is read
            if shard_path(self.root, self._published[number].digest).exists():
                continue
            part = part_of(self._published[number], self._fields, rows)
            if part is not None:
                parts[number] = part
        if not parts:
            return self
        return RemoteShards(
            self._bucket,
            self._folder,
            self._published,
            self._fields,
            index_bytes=self._index_bytes,
            parts=parts,
        )

    def is_part(self, number: int) -> bool:
        """Whether only some rows of the shard come, into a file with holes."""
        return number in self._parts

    def room_bytes(self, number: int) -> int:
        """What the shard takes in the cache."""
        part = self._parts.get(number)
        return self.entries[number].num_bytes if part is None else part.num_bytes

    def __getitem__(self, number: int) -> Shard:  # type: ignore[override]  # one at a time
        shard = self._opened[number]
        if shard is None:
            shard = self._open(number)
        self._recent[number] = None
        with contextlib.suppress(KeyError):  # another thread may have closed it
            self._recent.move_to_end(number)
        return shard

    def _open(self, number: int) -> Shard:
        self._close_oldest(self.room_bytes(number))
        with self.brought(number) as path:
            try:
                shard = super().__getitem__(number)
            except DamagedStoreError:
                if number in self._removed:
                    raise
                self._removed.add(number)  # what lies there may be at fault, and not what was published
                path.unlink(missing_ok=True)
                self._bring(number, None)
                shard = super().__getitem__(number)
            self._uses.hold(self.entries[number].digest)
        return shard

    def fits(self, numbers: Iterable[int]) -> bool:
        """Whether the cache can hold these all at once."""
        return sum(map(self.room_bytes, numbers)) <= self.max_bytes

    def new_uses(self) -> Uses:
        """For somebody who maps shards on their own; see ``brought``."""
        return self._folder.new_uses()

    def fetch(self, number: int, stop: threading.Event) -> None:
        """Have the shard in the cache, for a use to come."""
        with self.brought(number, stop):
            pass

    @contextlib.contextmanager
    def brought(self, number: int, stop: threading.Event | None = None) -> Iterator[Path]:
        """The shard's file, having waited for it; nobody removes it meanwhile.

        Whoever maps it holds it by uses of their own before this ends. What is shared by threads holds only
        what is there, so that one thread's failure takes nothing from another.

        Raises:
            DamagedStoreError: there is no such object, or its bytes are never the published ones.
            StoreUnreachableError: it cannot be had; both name the object.
            StoreWriteError: there is no room, and there was none for as long as a fetch may take.
        """
        with self._folder.used(self.entries[number].digest):
            yield self._bring(number, stop)

    def _bring(self, number: int, stop: threading.Event | None) -> Path:
        part, entry = self._parts.get(number), self._published[number]
        path = shard_path(self.root, self.entries[number].digest)
        name = f"{SHARD_FOLDER}/{entry.digest}.h5"

        def attempt() -> None:
            self._check_failed(number)
            try:
                bring_file(self._bucket, self._folder, name, path, entry, part=part, stop=stop)
            except StoreError as error:
                if stop is None or not stop.is_set():
                    self._failed[number] = (time.monotonic(), type(error), str(error))
                raise

        in_turn(attempt, self._bucket, self._folder, name, stop=stop, let_go=self._close_all)
        return path

    def _check_failed(self, number: int) -> None:
        if number in self._failed:
            when, kind, text = self._failed[number]
            if time.monotonic() < when + _FAILED_S:
                raise kind(text)

    def _close_oldest(self, num_bytes: int) -> None:
        """Close shards here until one of so many bytes may be open beside the others."""
        while self._open_bytes() + num_bytes > self._max_open_bytes and self._close_one():
            pass

    def _close_all(self) -> bool:
        """Close all shards here; whether any was open."""
        is_any = False
        while self._close_one():
            is_any = True
        return is_any

    def _close_one(self) -> bool:
        """Close the shard that was used least recently; whether there was one."""
        try:
            number, _ = self._recent.popitem(last=False)
        except KeyError:
            return False
        self._opened[number] = None
        self._uses.drop(self.entries[number].digest)
        return True

    def _open_bytes(self) -> int:
        return sum(map(self.room_bytes, list(self._recent)))


def in_turn(
    attempt: Callable[[], None],
    bucket: Bucket,
    folder: CacheFolder,
    name: str,
    *,
    stop: threading.Event | None = None,
    let_go: Callable[[], bool] = lambda: False,
) -> None:
    """Bring a file by ``attempt``, as soon as there is room and nobody else fetches it.

    Before it waits for room, ``let_go`` may give some up; it says whether it did.
    """
    deadline_s = bucket.patience.deadline_s
    end = time.monotonic() + deadline_s
    for delay in _PAUSES.delays():
        try:
            attempt()
        except NoRoomError:
            if let_go():
                continue
            error: StoreError = no_room(folder, bucket.name_of(name))
        except BusyError:
            error = StoreUnreachableError(
                f"{bucket.name_of(name)} is being fetched by another process, which was not done after "
                f"{deadline_s:g} s; if it is stopped or hangs, end it, else give more by deadline_s="
            )
        else:
            return
        if time.monotonic() > end or (stop is not None and stop.is_set()):
            raise error
        (threading.Event() if stop is None else stop).wait(delay)


def bring_file(
    bucket: Bucket,
    folder: CacheFolder,
    name: str,
    path: Path,
    entry: FileEntry,
    *,
    part: Part | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Have a file of the store in the cache: its bytes are those of its digest, or it is not there.

    Of a ``part``, its values are the published ones. Raises BusyError and NoRoomError; see ``in_turn``.
    """

    def fetch(target: Path) -> None:
        with _named(bucket, name):
            if part is None:
                check = functools.partial(check_arrived, entry=entry)
                bucket.fetch(name, target, check=check, max_bytes=entry.num_bytes, stop=stop)
            else:
                check = functools.partial(check_part, part=part)
                spans, num_bytes = part.spans, entry.num_bytes
                bucket.fetch_spans(name, target, spans, num_bytes=num_bytes, check=check, stop=stop)

    digest = entry.digest if part is None else part.entry.digest
    room_bytes = entry.num_bytes if part is None else part.num_bytes
    folder.bring(path, digest, entry.num_bytes, fetch, room_bytes=room_bytes)


@contextlib.contextmanager
def _named(bucket: Bucket, name: str) -> Iterator[None]:
    """An object that is not there is damage: the manifest names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedStoreError(
            f"there is no object {bucket.name_of(name)}, though the manifest names it"
        ) from error


def check_arrived(path: Path, entry: FileEntry) -> None:
    """Raise DamagedStoreError unless the file has the bytes that the digest promises."""
    state: Any = xxhash.xxh3_128()
    num_bytes = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_READ_BYTES):
            state.update(block)
            num_bytes += len(block)
    if num_bytes != entry.num_bytes:
        raise DamagedStoreError(f"it arrived with {num_bytes} bytes, published were {entry.num_bytes}")
    if state.hexdigest() != entry.digest:
        raise DamagedStoreError("it arrived with other bytes than those that were published")
