"""A store at a URL, used like any other."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, StoreNotFoundError
from stoker.store._index import Index
from stoker.store._manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest, index_path, parse_manifest
from stoker.store._store import Store
from stoker.store._url import checked_url
from stoker.store.remote._bucket import Bucket
from stoker.store.remote._folder import CacheFolder, cache_root
from stoker.store.remote._locks import Uses
from stoker.store.remote._patience import Patience
from stoker.store.remote._shards import RemoteShards, bring_file, in_turn

if TYPE_CHECKING:
    from stoker.store._verify import Report


class RemoteStore(Store):
    """A store whose shards come when they are needed, into a cache that all processes share.

    ``path`` is the cache's folder, where the shards are found once they are here. Pickled, it is opened
    again: by URL, never with credentials.
    """

    def __init__(
        self,
        url: str,
        *,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int | None = None,
        deadline_s: float | None = None,
        stall_s: float | None = None,
    ) -> None:
        self.url = checked_url(url)
        limits = {"deadline_s": deadline_s, "stall_s": stall_s}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        patience = self._patience = Patience(**given)
        self._options = {
            "cache": cache_root(cache),
            "cache_bytes": cache_bytes,
            "deadline_s": patience.deadline_s,
            "stall_s": patience.stall_s,
        }
        bucket = Bucket(self.url, patience)
        folder = CacheFolder(cache_root(cache), cache_bytes)
        self.path = folder.root
        self._uses = folder.new_uses()
        self.manifest, self.index = _open(bucket, folder, self._uses)
        self._whole = self.shards = RemoteShards(
            bucket,
            folder,
            self.manifest.shards,
            self.manifest.fields,
            index_bytes=self.manifest.index.num_bytes,
        )
        self._numbers: NDArray[np.int64] | None = None

    @property
    def location(self) -> str:
        """The URL."""
        return self.url

    def select(self, items: slice | Sequence[int] | NDArray[Any]) -> "Store":
        """As of any store; a shard that few of the samples lie in comes by range, as far as it pays."""
        view = super().select(items)
        assert isinstance(view, RemoteStore)
        view._choose_shards()  # noqa: SLF001 - one of us
        return view

    def _choose_shards(self) -> None:
        numbers = self.numbers
        self.shards = self._whole.of_rows(self.index.shard[numbers], self.index.row[numbers])

    def verify(self, *, quick: bool = False, workers: int | None = None) -> "Report":
        """Fetch and check every byte of the store as it is at its URL; what the cache holds is left aside."""
        from stoker.store.remote._verify import verify_remote

        return verify_remote(
            self.url,
            quick=quick,
            workers=workers,
            progress=False,
            cache=self.path,
            patience=self._patience,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.url, self._options, self.manifest.content_digest, self._numbers)


def fetch_manifest(bucket: Bucket) -> Manifest:
    """The manifest as it is at the URL now.

    Raises:
        StoreNotFoundError: there is none.
        DamagedStoreError: it never arrives as it was published.
    """
    found: list[Manifest] = []

    def check(arrived: Path) -> None:
        found[:] = [parse_manifest(arrived.read_bytes(), bucket.name_of(MANIFEST_NAME))]

    with tempfile.TemporaryDirectory(prefix="stoker-") as folder:
        try:
            bucket.fetch(
                MANIFEST_NAME, Path(folder) / MANIFEST_NAME, check=check, max_bytes=MAX_MANIFEST_BYTES
            )
        except FileNotFoundError as error:
            raise StoreNotFoundError(
                f"there is no store at {bucket.url}; write one: `stoker push STORE {bucket.url}`"
            ) from error
    return found[0]


def _open(bucket: Bucket, folder: CacheFolder, uses: Uses) -> tuple[Manifest, Index]:
    """Manifest and index of one and the same store, even if it is written anew just now."""
    manifest = fetch_manifest(bucket)
    try:
        return manifest, _open_index(bucket, folder, manifest, uses)
    except DamagedStoreError:
        latest = fetch_manifest(bucket)
        if latest == manifest:
            raise
        return latest, _open_index(bucket, folder, latest, uses)


def _open_index(bucket: Bucket, folder: CacheFolder, manifest: Manifest, uses: Uses) -> Index:
    path = index_path(folder.root, manifest.index.digest)
    with folder.used(manifest.index.digest):
        in_turn(
            lambda: bring_file(bucket, folder, path.name, path, manifest.index), bucket, folder, path.name
        )
        uses.hold(manifest.index.digest)
    return Index.open(folder.root, manifest.index)


def _reopen(url: str, options: dict[str, Any], digest: str, numbers: NDArray[np.int64] | None) -> RemoteStore:
    store = RemoteStore(url, **options)
    if store.content_digest != digest:
        raise DamagedStoreError(f"{url} was written anew since it was opened; open it again")
    if numbers is not None:
        store._numbers = numbers  # noqa: SLF001 - restores its own pickle
        store._choose_shards()  # noqa: SLF001
    return store
