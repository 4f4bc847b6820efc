"""Where the files of a source are: in folders of this machine, or below a URL."""

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from posixpath import normpath
from typing import Literal, Protocol

import numpy as np

from stoker.errors import BadSampleError, DamagedStoreError, SourceError, UsageError
from stoker.store._strings import Strings
from stoker.store._url import checked_url, is_url
from stoker.store.remote._bucket import Bucket, Listed
from stoker.store.remote._patience import Patience
from stoker.store.sources._fingerprints import Pair, Words, content_pair, pairs_of, stat_pair, version_pair
from stoker.store.sources._reader import suffix_of

FingerprintOf = Literal["stat", "content"]

_PATIENCE = Patience()
_NUM_THREADS = 16  # that ask for what no listing tells
_MAX_BYTES = 1 << 50  # of an object whose size is not known before


class Files(Protocol):
    """Named files: what tells their versions apart, and how to read one."""

    def pair(self, name: str) -> Pair | None:
        """128 bits that change when the file does; None where it is not there."""

    def pairs(self, names: Strings, suffix: str) -> tuple[Words, list[int]]:
        """Those of each name with the suffix, [N, 2], and the numbers of those that are not there."""

    def local(self, name: str, key: str) -> AbstractContextManager[str]:
        """A path at which it can be read, for as long as the context lasts.

        Raises:
            BadSampleError: of the sample `key`; it cannot be had, however often one tries.
            StoreUnreachableError: nothing answers.
        """


def files_at(base: str, fingerprint: FingerprintOf, known: Mapping[str, Listed] | None = None) -> Files:
    """The files below a folder or a URL; of the latter, `known` are those that were listed already."""
    if fingerprint not in ("stat", "content"):
        raise UsageError(f"fingerprint must be 'stat' or 'content', got {fingerprint!r}")
    if is_url(base):
        return _RemoteFiles(base, fingerprint, known or {})
    return _LocalFiles(base, fingerprint)


def list_url(url: str) -> dict[str, Listed]:
    """All objects below a URL, by their paths below it.

    Raises:
        SourceError: there is none, or what answers there has no listing.
        StoreUnreachableError: nothing answers.
    """
    listing = Bucket(checked_url(url), _PATIENCE).list()
    if not listing:
        raise SourceError(
            f"there is nothing below {url!r}, or it gives no listing; a .csv file may name what is there"
        )
    return listing


class _LocalFiles:
    def __init__(self, base: str, fingerprint: FingerprintOf) -> None:
        self._prefix = base.rstrip("/") + "/"
        self._look = stat_pair if fingerprint == "stat" else content_pair

    def pair(self, name: str) -> Pair | None:
        return self._look(self._path(name))

    def pairs(self, names: Strings, suffix: str) -> tuple[Words, list[int]]:
        prefix, end = os.fsencode(self._prefix), suffix.encode()
        paths = [name + end if name.startswith(b"/") else prefix + name + end for name in names.encoded()]
        return pairs_of(self._look, paths)

    def local(self, name: str, key: str) -> AbstractContextManager[str]:  # noqa: ARG002
        return nullcontext(self._path(name))

    def _path(self, name: str) -> str:
        return name if name.startswith("/") else self._prefix + name


class _RemoteFiles:
    """Objects as they were listed: one that has changed since is packed again by the next run."""

    def __init__(self, base: str, fingerprint: FingerprintOf, known: Mapping[str, Listed]) -> None:
        self._base = checked_url(base)
        self._by_content = fingerprint == "content"
        self._listed: dict[str, Listed | None] = {}
        self._learn({self._url(name): facts for name, facts in known.items()})
        self._buckets: dict[str, Bucket] = {}

    def pair(self, name: str) -> Pair | None:
        if self._by_content:
            try:
                with self.local(name, name) as path:
                    return content_pair(path)
            except BadSampleError:
                return None
        facts = self._facts(self._url(name))
        return None if facts is None else version_pair(facts.num_bytes, facts.version)

    def pairs(self, names: Strings, suffix: str) -> tuple[Words, list[int]]:
        wanted = [name + suffix for name in names]
        if not self._by_content:
            self._list([self._url(name) for name in wanted])
        with ThreadPoolExecutor(_NUM_THREADS) as pool:
            found = list(pool.map(self.pair, wanted))
        pairs = np.array([(0, 0) if pair is None else pair for pair in found], np.uint64).reshape(-1, 2)
        return pairs, [i for i, pair in enumerate(found) if pair is None]

    @contextmanager
    def local(self, name: str, key: str) -> Iterator[str]:
        url = self._url(name)
        bucket, path = self._place(url)
        facts = self._listed.get(url)
        expected = None if facts is None else facts.num_bytes

        def check(arrived: Path) -> None:
            found = arrived.stat().st_size
            if expected is not None and found != expected:
                raise DamagedStoreError(f"it arrived with {found} bytes, listed were {expected}")

        with tempfile.TemporaryDirectory(prefix="stoker-") as folder:
            target = Path(folder) / f"object{suffix_of(path)}"
            try:
                bucket.fetch(path, target, check=check, max_bytes=_MAX_BYTES)
            except (FileNotFoundError, DamagedStoreError) as error:
                raise BadSampleError(key, str(error)) from error
            yield str(target)

    def _list(self, urls: Sequence[str]) -> None:
        """Ask for whole folders, where that tells what many requests would."""
        names_in: defaultdict[str, int] = defaultdict(int)
        for url in urls:
            if url not in self._listed:
                names_in[url.rpartition("/")[0]] += 1
        for folder, count in names_in.items():
            if count > 1:
                bucket, path = self._place(folder)
                found = bucket.list(path, depth=1)
                self._learn({f"{folder}/{name}": facts for name, facts in found.items()})

    def _learn(self, listed: Mapping[str, Listed]) -> None:
        """A web server lists names alone: such objects are asked for one by one."""
        self._listed |= {url: facts for url, facts in listed.items() if facts.version}

    def _facts(self, url: str) -> Listed | None:
        if url not in self._listed:
            bucket, path = self._place(url)
            self._listed[url] = bucket.look(path)
        return self._listed[url]

    def _url(self, name: str) -> str:
        """An object's own URL; a name may lead out of the base by ``..``, or be one already."""
        root, path = _parts(name if is_url(name) else f"{self._base}/{name}")
        return f"{root}/{normpath(path)}"

    def _place(self, url: str) -> tuple[Bucket, str]:
        root, path = _parts(url)
        if root not in self._buckets:
            self._buckets[root] = Bucket(root, _PATIENCE)
        return self._buckets[root], path


def _parts(url: str) -> tuple[str, str]:
    """Scheme with bucket or host, and the path in it."""
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    return f"{scheme}://{authority}", path
