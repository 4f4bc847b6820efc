"""The shards of a remote store: each made local when it is first needed, and held while it is open here."""

import contextlib
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, StoreError
from stoker.store._manifest import SHARD_FOLDER, FieldSpec, FileEntry, ShardEntry, shard_path
from stoker.store._shard import Shard, Shards
from stoker.store.remote._bucket import Bucket
from stoker.store.remote._folder import CacheFolder, NoRoomError, no_room, wait_for_room
from stoker.store.remote._locks import Uses
from stoker.store.remote._parts import Part, check_part, part_of

_SHARE = 8  # of the budget that one process keeps open of a store that is larger than the budget: 1 / 8
_FAILED_S = 10.0  # for so long a failed fetch is not tried again: many threads may ask at once
_WAIT_S = 0.2
_READ_BYTES = 1 << 20


class RemoteShards(Shards):
    """As ``Shards``, out of the cache folder.

    Args:
        bucket: where they are.
        folder: where they come to.
        entries: of the manifest.
        fields: likewise.
        parts: of shards that few rows are needed of, which come by range, by their numbers.
    """

    def __init__(
        self,
        bucket: Bucket,
        folder: CacheFolder,
        entries: Sequence[ShardEntry],
        fields: Sequence[FieldSpec],
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
        self.max_bytes = folder.max_bytes
        self._max_open_bytes = math.inf if self.fits(range(len(entries))) else folder.max_bytes / _SHARE

    def of_rows(self, shard: NDArray[Any], row: NDArray[Any]) -> "RemoteShards":
        """The shards for somebody who needs these rows only: by range, where they are few of a shard."""
        if 2 * len(row) > sum(entry.num_samples for entry in self.entries):
            return self
        order = np.lexsort((row, shard))
        numbers, starts = np.unique(shard[order], return_index=True)
        parts: dict[int, Part] = {}
        for number, rows in zip(numbers.tolist(), np.split(row[order], starts[1:]), strict=True):
            if number >= len(self) or shard_path(self.root, self._published[number].digest).exists():
                continue  # a wrong index is found out when it is read
            part = part_of(self._published[number], self._fields, np.unique(rows).astype(np.int64))
            if part is not None:
                parts[number] = part
        if not parts:
            return self
        return RemoteShards(self._bucket, self._folder, self._published, self._fields, parts)

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
        opening = self.new_uses()  # of this thread alone: others may open and close the same one meanwhile
        try:
            self.bring(number, opening)
            shard = super().__getitem__(number)
            self._uses.hold(self.entries[number].digest)
        finally:
            opening.close()
        return shard

    def fits(self, numbers: Iterable[int]) -> bool:
        """Whether the cache can hold these all at once."""
        return sum(map(self.room_bytes, numbers)) <= self.max_bytes

    def new_uses(self) -> Uses:
        """For somebody who maps shards on their own."""
        return self._folder.new_uses()

    def fetch(self, number: int, stop: threading.Event) -> None:
        """Have the shard in the cache, for a use to come."""
        uses = self.new_uses()
        try:
            self.bring(number, uses, stop)
        finally:
            uses.close()

    def bring(self, number: int, uses: Uses, stop: threading.Event | None = None) -> Path:
        """The shard's file, held by ``uses``; waits until it is there.

        Raises:
            DamagedStoreError: there is no such object, or its bytes are never the published ones.
            StoreUnreachableError: it cannot be had; both name the object.
            StoreWriteError: there is no room, and there was none for as long as a fetch may take.
        """
        self._check_failed(number)
        part, entry = self._parts.get(number), self._published[number]
        path = shard_path(self.root, self.entries[number].digest)
        name = f"{SHARD_FOLDER}/{entry.digest}.h5"
        end = time.monotonic() + self._bucket.patience.deadline_s
        while True:
            try:
                if part is None:
                    bring_file(self._bucket, self._folder, name, path, entry, uses, stop)
                else:
                    _bring_part(self._bucket, self._folder, name, path, part, uses, stop)
            except NoRoomError as error:
                if self._close_oldest(math.inf):
                    continue
                if time.monotonic() > end or (stop is not None and stop.is_set()):
                    raise no_room(self._folder, self._bucket.name_of(name)) from error
                wait_for_room(stop, _WAIT_S)
            except StoreError as error:
                if stop is None or not stop.is_set():
                    self._failed[number] = (time.monotonic(), type(error), str(error))
                raise
            else:
                return path

    def _check_failed(self, number: int) -> None:
        if number in self._failed:
            when, kind, text = self._failed[number]
            if time.monotonic() < when + _FAILED_S:
                raise kind(text)

    def _close_oldest(self, num_bytes: float) -> bool:
        """Close shards here until there is room to open one of so many bytes; whether any was."""
        is_any = False
        while self._recent and self._open_bytes() + num_bytes > self._max_open_bytes:
            try:
                number, _ = self._recent.popitem(last=False)
            except KeyError:  # another thread was first
                break
            self._opened[number] = None
            self._uses.drop(self.entries[number].digest)
            is_any = True
        return is_any

    def _open_bytes(self) -> int:
        return sum(map(self.room_bytes, list(self._recent)))


def bring_file(
    bucket: Bucket,
    folder: CacheFolder,
    name: str,
    path: Path,
    entry: FileEntry,
    uses: Uses,
    stop: threading.Event | None = None,
) -> None:
    """Have one file of the store in the cache: its bytes are those of its digest, or it is not there."""

    def check(arrived: Path) -> None:
        check_arrived(arrived, entry)

    def fetch(target: Path) -> None:
        with _named(bucket, name):
            bucket.fetch(name, target, check=check, max_bytes=entry.num_bytes, stop=stop)

    folder.bring(path, entry.digest, entry.num_bytes, uses, fetch)


def _bring_part(
    bucket: Bucket,
    folder: CacheFolder,
    name: str,
    path: Path,
    part: Part,
    uses: Uses,
    stop: threading.Event | None,
) -> None:
    """Have the rows of a shard in the cache: their values are the published ones, or it is not there."""
    entry = part.entry

    def check(arrived: Path) -> None:
        check_part(arrived, part)

    def fetch(target: Path) -> None:
        with _named(bucket, name):
            bucket.fetch_spans(name, target, part.spans, num_bytes=entry.num_bytes, check=check, stop=stop)

    folder.bring(path, entry.digest, entry.num_bytes, uses, fetch, room_bytes=part.num_bytes)


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
