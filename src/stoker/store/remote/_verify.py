"""Verifying a remote store: every object fetched anew and checked; the cache is neither used nor filled."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stoker.config import usable_cores
from stoker.errors import DamagedStoreError
from stoker.store._index import Index
from stoker.store._manifest import SHARD_FOLDER, FileEntry, Manifest, index_path, shard_path
from stoker.store._progress import Display, Silent
from stoker.store._url import checked_url
from stoker.store._verify import Report, ShardReport, check_index, check_shard, name_bad
from stoker.store.remote._bucket import Bucket
from stoker.store.remote._folder import CacheFolder, cache_root
from stoker.store.remote._patience import Patience
from stoker.store.remote._shards import check_arrived
from stoker.store.remote._store import fetch_manifest


def verify_remote(
    url: str,
    *,
    quick: bool,
    workers: int | None,
    progress: bool,
    cache: Path | None = None,
    patience: Patience | None = None,
) -> Report:
    """As ``stoker.store.verify``, at a URL. Needs room for a shard a thread in the cache's folder.

    What the manifest says of the samples (fields, statistics, content digest) is not worked out again:
    its own checksum, and that of every value, must do.
    """
    started = time.monotonic()
    bucket = Bucket(checked_url(url), Patience() if patience is None else patience)
    manifest = fetch_manifest(bucket)
    files: list[tuple[str, str]] = []
    bad: list[tuple[str, str, str]] = []
    with (
        CacheFolder(cache_root(cache), None).aside() as root,
        Display("verifying", manifest.num_samples) if progress else Silent() as display,
    ):
        (root / SHARD_FOLDER).mkdir()
        index = _fetch_index(bucket, root, manifest, files)
        num_done = num_bytes = 0
        for found in _check_all(bucket, root, manifest, quick=quick, workers=workers):
            entry = manifest.shards[found.number]
            if found.why is not None:
                files.append((shard_path(root, entry.digest).name, found.why))
            bad.extend(name_bad(found, index))
            num_done += entry.num_samples
            num_bytes += entry.num_bytes
            display.update(num_done, num_bytes, len(bad))
        return Report(
            num_samples=manifest.num_samples,
            num_bytes=manifest.num_bytes,
            seconds=time.monotonic() - started,
            bad=sorted(bad),
            files=sorted(files),
        )


def _check_all(
    bucket: Bucket, root: Path, manifest: Manifest, *, quick: bool, workers: int | None
) -> Iterator[ShardReport]:
    def check(number: int) -> ShardReport:
        entry = manifest.shards[number]
        path = shard_path(root, entry.digest)
        try:
            _fetch(bucket, f"{SHARD_FOLDER}/{path.name}", path, entry)
            return check_shard(root, number, entry, quick=quick)
        except DamagedStoreError as error:
            rows = range(entry.num_samples)
            return ShardReport(number, str(error), [(row, "*", "its shard cannot be read") for row in rows])
        finally:
            path.unlink(missing_ok=True)

    with ThreadPoolExecutor(workers or usable_cores()) as pool:
        yield from pool.map(check, range(len(manifest.shards)))


def _fetch_index(
    bucket: Bucket, root: Path, manifest: Manifest, files: list[tuple[str, str]]
) -> Index | None:
    path = index_path(root, manifest.index.digest)
    try:
        _fetch(bucket, path.name, path, manifest.index)
    except DamagedStoreError as error:
        files.append((path.name, str(error)))
        return None
    return check_index(root, manifest, files)


def _fetch(bucket: Bucket, name: str, path: Path, entry: FileEntry) -> None:
    try:
        bucket.fetch(
            name, path, check=lambda arrived: check_arrived(arrived, entry), max_bytes=entry.num_bytes
        )
    except FileNotFoundError as error:
        raise DamagedStoreError(f"there is no object {bucket.name_of(name)}") from error
