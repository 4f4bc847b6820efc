"""Verifying: every byte of a store against what was published.

Each file is named by the digest of its bytes, so one pass over a file proves all of it, headers and
padding included. Then every value is checked (and decoded, where compressed) against its own
checksum, which names the sample and field at fault.
"""

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stoker.config import usable_cores
from stoker.errors import DamagedStoreError, StokerError
from stoker.store._index import Index
from stoker.store._layout import digest, map_file
from stoker.store._manifest import (
    MANIFEST_NAME,
    FieldStats,
    FileEntry,
    Manifest,
    index_path,
    read_manifest,
    shard_path,
)
from stoker.store._progress import Display, Silent
from stoker.store._publish import digest_of, fields_of, rows_by_shard, stats_of
from stoker.store._shard import Shard, Shards
from stoker.store._url import is_url

_ROUNDING = 1e-9  # of sums in double precision, relative to the largest value


@dataclass(frozen=True)
class Report:
    """What verifying found. ``ok`` is whether the store is exactly what was published."""

    num_samples: int
    num_bytes: int
    seconds: float
    bad: list[tuple[str, str, str]] = field(default_factory=list)  # sample key, field, why
    files: list[tuple[str, str]] = field(default_factory=list)  # file name, why

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.bad and not self.files

    @property
    def gb_per_s(self) -> float:
        """Size of the store over the time it took."""
        return self.num_bytes / max(self.seconds, 1e-9) / 1e9


@dataclass
class ShardReport:
    """What is wrong with one shard; ``bad`` by row and field."""

    number: int
    why: str | None = None  # its file
    bad: list[tuple[int, str, str]] = field(default_factory=list)


def verify(
    path: str | os.PathLike[str], *, quick: bool = False, workers: int | None = None, progress: bool = False
) -> Report:
    """Check the store at ``path``; at a URL, all of it is fetched for that, whatever the cache holds.

    Args:
        path: the store.
        quick: only the digest of each file, not each value: enough to prove the store intact, not
            to name the samples at fault (files at fault are looked into all the same).
        workers: threads; None for one a usable core.
        progress: show a bar.

    Raises:
        StoreNotFoundError: there is none.
        DamagedStoreError: the manifest itself is damaged; nothing can be said of the rest.
    """
    if is_url(path):
        from stoker.store.remote._verify import verify_remote

        return verify_remote(path, quick=quick, workers=workers, progress=progress)
    started = time.monotonic()
    root = Path(path)
    manifest = read_manifest(root)
    files: list[tuple[str, str]] = []
    bad: list[tuple[str, str, str]] = []
    index = check_index(root, manifest, files)
    with Display("verifying", manifest.num_samples) if progress else Silent() as display:
        num_done = num_bytes = 0
        for found in check_shards(root, manifest, quick=quick, workers=workers):
            entry = manifest.shards[found.number]
            if found.why is not None:
                files.append((shard_path(root, entry.digest).name, found.why))
            bad.extend(name_bad(found, index))
            num_done += entry.num_samples
            num_bytes += entry.num_bytes
            display.update(num_done, num_bytes, len(bad))
    if index is not None and not files and not bad:
        files.extend(_check_manifest(root, manifest, index))
    return Report(
        num_samples=manifest.num_samples,
        num_bytes=manifest.num_bytes,
        seconds=time.monotonic() - started,
        bad=sorted(bad),
        files=sorted(files),
    )


def check_shards(
    path: Path, manifest: Manifest, *, quick: bool, workers: int | None
) -> Iterator[ShardReport]:
    """Check every shard, several at a time; reports come in the manifest's order."""

    def check(number: int) -> ShardReport:
        return check_shard(path, number, manifest.shards[number], quick=quick)

    with ThreadPoolExecutor(workers or usable_cores()) as pool:
        yield from pool.map(check, range(len(manifest.shards)))


