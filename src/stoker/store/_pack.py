"""Packing: a source of samples becomes a store, in parallel, and again only where it changed."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoker.config import usable_cores
from stoker.errors import (
    DamagedStoreError,
    SourceError,
    StoreMismatchError,
    StoreNotFoundError,
    UsageError,
)
from stoker.store._codec import Compression, check_compression
from stoker.store._compact import merge_small_shards
from stoker.store._durable import make_folder, write_error, write_file
from stoker.store._feed import Feed, as_feed
from stoker.store._identity import transform_entry
from stoker.store._index import Index
from stoker.store._layout import digest, map_file
from stoker.store._lock import LOCK_NAME, exclusive
from stoker.store._manifest import (
    LOG_NAME,
    MANIFEST_NAME,
    SCHEMA_VERSION,
    SHARD_FOLDER,
    STATISTICS_NAME,
    FileEntry,
    Manifest,
    SplitRule,
    TransformEntry,
    read_manifest,
)
from stoker.store._plan import Known, match_keys
from stoker.store._progress import Display, Progress, Silent
from stoker.store._publish import Draft, publish, remove_unfinished, remove_unnamed
from stoker.store._samples import FieldType
from stoker.store._shard import Shard
from stoker.store._splits import split_rule
from stoker.store._store import Store
from stoker.store._strings import Strings
from stoker.store._workers import Done, Job, Work, run_in_place, run_in_processes
from stoker.store.sources import open_source

_SHARD_BYTES = 64 << 20  # also what one worker holds in memory, about three times over
OnError: TypeAlias = Literal["raise", "skip"]

_JOURNAL_NAME = ".packing.json"  # exists while a run is under way, or after it was interrupted


def pack(
    source: Any,
    path: str | os.PathLike[str],
    *,
    transform: Callable[[Any], Any] | None = None,
    transform_version: str | None = None,
    workers: int | None = None,
    batch_size: int | None = None,
    compression: Compression = "none",
    on_error: OnError = "raise",
    splits: Mapping[str, float] | None = None,
    stratify: str | None = None,
    group: str | None = None,
    channel_axis: Mapping[str, int | None] | None = None,
    shard_bytes: int = _SHARD_BYTES,
    force: bool = False,
    progress: bool = True,
) -> Store:
    """Pack ``source`` into the store at ``path`` and open it.

    Run again, it packs only what is new or changed and drops what is gone. Killed at any point, the
    store at ``path`` is the old one or the new one, and the next call goes on where it stopped.

    Args:
        source: a folder, a glob, a CSV manifest, an HDF5 file, or any object with ``__len__`` and
            ``__getitem__`` that gives dicts (or tuples) of arrays, numbers and strings.
        path: the store's folder, by custom ``NAME.stoker``.
        transform: applied to every raw sample, here and never again. Part of the store's identity.
        transform_version: stands for the transform when it is compared between runs, instead of its
            parameters and source text.
        workers: processes; None for one a usable core, 0 to pack in this process.
        batch_size: samples a worker takes at a time; None adapts it to their cost.
        compression: "none" can be mapped and is by far the fastest to load.
        on_error: "skip" leaves bad samples out and lists them in the store's statistics file.
        splits: fractions by name, for example ``{"train": 0.8, "val": 0.2}``.
        stratify: a label field whose classes every split gets in proportion.
        group: a field (patient, session) whose samples all fall into one split.
        channel_axis: axis of channels within a sample, by field, for the statistics. Without it
            the first of two or more axes.
        shard_bytes: size of a shard; a worker needs about three times as much memory.
        force: pack everything again, whatever the store holds.
        progress: show a bar on standard error (log lines where that is no terminal).

    Raises:
        SourceError: the source is empty or, with ``on_error="raise"``, has a bad sample.
        StoreMismatchError: the store was packed with another transform or compression.
        StoreBusyError: another process is packing into it.
    """
    started = time.monotonic()
    _check_options(workers, batch_size, shard_bytes, on_error)
    check_compression(compression)
    if splits is None and (stratify is not None or group is not None):
        raise UsageError("stratify and group need splits, for example {'train': 0.8, 'val': 0.2}")
    rule = None if splits is None else split_rule(splits, stratify=stratify, group=group)
    entry = transform_entry(transform, transform_version)
    feed = as_feed(open_source(source), transform, entry.identity)
    root = Path(path)
    _check_target(root)
    make_folder(root / SHARD_FOLDER)
    with exclusive(root, "pack") as lock:
        run = _Run(
            root=root,
            feed=feed,
            transform=entry,
            compression=compression,
            rule=rule,
            channel_axis={**feed.channel_axis, **(channel_axis or {})},
            force=force,
        )
        run.log(f"pack of {source!r}, {len(feed)} samples, transform {entry.name}")
        job = Job(
            feed=feed,
            root=root,
            transform=entry.identity,
            compression=compression,
            channel_axis=run.channel_axis,
            skip_bad=on_error == "skip",
            shard_bytes=shard_bytes,
        )
        try:
            run.prepare()
            work, types = run.plan()
            num_workers = usable_cores() if workers is None else workers
            if num_workers == 0:
                dones = run_in_place(job, work, types, batch_size)
            else:
                dones = run_in_processes(
                    job,
                    work,
                    types,
                    num_workers=num_workers,
                    batch_size=batch_size,
                    lock_descriptor=lock,
                )
            run.follow(dones, len(work), show=progress)
            run.finish(started, shard_bytes)
        except BaseException as error:
            run.log(f"stopped: {type(error).__name__}: {error}")
            raise
    return Store(root)


@dataclass
class _Run:
    """One packing run, holding the lock."""

    root: Path
    feed: Feed
    transform: TransformEntry
    compression: Compression
    rule: SplitRule | None
    channel_axis: dict[str, int | None]
    force: bool
    old: Manifest | None = None
    entries: list[FileEntry] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    num_packed: int = 0
    num_bytes: int = 0

    def prepare(self) -> None:
        """Look at what is there, refuse what does not fit, and note that a run is under way."""
        self.old = self._read_old()
        journal = self.root / _JOURNAL_NAME
        ours = {"transform": self.transform.identity, "force": self.force}
        remove_unfinished(self.root)
        if self.force and (not journal.exists() or _read_json(journal) != ours):
            remove_unnamed(self.root, self.old)  # else: an interrupted forced run goes on
        write_file(journal, [json.dumps(ours).encode()])

    def plan(self) -> tuple[Work, dict[str, FieldType] | None]:
        """What is left to pack, and the field types that it must have."""
        known, types = self._known()
        self.keys = self.feed.keys()
        position = match_keys(self.keys, known.keys)
        found = position >= 0
        self.shard = np.full(len(self.keys), -1)
        self.row = np.full(len(self.keys), -1)
        self.fingerprints = np.zeros((len(self.keys), 2), np.uint64)
        self.shard[found] = known.shard[position[found]]
        self.row[found] = known.row[position[found]]
        self.fingerprints[found] = known.fingerprints[position[found]]
        if not self.feed.has_fingerprints:  # only reading tells whether a sample changed
            return Work(np.arange(len(self.keys)), self.fingerprints), types
        if not found.any():
            return Work(np.arange(len(self.keys)), None), types
        changed = ~found | (self.feed.fingerprints() != self.fingerprints).any(axis=1)
        return Work(np.flatnonzero(changed), None), types

    def follow(self, dones: Iterator[Done], total: int, *, show: bool) -> None:
        """Take in what workers report."""
        if total == 0:
            return
        with Display("packing", total) as display:
            target: Progress = display if show else Silent()
            num_done = 0
            for done in dones:
                num_done += done.num_samples
                self.num_bytes += done.num_bytes
                for i, key, why in done.skipped:
                    self.skipped.append((key, why))
                    self.shard[i] = -1
                    self.log(f"skipped {key}: {why}")
                for new in done.shards:
                    self.shard[new.samples] = len(self.entries)
                    self.row[new.samples] = np.arange(len(new.samples))
                    self.fingerprints[new.samples] = new.fingerprints
                    self.num_packed += len(new.samples)
                    self.entries.append(new.entry)
                target.update(num_done, self.num_bytes, len(self.skipped))

    def finish(self, started: float, shard_bytes: int) -> None:
        """Publish the new store, if it is one."""
        present = self.shard >= 0
        if not present.any():
            key, why = self.skipped[0]
            raise SourceError(
                f"none of the {len(self.skipped)} samples could be packed; {key!r}, for one: {why}"
            )
        keys = self.keys if present.all() else Strings.of(np.array(self.keys, object)[present])
        draft = Draft(
            keys=keys,
            fingerprints=self.fingerprints[present],
            entries=self.entries,
            shard=self.shard[present],
            row=self.row[present],
            transform=self.transform,
            compression=self.compression,
            classes=self.feed.classes,
            channel_axis=self.channel_axis,
            rule=self.rule,
            places=self._places(keys),
        )
        num_dropped = 0
        manifest = self.old
        if self._changes_anything(draft):
            old_keys = None if self.old is None else Index.open(self.root, self.old.index).keys
            if old_keys is not None:
                num_dropped = int((match_keys(old_keys, keys) < 0).sum())
            manifest = publish(self.root, draft)
            merge_small_shards(self.root, shard_bytes)
        assert manifest is not None
        seconds = time.monotonic() - started
        self._write_statistics(manifest, seconds, num_dropped)
        (self.root / _JOURNAL_NAME).unlink(missing_ok=True)
        self.log(
            f"done in {seconds:.1f} s: {self.num_packed} packed, {len(draft) - self.num_packed} "
            f"kept, {num_dropped} dropped, {len(self.skipped)} skipped"
        )

    def log(self, line: str) -> None:
        """Append a line to the store's log file."""
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            with (self.root / LOG_NAME).open("a", encoding="utf-8") as file:
                file.write(f"{stamp} {line}\n")
        except OSError as error:
            raise write_error(self.root / LOG_NAME, error) from error

    def _read_old(self) -> Manifest | None:
        try:
            old = read_manifest(self.root)
        except StoreNotFoundError:
            return None
        except DamagedStoreError:
            if self.force:
                return None
            raise
        if self.force:
            return old
        if old.transform.identity != self.transform.identity:
            raise StoreMismatchError(
                f"{self.root} was packed with transform {_title(old.transform)}, which is not the "
                f"{_title(self.transform)} of now; pack everything again with force, or choose "
                "another path"
            )
        if old.compression != self.compression:
            raise StoreMismatchError(
                f"{self.root} has compression {old.compression!r}, asked for is "
                f"{self.compression!r}; pack everything again with force, or choose another path"
            )
        return old

    def _known(self) -> tuple[Known, dict[str, FieldType] | None]:
        """Rows that need not be packed again: the old store's, then those of an interrupted run."""
        parts = []
        types = None
        if self.old is not None and not self.force:
            index = Index.open(self.root, self.old.index)
            self.entries.extend(self.old.shards)
            types = {f.name: FieldType(f.kind, f.dtype, len(f.shape)) for f in self.old.fields}
            parts.append(
                Known(
                    index.keys,
                    index.fingerprints,
                    index.shard.astype(np.int64),
                    index.row.astype(np.int64),
                )
            )
        named = {entry.digest for entry in self.entries}
        if self.old is not None and self.force:
            named |= {entry.digest for entry in self.old.shards}
        for shard in _unnamed_shards(self.root, named):
            if (shard.meta.transform, shard.meta.compression) != (
                self.transform.identity,
                self.compression,
            ):
                continue
            found = {f.name: FieldType(f.kind, f.dtype, len(f.shape)) for f in shard.meta.fields}
            types = types or found
            if found != types:
                continue
            number = np.full(len(shard), len(self.entries))
            self.entries.append(shard.entry)
            fingerprints = np.asarray(shard.fingerprints)
            parts.append(Known(shard.keys, fingerprints, number, np.arange(len(shard))))
        return Known.concatenate(parts), types

    def _places(self, keys: Strings) -> NDArray[np.int16]:
        """The splits that samples had, if the rule is still the same."""
        places = np.full(len(keys), -1, np.int16)
        if self.old is not None and self.old.splits == self.rule:
            index = Index.open(self.root, self.old.index)
            position = match_keys(keys, index.keys)
            found = position >= 0
            places[found] = index.split[position[found]]
        return places

    def _changes_anything(self, draft: Draft) -> bool:
        if self.old is None or self.force or self.num_packed or self.old.splits != self.rule:
            return True
        index = Index.open(self.root, self.old.index)
        return not (
            index.keys == draft.keys
            and np.array_equal(index.shard, draft.shard)
            and np.array_equal(index.row, draft.row)
            and dict(self.old.classes) == dict(draft.classes)
        )

    def _write_statistics(self, manifest: Manifest, seconds: float, num_dropped: int) -> None:
        report = {
            "schema_version": SCHEMA_VERSION,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "num_samples": manifest.num_samples,
            "num_packed": self.num_packed,
            "num_kept": manifest.num_samples - self.num_packed,
            "num_dropped": num_dropped,
            "num_skipped": len(self.skipped),
            "samples_per_s": round(self.num_packed / seconds, 3),
            "num_bytes": manifest.num_bytes,
            "content_digest": manifest.content_digest,
            "skipped": [{"key": key, "why": why} for key, why in self.skipped],
        }
        write_file(self.root / STATISTICS_NAME, [json.dumps(report, indent=1).encode()])


