"""An open store: samples by number, as if it were a list, at the cost of a mapping."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, UsageError
from stoker.store._index import Index
from stoker.store._manifest import FieldSpec, FieldStats, Manifest, read_manifest
from stoker.store._samples import Array, Sample
from stoker.store._shard import Shards
from stoker.store._url import is_url

if TYPE_CHECKING:
    from stoker.store._verify import Report

_Batch = dict[str, Any]


class Store:
    """A packed data set; also a map-style Dataset for ``torch.utils.data.DataLoader``.

    ``store[i]`` is a dict of arrays and strings, copied, so that nothing the caller does can reach
    the file. ``store[[i, j]]`` and ``store[a:b]`` are dicts of whole batches: arrays with a first
    axis where all values have one shape, lists where they differ. Opening reads the manifest and
    maps the index; a shard is mapped when it is first needed. No file handle is kept: a store may
    be forked, pickled (by path) and used from many threads.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.manifest, self.index = _open(self.path)
        self.shards = Shards(self.path, self.manifest.shards, self.manifest.fields)
        self._numbers: NDArray[np.int64] | None = None  # of the samples in this view

    def __len__(self) -> int:
        return len(self.index) if self._numbers is None else len(self._numbers)

    @overload
    def __getitem__(self, item: int | np.integer[Any]) -> Sample: ...
    @overload
    def __getitem__(self, item: slice | Sequence[int] | NDArray[Any]) -> _Batch: ...
    def __getitem__(self, item: Any) -> Sample | _Batch:
        if isinstance(item, int | np.integer):
            number = self._number(int(item))
            shard = self.shards[self._shard_number(number)]
            return shard.sample(self._row(number, len(shard)))
        return self._batch(self._positions(item))

    def __getitems__(self, items: Sequence[int]) -> list[Sample]:
        """Several samples at once, as PyTorch's DataLoader asks for them."""
        return [self[int(i)] for i in items]

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name}: {describe_field(f)}" for f in self.fields.values())
        return f"Store({self.location!r}, {len(self)} samples, {fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path.absolute(), self.manifest.content_digest, self._numbers)

    @property
    def location(self) -> str:
        """Where the store is, for messages: its path, or the URL of a remote one."""
        return str(self.path)

    @property
    def fields(self) -> dict[str, FieldSpec]:
        """Type and shape of every field, by name."""
        return {field.name: field for field in self.manifest.fields}

    @property
    def stats(self) -> dict[str, FieldStats]:
        """Statistics of every numeric field over the whole store (not only this split)."""
        return dict(self.manifest.stats)

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Class names behind label numbers, by field."""
        return dict(self.manifest.classes)

    @property
    def splits(self) -> dict[str, int]:
        """Number of samples in every named split of the store."""
        if self.manifest.splits is None:
            return {}
        counts = np.bincount(self.index.split, minlength=256)
        return {name: int(counts[i]) for i, name in enumerate(self.manifest.splits.fractions)}

    @property
    def numbers(self) -> NDArray[np.int64]:
        """For each sample of this view its number in the whole store."""
        return np.arange(len(self.index)) if self._numbers is None else self._numbers

    @property
    def used_shards(self) -> NDArray[np.int64]:
        """The shards that hold samples of this view, in ascending order."""
        if self._numbers is None:  # no shard is published of which no sample is used
            return np.arange(len(self.shards))
        numbers = np.unique(self.index.shard[self._numbers])
        return numbers[numbers < len(self.shards)].astype(np.int64)  # others are found out when located

    @property
    def is_whole(self) -> bool:
        """Whether this is all of the store, in its own order, and no split or selection."""
        return self._numbers is None

    @property
    def content_digest(self) -> str:
        """Equal for stores that hold the same samples in the same order, however packed."""
        return self.manifest.content_digest

    def key(self, i: int) -> str:
        """The key of sample ``i``: its name in the source."""
        return self.index.keys[self._number(i)]

    def fingerprint(self, i: int) -> bytes:
        """The fingerprint of sample ``i``, so that a store can be packed again as a source."""
        fingerprint: bytes = self.index.fingerprints[self._number(i)].tobytes()
        return fingerprint

    def column(self, name: str) -> Any:
        """One field of all samples: an array if all have one shape, else a list."""
        if name not in self.fields:
            raise UsageError(f"there is no field {name!r}; there are {sorted(self.fields)}")
        return self._column(self.numbers, name)

    def split(self, name: str) -> "Store":
        """The samples of one named split, as a store of its own."""
        names = list(self.manifest.splits.fractions) if self.manifest.splits else []
        if name not in names:
            there_are = f"there are {names}" if names else "the store was packed without splits"
            raise UsageError(f"there is no split {name!r}; {there_are}")
        members = self.index.split[self.numbers] == names.index(name)
        return self.select(np.flatnonzero(members))

    def select(self, items: slice | Sequence[int] | NDArray[Any]) -> "Store":
        """The given samples, in the given order, as a store of its own (nothing is copied)."""
        view: Store = Store.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view._numbers = self._resolve(self._positions(items))
        return view

    def verify(self, *, quick: bool = False, workers: int | None = None) -> "Report":
        """Check every byte of the store; see ``stoker.store.verify``."""
        from stoker.store._verify import verify

        return verify(self.path, quick=quick, workers=workers)

    def to_h5py(self) -> Any:
        """The whole store as one read-only ``h5py.File`` of virtual datasets, for other tools."""
        from stoker.store._to_h5py import to_h5py

        return to_h5py(self)

    def _positions(self, item: Any) -> NDArray[np.int64]:
        if isinstance(item, slice):
            return np.arange(*item.indices(len(self)))
        positions = np.asarray(item)
        if positions.dtype == bool and positions.shape == (len(self),):
            return np.flatnonzero(positions)
        if positions.ndim != 1 or (positions.dtype.kind not in "iu" and len(positions)):
            raise UsageError(f"samples are chosen by a number, a slice or a list of numbers, got {item!r}")
        return positions.astype(np.int64)

    def _number(self, position: int) -> int:
        """As ``_resolve``, of one."""
        count = len(self)
        if not -count <= position < count:
            raise IndexError(f"sample {position} of {count}")
        position = position + count if position < 0 else position
        return position if self._numbers is None else int(self._numbers[position])

    def _resolve(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sample numbers in the whole store; negative positions count from the end."""
        outside = (positions >= len(self)) | (positions < -len(self))
        if outside.any():
            raise IndexError(f"sample {int(positions[outside][0])} of {len(self)}")
        positions = np.where(positions < 0, positions + len(self), positions)
        return positions if self._numbers is None else self._numbers[positions]

    def _batch(self, positions: NDArray[np.int64]) -> _Batch:
        numbers = self._resolve(positions)
        return {name: self._column(numbers, name) for name in self.fields}

    def _column(self, numbers: NDArray[np.int64], name: str) -> Any:
        field = self.fields[name]
        if len(numbers) == 0:
            sizes = [size or 0 for size in field.shape]
            return [] if field.ragged else np.empty((0, *sizes), field.dtype)
        shard, row = self.index.shard[numbers], self.index.row[numbers]
        for number in np.unique(shard):
            self._row_check(int(number), row[shard == number])
        values = self.shards.column(shard, row, name)
        return list(values) if field.ragged else np.asarray(values)

    def _shard_number(self, number: int) -> int:
        shard = int(self.index.shard[number])
        if shard >= len(self.shards):
            raise DamagedStoreError(f"the index of {self.location} names shard {shard}, which is none")
        return shard

    def _row(self, number: int, num_rows: int) -> int:
        row = int(self.index.row[number])
        if row >= num_rows:
            raise DamagedStoreError(f"the index of {self.location} names row {row} of {num_rows}")
        return row

    def _row_check(self, shard: int, rows: Array) -> None:
        if shard >= len(self.shards) or int(rows.max()) >= self.shards.entries[shard].num_samples:
            raise DamagedStoreError(f"the index of {self.location} points outside its shards")


