"""A compressed store, decoded once: an uncompressed store on local disk (or in /dev/shm) in its stead.

The cache is a packed store like any other: whole or absent, gone on with after a kill, mapped by all
processes of the machine. Its name holds the digest of the content that it was made of, so that a
changed store never meets an old cache; what an earlier content left there is removed then.
"""

import dataclasses
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, StoreWriteError, UsageError
from stoker.loader._block_source import BlockSource
from stoker.loader._made_once import made_once, remove_store
from stoker.loader._room import check_room
from stoker.store import Store, pack
from stoker.store._durable import write_error
from stoker.store._publish import digest_of
from stoker.store._url import is_url

_BLOCK_BYTES = 4 << 20  # decoded at a time: a compressed chunk holds up to 64 KiB of neighbours
_MAX_BLOCK = 1024
_SMALL_BYTES = 32 << 20  # less is decoded in this process: others would cost more than they bring


def decoded(
    store: Store,
    path: str | os.PathLike[str] | None = None,
    *,
    fields: Sequence[str] | None = None,
    max_bytes: int | None = None,
    workers: int | None = None,
) -> Store:
    """The same samples out of an uncompressed store, which is made now if it is not there yet.

    An uncompressed store is given back as it is. All processes of a machine share the cache: one
    makes it, the others wait. Numbers, splits and digest are those of ``store``, so that a loader's
    state fits with and without the cache.

    Args:
        store: an open store, or a split or selection of one; the whole of it is decoded.
        path: a folder for caches; by default one of the user's own in the system's temporary folder.
        fields: decode only these.
        max_bytes: the most that the cache may take. Never more than is free; in a tmpfs such as
            /dev/shm, whose files are memory, never more than half of the memory that is available.
        workers: processes that decode; by default one a usable core.

    Raises:
        StoreWriteError: there is no room for it, or the folder cannot be written.
        DamagedStoreError: the store does not decode to what was packed.
    """
    if store.manifest.compression == "none":
        return store
    names = _names(store, fields)
    folder = _own_folder() if path is None else Path(path)
    where = store.location if is_url(store.location) else str(store.path.resolve())
    origin = f"decoded-{xxhash.xxh3_64_hexdigest(where.encode())}"
    content = f"{origin}-{store.content_digest}"
    target = folder / f"{content}-{xxhash.xxh3_64_hexdigest(','.join(names).encode())[:8]}.stoker"

    def make() -> None:
        for old in folder.glob(f"{origin}-*.stoker"):
            if not old.name.startswith(content):
                remove_store(old)
        _make(store, target, names, max_bytes, workers)

    made_once(target, folder / f".{origin}.lock", make)
    whole = DecodedStore(target, store)
    return whole if store.is_whole else whole.select(store.numbers)


class DecodedStore(Store):
    """An uncompressed store that stands for the compressed one, whose name, splits and digest it has."""

    def __init__(self, path: Path, original: Store) -> None:
        super().__init__(path)
        ours = {field.name for field in self.manifest.fields}
        told = original.manifest
        self.manifest = self.manifest.model_copy(
            update={
                "fields": tuple(field for field in told.fields if field.name in ours),
                "stats": {name: stats for name, stats in told.stats.items() if name in ours},
                "classes": {name: names for name, names in told.classes.items() if name in ours},
                "splits": told.splits,
            }
        )
        self.index = dataclasses.replace(self.index, split=original.index.split)
        self._original = original

    @property
    def content_digest(self) -> str:
        """That of the compressed store, even where only some fields were decoded."""
        return self._original.content_digest

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path.absolute(), self._original, self._numbers)


def _reopen(path: Path, original: Store, numbers: NDArray[np.int64] | None) -> DecodedStore:
    store = DecodedStore(path, original)
    store._numbers = numbers  # noqa: SLF001 - restores its own pickle
    return store


def _names(store: Store, fields: Sequence[str] | None) -> list[str]:
    """The chosen fields, in the store's order."""
    unknown = sorted(set(fields or ()) - store.fields.keys())
    if unknown:
        raise UsageError(f"there is no field {unknown[0]!r}; there are {sorted(store.fields)}")
    return [name for name in store.fields if fields is None or name in fields]


def _own_folder() -> Path:
    """A folder of this user alone: others could put a cache of their making into a shared one."""
    folder = Path(tempfile.gettempdir()) / f"stoker-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise write_error(folder, error) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise StoreWriteError(f"{folder} must be a folder that only you can write; choose another for caches")
    return folder


def _make(store: Store, target: Path, names: list[str], max_bytes: int | None, workers: int | None) -> None:
    index, shards = store.index, store.shards
    value_bytes = sum(shard.fields[name].column.num_bytes for shard in shards for name in names)
    # beside the values: a key, a fingerprint, a place and a checksum a field; pages that are not full
    num_bytes = value_bytes + len(index) * (64 + 8 * len(names)) + len(index.keys.values)
    check_room(target, num_bytes, f"the decoded cache of {store.location}", max_bytes=max_bytes)

    def make(numbers: range) -> list[dict[str, Any]]:
        here = slice(numbers.start, numbers.stop)
        try:
            columns = [shards.column(index.shard[here], index.row[here], name) for name in names]
        except DamagedStoreError as error:
            raise DamagedStoreError(
                f"{store.location}: {error}, among the samples {index.keys[numbers[0]]!r} to "
                f"{index.keys[numbers[-1]]!r}; `stoker verify` tells which"
            ) from error
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    block_size = max(1, min(_BLOCK_BYTES * len(index) // max(1, value_bytes), _MAX_BLOCK))
    source = BlockSource(
        len(index),
        block_size=block_size,
        make=make,
        key=index.keys.__getitem__,
        identity=store.content_digest,
    )
    if value_bytes < _SMALL_BYTES:
        workers = 0
    try:
        made = pack(source, target, workers=workers, batch_size=block_size)
    except StoreWriteError:  # a disk that filled up meanwhile is not to stay full because of a cache
        remove_store(target)
        raise
    chosen = [field for field in store.manifest.fields if field.name in names]
    if made.content_digest != digest_of(chosen, index, shards):
        remove_store(target)
        raise DamagedStoreError(f"{store.location} does not decode to what was packed; run `stoker verify`")