def _check_options(workers: int | None, batch_size: int | None, shard_bytes: int, on_error: str) -> None:
    if workers is not None and workers < 0:
        raise UsageError(f"workers must be at least 0, got {workers}")
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"batch_size must be at least 1, got {batch_size}")
    if shard_bytes < 1:
        raise UsageError(f"shard_bytes must be at least 1, got {shard_bytes}")
    if on_error not in {"raise", "skip"}:
        raise UsageError(f"on_error must be 'raise' or 'skip', got {on_error!r}")


def _check_target(root: Path) -> None:
    """Refuse to pack into a folder that holds something else."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"a store is a folder, but {root} is a file; choose another path")
    ours = {MANIFEST_NAME, SHARD_FOLDER, LOCK_NAME, LOG_NAME}
    if root.is_dir() and (names := {path.name for path in root.iterdir()}) and not names & ours:
        raise UsageError(
            f"{root} holds other files ({', '.join(sorted(names)[:3])}, …); a store gets a folder of its own"
        )


def _unnamed_shards(root: Path, named: set[str]) -> Iterator[Shard]:
    """Whole shards that an interrupted run left behind; a damaged one is passed over."""
    for path in sorted((root / SHARD_FOLDER).glob("*.h5")):
        if path.stem in named:
            continue
        num_bytes = path.stat().st_size
        try:
            if digest(map_file(path, num_bytes).data) != path.stem:
                continue
            rows = _num_rows(root, path.stem, num_bytes)
            yield Shard(root, FileEntry(digest=path.stem, num_bytes=num_bytes, num_samples=rows))
        except DamagedStoreError:
            continue


def _num_rows(root: Path, name: str, num_bytes: int) -> int:
    from stoker.store._layout import open_columns
    from stoker.store._manifest import shard_path

    columns = open_columns(shard_path(root, name), num_bytes)
    return len(columns["index/fingerprints"]) if "index/fingerprints" in columns else 0


def _title(entry: TransformEntry) -> str:
    version = "" if entry.version is None else f" version {entry.version}"
    return f"{entry.name}{version} ({entry.identity[:8]})"


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
