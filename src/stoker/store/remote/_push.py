"""Writing a store to a URL: shards first, then the index, the manifest last.

Readers see the old store until the manifest is replaced, which object stores do in one go, and the new one
after that. Nothing is removed: those who read the old store go on with it.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import DamagedStoreError, StoreUnreachableError, StoreWriteError, UsageError
from stoker.store._layout import digest, map_file
from stoker.store._manifest import (
    MANIFEST_NAME,
    SHARD_FOLDER,
    FileEntry,
    index_path,
    parse_manifest,
    read_manifest,
    shard_path,
)
from stoker.store._progress import Display, Silent
from stoker.store._url import checked_url, is_url
from stoker.store.remote._bucket import Bucket
from stoker.store.remote._patience import DEADLINE_S, Patience

_NUM_THREADS = 4


@dataclass(frozen=True)
class Pushed:
    """What pushing did."""

    url: str
    num_files: int  # shards and index that were sent
    num_bytes: int  # of these
    num_kept: int  # that were there already


def push(
    path: str | os.PathLike[str], url: str, *, deadline_s: float = DEADLINE_S, progress: bool = False
) -> Pushed:
    """Write the store at ``path`` to ``url``; what is there already is not sent again.

    Killed at any point, the store at the URL is the old one or the new one; run again, it goes on.

    Raises:
        DamagedStoreError: a file is not what was published; nothing damaged is ever sent.
        StoreUnreachableError: an object cannot be written; names it.
    """
    if not is_url(url):
        raise UsageError(f"a store is pushed to a URL, such as s3://bucket/train.stoker, got {url!r}")
    root = Path(path)
    read_manifest(root)  # a path that is no store is an error that says so
    sealed = (root / MANIFEST_NAME).read_bytes()
    manifest = parse_manifest(sealed, str(root / MANIFEST_NAME))
    bucket = Bucket(checked_url(url), Patience(deadline_s=deadline_s))
    shards = [(f"{SHARD_FOLDER}/{entry.digest}.h5", entry) for entry in manifest.shards]
    sent: list[int] = []
    with Display("pushing", manifest.num_samples) if progress else Silent() as display:

        def send(item: tuple[str, FileEntry]) -> int:
            name, entry = item
            return _send(bucket, name, shard_path(root, entry.digest), entry)

        num_done = 0
        with ThreadPoolExecutor(_NUM_THREADS) as pool:
            try:
                for (_, entry), num_bytes in zip(shards, pool.map(send, shards), strict=True):
                    sent.append(num_bytes)
                    num_done += entry.num_samples
                    display.update(num_done, sum(sent), 0)
            except BaseException:  # Ctrl-C too: else it would wait for what others still try
                bucket.give_up()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        path_of_index = index_path(root, manifest.index.digest)
        sent.append(_send(bucket, path_of_index.name, path_of_index, manifest.index))
        if bucket.read(MANIFEST_NAME) != sealed:
            bucket.write(MANIFEST_NAME, sealed)
    if bucket.read(MANIFEST_NAME) != sealed:
        raise StoreUnreachableError(
            f"{bucket.name_of(MANIFEST_NAME)} is not what was just written; is another process writing it?"
        )
    num_sent = sum(num_bytes > 0 for num_bytes in sent)
    return Pushed(bucket.url, num_sent, sum(sent), len(sent) - num_sent)


def _send(bucket: Bucket, name: str, path: Path, entry: FileEntry) -> int:
    """Bytes sent; 0 where the object is: named by its digest, it appeared whole, so its size is enough."""
    if bucket.size(name) == entry.num_bytes:
        return 0
    if digest(map_file(path, entry.num_bytes).data) != entry.digest:
        raise DamagedStoreError(
            f"{path} is damaged and was not sent; `stoker repair` packs its samples again"
        )
    bucket.put(name, path)
    found = bucket.size(name)
    if found != entry.num_bytes:
        raise StoreWriteError(f"{bucket.name_of(name)} has {found} bytes after {entry.num_bytes} were sent")
    return entry.num_bytes