def _open(path: Path) -> tuple[Manifest, Index]:
    """Manifest and index of one and the same store, even if it is packed anew just now."""
    manifest = read_manifest(path)
    try:
        return manifest, Index.open(path, manifest.index)
    except DamagedStoreError:
        latest = read_manifest(path)
        if latest == manifest:
            raise
        return latest, Index.open(path, latest.index)


def describe_field(field: FieldSpec) -> str:
    """Type and shape in a few characters, such as ``float32[1, ?]``."""
    if field.kind == "string":
        return "text"
    sizes = ", ".join("?" if size is None else str(size) for size in field.shape)
    return f"{field.dtype}[{sizes}]"


def open_store(
    path: str | os.PathLike[str],
    *,
    cache: str | os.PathLike[str] | None = None,
    cache_bytes: int | None = None,
    deadline_s: float | None = None,
    stall_s: float | None = None,
) -> Store:
    """Open the store at ``path``, a folder or a URL such as ``s3://bucket/train.stoker``.

    A store at a URL needs the extra ``remote``. Its shards come when they are needed and, in a
    loader, ahead of that, into a cache on the local disk; of a selection of few samples only their values
    come. All that comes is checked.

    Args:
        path: the store.
        cache: of a URL: the cache's folder, which all processes of the machine may share; by default
            that of the environment's STOKER_CACHE, or ``~/.cache/stoker``.
        cache_bytes: of a URL: the most that the folder may hold; by default nine tenths of the disk's
            free space. What was used least recently makes room.
        deadline_s: of a URL: how long one shard may take, with all tries, by default 600 s.
        stall_s: of a URL: how long no byte may come before it is tried anew, by default 30 s.

    Raises:
        StoreNotFoundError: none there, or an unfinished one.
        DamagedStoreError: its manifest or index is not what was published.
        StoreUnreachableError: the URL cannot be reached.
    """
    if is_url(path):
        from stoker.store.remote import RemoteStore

        return RemoteStore(path, cache=cache, cache_bytes=cache_bytes, deadline_s=deadline_s, stall_s=stall_s)
    given = {"cache": cache, "cache_bytes": cache_bytes, "deadline_s": deadline_s, "stall_s": stall_s}
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise UsageError(f"{named[0]} is for stores at a URL, {str(path)!r} is a folder; leave it out")
    return Store(path)


def _reopen(path: Path, digest: str, numbers: NDArray[np.int64] | None) -> Store:
    store = Store(path)
    if store.content_digest != digest:
        raise DamagedStoreError(f"{path} was packed anew since it was opened; open it again")
    store._numbers = numbers  # noqa: SLF001 - restores its own pickle
    return store
