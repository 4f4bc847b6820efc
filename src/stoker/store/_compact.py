"""Compacting: rows that nobody needs any more are dropped, and small shards become large ones."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError
from stoker.store._index import Index
from stoker.store._lock import exclusive
from stoker.store._manifest import SHARD_BYTES, FileEntry, Manifest, read_manifest, write_manifest
from stoker.store._publish import Draft, our_files, publish, remove_unnamed
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


def compact(path: str | os.PathLike[str], *, shard_bytes: int = SHARD_BYTES) -> Compacted:
    """Rewrite shards that have dead rows or are small; the samples and their order stay.

    Also removes what was kept for readers of the store as it was before the last pack.

    Raises:
        DamagedStoreError: a value does not fit its checksum; nothing was changed.
    """
    root = Path(path)
    read_manifest(root)  # a path that is no store is an error before anything is created
    with exclusive(root, "compact"):
        before = read_manifest(root)
        num_bytes_before = sum(file.stat().st_size for file in our_files(root))
        index = Index.open_checked(root, before.index)
        live = np.bincount(index.shard, minlength=len(before.shards))
        chosen = {n for n, shard in enumerate(before.shards) if live[n] < shard.num_samples}
        small = _small(before, shard_bytes)
        if len(small | chosen) > 1:
            chosen |= small
        after = _rewrite(root, before, index, chosen, shard_bytes, before=None)
        if not chosen and before.superseded:
            after = before.model_copy(update={"superseded": ()})
            write_manifest(root, after)
        remove_unnamed(root, after)
    return Compacted(
        num_shards_before=len(before.shards),
        num_shards=len(after.shards),
        num_bytes_before=num_bytes_before,
        num_bytes=after.num_bytes,
    )


def merge_small_shards(
    root: Path, manifest: Manifest, shard_bytes: int, *, before: Manifest | None
) -> Manifest:
    """Join small shards where there are many; the caller holds the lock."""
    small = _small(manifest, shard_bytes)
    if len(small) <= _MAX_SMALL_SHARDS:
        return manifest
    index = Index.open_checked(root, manifest.index)
    return _rewrite(root, manifest, index, small, shard_bytes, before=before)


def copy_samples(
    root: Path, manifest: Manifest, index: Index, samples: NDArray[np.int64], shard_bytes: int
) -> list[FileEntry]:
    """Copy samples into new shards in that order, each value checked on the way.

    Key and fingerprint come from the index, which the caller has checked: those in a damaged shard
    may be damaged too.
    """
    shards = Shards(root, manifest.shards, manifest.fields)
    types = {field.name: field.type for field in manifest.fields}
    axes = {field.name: field.channel_axis for field in manifest.fields}
    entries: list[FileEntry] = []
    builder = ShardBuilder(types, axes)

    def close_shard() -> None:
        if len(builder):
            identity = manifest.transform.identity
            entries.append(builder.publish(root, identity, manifest.compression))
            builder.empty()

    for sample in samples.tolist():
        shard, row = shards[int(index.shard[sample])], int(index.row[sample])
        for name in shard.fields:
            if (why := shard.damage(row, name)) is not None:
                raise DamagedStoreError(
                    f"sample {index.keys[sample]!r}, field {name!r}: {why}; run `stoker repair` first"
                )
        builder.add(index.keys[sample], index.fingerprints[sample].tobytes(), shard.sample(row))
        if builder.num_bytes >= shard_bytes:
            close_shard()
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
    return {n for n, shard in enumerate(manifest.shards) if shard.value_bytes < shard_bytes // 4}


def _rewrite(
    root: Path,
    manifest: Manifest,
    index: Index,
    chosen: set[int],
    shard_bytes: int,
    *,
    before: Manifest | None,
) -> Manifest:
    """Copy the live rows of the chosen shards, in sample order, into new shards."""
    if not chosen:
        return manifest
    shard, row = index.shard.astype(np.int64), index.row.astype(np.int64)
    moving = np.flatnonzero(np.isin(shard, list(chosen)))
    new = copy_samples(root, manifest, index, moving, shard_bytes)
    shard[moving], row[moving] = rows_of(new, len(manifest.shards))
    entries = [*manifest.shards, *new]
    return publish(root, draft_of(manifest, index, entries, shard, row), before=before)
