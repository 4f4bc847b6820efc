"""Repairing: what no longer fits its checksum is packed again from the source, and only that."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, SourceError, StoreMismatchError
from stoker.store._compact import copy_samples, draft_of, rows_of
from stoker.store._feed import Feed, as_feed
from stoker.store._identity import transform_entry
from stoker.store._index import Index
from stoker.store._lock import exclusive
from stoker.store._manifest import MANIFEST_NAME, SHARD_BYTES, FileEntry, Manifest, read_manifest
from stoker.store._pack import pack
from stoker.store._plan import match_keys
from stoker.store._publish import publish
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
    shard_bytes: int = SHARD_BYTES,
) -> Repaired:
    """Replace every damaged shard: its sound samples are copied, its bad ones packed again.

    Args:
        path: the store.
        source: where its samples come from, as for ``pack``.
        transform: the one it was packed with.
        transform_version: as for ``pack``.
        shard_bytes: as for ``pack``.

    Raises:
        StoreMismatchError: the transform, the classes or a bad sample's content are not those that
            the store was packed with.
        SourceError: a bad sample is no longer in the source.
    """
    root = Path(path)
    manifest = read_manifest(root)  # a path that is no store is an error before anything is created
    entry = transform_entry(transform, transform_version)
    if entry.identity != manifest.transform.identity:
        raise StoreMismatchError(
            f"{root} was packed with transform {manifest.transform.name}, not with "
            f"{entry.name} as it is now; repair needs the same one"
        )
    feed = as_feed(open_source(source), transform, entry.identity)
    _check_classes(feed, manifest)
    try:
        with exclusive(root, "repair"):
            return _repair(root, feed, shard_bytes)
    except _IndexDamagedError:
        return _rebuild(root, source, manifest, transform, transform_version)


class _IndexDamagedError(Exception):
    """The index cannot be used: only the source knows the samples' order."""


def _repair(root: Path, feed: Feed, shard_bytes: int) -> Repaired:
    manifest = read_manifest(root)
    try:
        index = Index.open_checked(root, manifest.index)
    except DamagedStoreError as error:
        raise _IndexDamagedError from error
    reports = check_shards(root, manifest, quick=True, workers=None)
    damaged = [report for report in reports if report.why is not None]
    if not damaged:
        return Repaired(0, [])
    shard, row = index.shard.astype(np.int64), index.row.astype(np.int64)
    bad = np.zeros(len(index), bool)
    for report in damaged:
        rows = {row for row, _, _ in report.bad}
        bad |= (shard == report.number) & np.isin(row, list(rows))
    sound = np.flatnonzero(np.isin(shard, [report.number for report in damaged]) & ~bad)
    lost = np.flatnonzero(bad)
    copied = copy_samples(root, manifest, index, sound, shard_bytes)
    packed, order = _pack_again(root, manifest, index, lost, feed, shard_bytes)
    kept = len(manifest.shards)
    shard[sound], row[sound] = rows_of(copied, kept)
    shard[order], row[order] = rows_of(packed, kept + len(copied))
    entries = [*manifest.shards, *copied, *packed]
    publish(root, draft_of(manifest, index, entries, shard, row), before=None)
    return Repaired(len(damaged), [index.keys[i] for i in lost.tolist()])


def _rebuild(
    root: Path,
    source: Any,
    manifest: Manifest,
    transform: Callable[[Any], Any] | None,
    transform_version: str | None,
) -> Repaired:
    """Pack again without the manifest: whole shards are used, the rest comes from the source."""
    (root / MANIFEST_NAME).unlink()
    rule = manifest.splits
    before = {shard.digest for shard in manifest.shards}
    store = pack(
        source,
        root,
        transform=transform,
        transform_version=transform_version,
        compression=manifest.compression,
        splits=None if rule is None else rule.fractions,
        stratify=None if rule is None else rule.stratify,
        group=None if rule is None else rule.group,
        progress=False,
    )
    new = [n for n, shard in enumerate(store.manifest.shards) if shard.digest not in before]
    samples = np.flatnonzero(np.isin(store.index.shard, new))
    return Repaired(1, [store.key(i) for i in samples.tolist()])


def _check_classes(feed: Feed, manifest: Manifest) -> None:
    """Class numbers must mean the same as in the samples that stay."""
    for field, names in manifest.classes.items():
        if feed.classes.get(field) is None:
            raise StoreMismatchError(
                f"the source has no classes of {field!r}, the store has {names}; name the options of packing "
                "here too, such as --labels folder"
            )
        if feed.classes.get(field) != names:
            raise StoreMismatchError(
                f"the source's classes of {field!r} are {feed.classes.get(field)}, the store's {names}; "
                "`stoker pack`, with the options of the first time, brings the store up to date"
            )


def _pack_again(
    root: Path, manifest: Manifest, index: Index, lost: NDArray[np.int64], feed: Feed, shard_bytes: int
) -> tuple[list[FileEntry], NDArray[np.int64]]:
    """New shards of the lost samples, and their numbers in the order of the rows."""
    if len(lost) == 0:
        return [], lost
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
        asked_fields=(),
        skip_bad=False,
        shard_bytes=shard_bytes,
    )
    types = {field.name: field.type for field in manifest.fields}
    with run_in_place(job, Work(position, None), types, None) as dones:
        shards = [new for done in dones for new in done.shards]
    sample_of = dict(zip(position.tolist(), lost.tolist(), strict=True))
    order = np.array([sample_of[i] for new in shards for i in new.samples.tolist()])
    found = np.concatenate([new.fingerprints for new in shards])
    changed = np.flatnonzero((found != index.fingerprints[order]).any(axis=1))
    if len(changed):
        raise StoreMismatchError(
            f"the damaged sample {index.keys[int(order[changed[0]])]!r} has changed in the source since; "
            "`stoker pack`, with the options of the first time, brings the store up to date"
        )
    return [new.entry for new in shards], order