def check_shard(root: Path, number: int, entry: FileEntry, *, quick: bool) -> ShardReport:
    """What is wrong with one shard's file, and unless ``quick``, with which values."""
    report = ShardReport(number, why=_check_file(shard_path(root, entry.digest), entry))
    if report.why is None and quick:
        return report
    try:
        shard = Shard(root, entry)
    except DamagedStoreError as error:
        report.why = report.why or str(error)
        report.bad = [(row, "*", "its shard cannot be read") for row in range(entry.num_samples)]
        return report
    report.bad = [(row, name, why) for name in shard.fields for row, why in shard.damaged_rows(name)]
    return report


def _check_file(path: Path, entry: FileEntry) -> str | None:
    try:
        content = map_file(path, entry.num_bytes)
    except DamagedStoreError as error:
        return str(error)
    return None if digest(content.data) == entry.digest else "its bytes are not those that were written"


def _check_manifest(root: Path, manifest: Manifest, index: Index) -> Iterator[tuple[str, str]]:
    """What the manifest says of the samples against what the (intact) shards say."""
    shards = Shards(root, manifest.shards, manifest.fields)
    rows = rows_by_shard(index.shard, index.row, len(manifest.shards))
    try:
        axes = {field.name: field.channel_axis for field in manifest.fields}
        fields = fields_of(shards, rows, axes)
        told = {
            "fields": fields == manifest.fields,
            "statistics": _agree(stats_of(shards, rows, fields), manifest.stats),
            "content digest": digest_of(fields, index, shards) == manifest.content_digest,
        }
    except (StokerError, LookupError, ValueError, TypeError) as error:
        yield MANIFEST_NAME, f"it does not fit the samples: {error}"
        return
    for name, fits in told.items():
        if not fits:
            yield MANIFEST_NAME, f"its {name} are not those of the samples"


def _agree(found: Mapping[str, FieldStats], told: Mapping[str, FieldStats]) -> bool:
    """Whether statistics are the same but for how another machine, or another release, rounds its sums."""
    return found.keys() == told.keys() and all(_alike(found[name], told[name]) for name in found)


def _alike(found: FieldStats, told: FieldStats) -> bool:
    rounded = {"mean", "std"}
    if found.model_dump(exclude=rounded) != told.model_dump(exclude=rounded):
        return False
    slack = _ROUNDING * np.maximum(np.abs(found.min), np.abs(found.max))
    pairs = [(getattr(found, name), getattr(told, name)) for name in rounded]
    return all(np.isclose(*pair, rtol=_ROUNDING, atol=slack, equal_nan=True).all() for pair in pairs)


def check_index(root: Path, manifest: Manifest, files: list[tuple[str, str]]) -> Index | None:
    """The index, if it is intact and points nowhere but into the shards; else ``files`` gets the reason."""
    path = index_path(root, manifest.index.digest)
    why = _check_file(path, manifest.index)
    try:
        index = Index.open(root, manifest.index)
    except DamagedStoreError as error:
        files.append((path.name, why or str(error)))
        return None
    sizes = np.array([shard.num_samples for shard in manifest.shards])
    if why is None and (
        (index.shard >= len(sizes)).any()
        or (index.row >= sizes[np.minimum(index.shard, len(sizes) - 1)]).any()
    ):
        why = "it points outside the shards"
    if why is not None:
        files.append((path.name, why))
        return None
    return index


def name_bad(report: ShardReport, index: Index | None) -> Iterator[tuple[str, str, str]]:
    """The shard's bad rows by the keys of their samples; dead rows are nobody's."""
    if not report.bad:
        return
    if index is None:
        for row, name, why in report.bad:
            yield f"row {row} of shard {report.number}", name, why
        return
    samples = np.flatnonzero(index.shard == report.number)
    sample_of = dict(zip(index.row[samples].tolist(), samples.tolist(), strict=True))
    for row, name, why in report.bad:
        if row in sample_of:
            yield index.keys[sample_of[row]], name, why
