"""Repairing: what no longer fits its checksum is packed again from the source, and only that."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, SourceError, StoreMismatchError
from stoker.store._compact import copy_rows, draft_of, rows_of
from stoker.store._feed import as_feed
from stoker.store._identity import transform_entry
from stoker.store._index import Index
from stoker.store._lock import exclusive
from stoker.store._manifest import FileEntry, Manifest, read_manifest
from stoker.store._plan import match_keys
from stoker.store._publish import publish
from stoker.store._samples import FieldType
from stoker.store._shard import Shards
from stoker.store._strings import Strings
from stoker.store._verify import check_shards
from stoker.store._workers import Job, Work, run_in_place
from stoker.store.sources import open_source


@dataclass(frozen=True)
class Repaired:
    """What repairing did."""

    num_files: int  # damaged shards that were replaced
    keys: list[str]  # samples that were packed again


def repair(
    path: str | os.PathLike[str],
    source: Any,
    *,
    transform: Callable[[Any], Any] | None = None,
    transform_version: str | None = None,
    shard_bytes: int = 64 << 20,
) -> Repaired:
    """Replace every damaged shard: its sound samples are copied, its bad ones packed again.

    Args:
        path: the store.
        source: where its samples come from, as for ``pack``.
        transform: the one it was packed with.
        transform_version: as for ``pack``.
        shard_bytes: as for ``pack``.

    Raises:
        StoreMismatchError: the transform is not the one that the store was packed with.
        SourceError: a bad sample is no longer in the source.
        DamagedStoreError: the index itself is damaged; ``pack`` rebuilds it from intact shards.
    """
    root = Path(path)
    read_manifest(root)  # a path that is no store is an error before anything is created
    with exclusive(root, "repair"):
        manifest = read_manifest(root)
        entry = transform_entry(transform, transform_version)
        if entry.identity != manifest.transform.identity:
            raise StoreMismatchError(
                f"{root} was packed with transform {manifest.transform.name}, not with "
                f"{entry.name} as it is now; repair needs the same one"
            )
        index = _open_index(root, manifest)
        damaged = [
            report
            for report in check_shards(root, manifest, quick=True, workers=None)
            if report.why is not None
        ]
        if not damaged:
            return Repaired(0, [])
        shard, row = index.shard.astype(np.int64), index.row.astype(np.int64)
        bad = np.zeros(len(index), bool)
        for report in damaged:
            rows = {row for row, _, _ in report.bad}
            bad |= (shard == report.number) & np.isin(row, list(rows))
        sound = np.flatnonzero(np.isin(shard, [r.number for r in damaged]) & ~bad)
        lost = np.flatnonzero(bad)
        pairs = zip(shard[sound].tolist(), row[sound].tolist(), strict=True)
        copied = copy_rows(root, manifest, Shards(root, manifest.shards), pairs, shard_bytes)
        packed, order, fingerprints = _pack_again(
            root, manifest, index, lost, open_source(source), transform, shard_bytes
        )
        kept = len(manifest.shards)
        shard[sound], row[sound] = rows_of(copied, kept)
        shard[order], row[order] = rows_of(packed, kept + len(copied))
        new_fingerprints = np.array(index.fingerprints)
        new_fingerprints[order] = fingerprints
        entries = [*manifest.shards, *copied, *packed]
        fixed = Index(index.keys, new_fingerprints, index.shard, index.row, index.split)
        publish(root, draft_of(manifest, fixed, entries, shard, row))
        return Repaired(len(damaged), [index.keys[i] for i in lost.tolist()])


def _open_index(root: Path, manifest: Manifest) -> Index:
    try:
        return Index.open(root, manifest.index)
    except DamagedStoreError as error:
        raise DamagedStoreError(
            f"{error}; remove manifest.json and run `stoker pack` again: intact shards are kept"
        ) from error


def _pack_again(
    root: Path,
    manifest: Manifest,
    index: Index,
    lost: NDArray[np.int64],
    source: Any,
    transform: Callable[[Any], Any] | None,
    shard_bytes: int,
) -> tuple[list[FileEntry], NDArray[np.int64], NDArray[np.uint64]]:
    """New shards of the lost samples; their numbers and fingerprints in the order of the rows."""
    if len(lost) == 0:
        return [], lost, np.zeros((0, 2), np.uint64)
    feed = as_feed(source, transform, manifest.transform.identity)
    keys = Strings.of(index.keys[i] for i in lost.tolist())
    position = match_keys(keys, feed.keys())
    if (position < 0).any():
        gone = keys[int(np.flatnonzero(position < 0)[0])]
        raise SourceError(
            f"the damaged sample {gone!r} is no longer in the source; `stoker pack` drops it from the store"
        )
    job = Job(
        feed=feed,
        root=root,
        transform=manifest.transform.identity,
        compression=manifest.compression,
        channel_axis={field.name: field.channel_axis for field in manifest.fields},
        skip_bad=False,
        shard_bytes=shard_bytes,
    )
    types = {f.name: FieldType(f.kind, f.dtype, len(f.shape)) for f in manifest.fields}
    work = Work(position, None)
    shards = [new for done in run_in_place(job, work, types, None) for new in done.shards]
    sample_of = dict(zip(position.tolist(), lost.tolist(), strict=True))
    order = [sample_of[i] for new in shards for i in new.samples.tolist()]
    fingerprints = np.concatenate([new.fingerprints for new in shards])
    return [new.entry for new in shards], np.array(order), fingerprints
