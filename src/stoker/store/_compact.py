"""Compacting: rows that nobody needs any more are dropped, and small shards become large ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError
from stoker.store._index import Index
from stoker.store._lock import exclusive
from stoker.store._manifest import FileEntry, Manifest, read_manifest
from stoker.store._publish import Draft, publish
from stoker.store._samples import FieldType
from stoker.store._shard import Shards
from stoker.store._shard_builder import ShardBuilder

_MAX_SMALL_SHARDS = 8  # a store packed by many workers ends with a few shards that are not full


@dataclass(frozen=True)
class Compacted:
    """What compacting brought."""

    num_shards_before: int
    num_shards: int
    num_bytes_before: int
    num_bytes: int


def compact(path: Path, *, shard_bytes: int = 64 << 20) -> Compacted:
    """Rewrite shards that have dead rows or are small; the samples and their order stay.

    Raises:
        DamagedStoreError: a value does not fit its checksum; nothing was changed.
    """
    before = read_manifest(path)
    with exclusive(path, "compact"):
        before = read_manifest(path)
        live = np.bincount(Index.open(path, before.index).shard, minlength=len(before.shards))
        chosen = {number for number, shard in enumerate(before.shards) if live[number] < shard.num_samples}
        small = _small(before, shard_bytes)
        if len(small | chosen) > 1:
            chosen |= small
        after = _rewrite(path, before, chosen, shard_bytes)
    return Compacted(
        num_shards_before=len(before.shards),
        num_shards=len(after.shards),
        num_bytes_before=before.num_bytes,
        num_bytes=after.num_bytes,
    )


def merge_small_shards(root: Path, shard_bytes: int) -> None:
    """Join small shards where there are many; the caller holds the lock."""
    manifest = read_manifest(root)
    small = _small(manifest, shard_bytes)
    if len(small) > _MAX_SMALL_SHARDS:
        _rewrite(root, manifest, small, shard_bytes)


def copy_rows(
    root: Path,
    manifest: Manifest,
    shards: Shards,
    rows: Iterable[tuple[int, int]],
    shard_bytes: int,
) -> list[FileEntry]:
    """Copy rows (shard, row) into new shards in that order, each value checked on the way."""
    types = {f.name: FieldType(f.kind, f.dtype, len(f.shape)) for f in manifest.fields}
    axes = {field.name: field.channel_axis for field in manifest.fields}
    entries: list[FileEntry] = []
    builder = ShardBuilder(types, axes)

    def close_shard() -> ShardBuilder:
        if len(builder):
            identity = manifest.transform.identity
            entries.append(builder.publish(root, identity, manifest.compression))
        return ShardBuilder(types, axes)

    for number, row in rows:
        shard = shards[number]
        for name in shard.fields:
            if (why := shard.damage(row, name)) is not None:
                raise DamagedStoreError(
                    f"sample {shard.keys[row]!r}, field {name!r}: {why}; run `stoker repair` first"
                )
        fingerprint = shard.fingerprints.read(row, row + 1).tobytes()
        builder.add(shard.keys[row], fingerprint, shard.sample(row))
        if builder.num_bytes >= shard_bytes:
            builder = close_shard()
    close_shard()
    return entries


def draft_of(
    manifest: Manifest,
    index: Index,
    entries: list[FileEntry],
    shard: NDArray[np.int64],
    row: NDArray[np.int64],
) -> Draft:
    """The same store with its samples in other places."""
    return Draft(
        keys=index.keys,
        fingerprints=index.fingerprints,
        entries=entries,
        shard=shard,
        row=row,
        transform=manifest.transform,
        compression=manifest.compression,
        classes=manifest.classes,
        channel_axis={field.name: field.channel_axis for field in manifest.fields},
        rule=manifest.splits,
        places=index.split.astype(np.int16),
    )


def rows_of(entries: list[FileEntry], first: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Shard number (counted from ``first``) and row of every sample in new shards, in order."""
    sizes = [entry.num_samples for entry in entries]
    shard = np.repeat(np.arange(first, first + len(entries)), sizes)
    row = np.concatenate([np.zeros(0, np.int64), *(np.arange(size) for size in sizes)])
    return shard, row


def _small(manifest: Manifest, shard_bytes: int) -> set[int]:
    return {number for number, shard in enumerate(manifest.shards) if shard.num_bytes < shard_bytes // 4}


def _rewrite(root: Path, manifest: Manifest, chosen: set[int], shard_bytes: int) -> Manifest:
    """Copy the live rows of the chosen shards, in sample order, into new shards."""
    if not chosen:
        return manifest
    index = Index.open(root, manifest.index)
    shard, row = index.shard.astype(np.int64), index.row.astype(np.int64)
    moving = np.flatnonzero(np.isin(shard, list(chosen)))
    rows = zip(shard[moving].tolist(), row[moving].tolist(), strict=True)
    new = copy_rows(root, manifest, Shards(root, manifest.shards), rows, shard_bytes)
    shard[moving], row[moving] = rows_of(new, len(manifest.shards))
    entries = [*manifest.shards, *new]
    return publish(root, draft_of(manifest, index, entries, shard, row))
