"""One run of packing: what is there already, what is left to do, and publishing what came of it."""

import contextlib
import functools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import (
    DamagedStoreError,
    SourceError,
    StoreError,
    StoreMismatchError,
    StoreNotFoundError,
    StoreWriteError,
)
from stoker.store._codec import Compression
from stoker.store._compact import merge_small_shards
from stoker.store._durable import write_error, write_file
from stoker.store._feed import Feed
from stoker.store._index import Index
from stoker.store._layout import digest, map_file, open_checked
from stoker.store._manifest import (
    LOG_NAME,
    SCHEMA_VERSION,
    STATISTICS_NAME,
    FileEntry,
    Manifest,
    SplitRule,
    TransformEntry,
    read_manifest,
    shard_path,
)
from stoker.store._plan import Known, Reuse, check_unique, find_reuse, match_keys
from stoker.store._progress import Progress
from stoker.store._publish import Draft, our_files, publish, remove_unfinished, remove_unnamed
from stoker.store._samples import FieldType
from stoker.store._shard import Shard
from stoker.store._strings import Strings
from stoker.store._workers import Done, Work

JOURNAL_NAME = ".packing.json"  # exists while a forced run is under way, or after it was killed
_OLD_STORE = -1
_FORCE = "pack everything again with force (--force), or choose another path"


@dataclass
class PackingRun:
    """One packing run, holding the lock."""

    root: Path
    feed: Feed
    transform: TransformEntry
    compression: Compression
    rule: SplitRule | None
    channel_axis: dict[str, int | None]
    force: bool
    old: Manifest | None = None
    ignored: set[str] = field(default_factory=set)  # shards left behind that a forced run passes over
    entries: list[FileEntry] = field(default_factory=list)
    keys: Strings = field(default_factory=lambda: Strings.of(()))
    reuse: Reuse = field(default_factory=lambda: find_reuse(Strings.of(()), None, []))
    skipped: list[tuple[str, str]] = field(default_factory=list)
    num_packed: int = 0
    num_bytes: int = 0

    def prepare(self) -> None:
        """Look at what is there, refuse what does not fit, and note that a run is under way."""
        self.old = self._read_old()
        if self.rule is None and self.old is not None:
            self.rule = self.old.splits  # a run that says nothing of splits changes nothing of them
        remove_unfinished(self.root)
        self._open_journal()

    def plan(self) -> tuple[Work, dict[str, FieldType] | None]:
        """What is left to pack, and the field types that it must have."""
        self.keys = self.feed.keys()
        if self.old is None or self.force or self.keys != self._old_index.keys:
            check_unique(self.keys)
        parts, types_of = self._known()
        now = self.feed.fingerprints() if parts and self.feed.has_fingerprints else None
        self.reuse = find_reuse(self.keys, now, parts)
        self._check_related()
        if not self.feed.has_fingerprints:  # only reading tells whether a sample changed
            return Work(np.arange(len(self.keys)), self.reuse.fingerprints), None
        types = self._common_types(types_of)
        return Work(np.flatnonzero(self.reuse.shard < 0), None), types

    def _check_related(self) -> None:
        """A source that has nothing of the store is most likely not the one that was meant."""
        if self.old is None or self.force or (self.reuse.shard >= 0).any():
            return
        if (match_keys(self._old_index.keys, self.keys) < 0).all():
            raise StoreMismatchError(
                f"{self.root} has {self.old.num_samples} samples, and the source has none of them: "
                f"{self._old_index.keys[0]!r} there, {self.keys[0]!r} here; {_FORCE}"
            )

    def follow(self, dones: Iterator[Done], display: Progress) -> None:
        """Take in what workers report."""
        num_done = 0
        for done in dones:
            num_done += done.num_samples
            self.num_bytes += done.num_bytes
            for i, key, why in done.skipped:
                self.skipped.append((key, why))
                self.reuse.shard[i] = -1
                self.log(f"skipped {key}: {why}")
            for new in done.shards:
                self.reuse.shard[new.samples] = len(self.entries)
                self.reuse.row[new.samples] = np.arange(len(new.samples))
                self.reuse.fingerprints[new.samples] = new.fingerprints
                self.num_packed += len(new.samples)
                self.entries.append(new.entry)
            display.update(num_done, self.num_bytes, len(self.skipped))

    def finish(self, started: float, shard_bytes: int) -> None:
        """Publish the new store, if it is one."""
        present = self.reuse.shard >= 0
        if not present.any():
            key, why = self.skipped[0]
            raise SourceError(
                f"none of the {len(self.skipped)} samples could be packed; {key!r}, for one: {why}"
            )
        keys = self.keys if present.all() else Strings.of(np.array(self.keys, object)[present])
        draft = Draft(
            keys=keys,
            fingerprints=self.reuse.fingerprints[present],
            entries=self.entries,
            shard=self.reuse.shard[present],
            row=self.reuse.row[present],
            transform=self.transform,
            compression=self.compression,
            classes=self.feed.classes,
            channel_axis=self.channel_axis,
            rule=self.rule,
            places=self._places(keys),
        )
        num_dropped = 0
        if self.old is not None and not self._changes_anything(draft):
            manifest = self.old
            self._check_files(manifest)
            remove_unnamed(self.root, manifest)  # what a kill just after publishing left behind
        else:
            if self.old is not None and not self.force:
                num_dropped = int((match_keys(self._old_index.keys, keys) < 0).sum())
            manifest = publish(self.root, draft, before=self.old)
            manifest = self._merge_small_shards(manifest, shard_bytes)
        seconds = time.monotonic() - started
        self._write_statistics(manifest, seconds, num_dropped)
        (self.root / JOURNAL_NAME).unlink(missing_ok=True)
        self.log(
            f"done in {seconds:.1f} s: {self.num_packed} packed, {len(draft) - self.num_packed} "
            f"kept, {num_dropped} dropped, {len(self.skipped)} skipped"
        )

    def stop(self, error: BaseException) -> None:
        """Note why the run ended early; a forced one that failed is not to be gone on with."""
        with contextlib.suppress(StoreWriteError):
            self.log(f"stopped: {type(error).__name__}: {error}")
        if self.force and isinstance(error, Exception):
            (self.root / JOURNAL_NAME).unlink(missing_ok=True)

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
                f"{_title(self.transform)} of now; {_FORCE}"
            )
        if old.compression != self.compression:
            raise StoreMismatchError(
                f"{self.root} has compression {old.compression!r}, asked for is "
                f"{self.compression!r}; {_FORCE}"
            )
        return old

    def _open_journal(self) -> None:
        """Note which shards without an owner a forced run passes over: all that were there before it.

        A forced run that was killed left its journal; the next one goes on with what it had packed.
        """
        journal = self.root / JOURNAL_NAME
        if not self.force:
            journal.unlink(missing_ok=True)
            return
        ours = {"transform": self.transform.identity}
        left = _read_json(journal)
        same = all(left.get(name) == value for name, value in ours.items())
        there = [path.stem for path in our_files(self.root) if path.parent != self.root]
        self.ignored = set(left["ignored"] if same else there)
        write_file(journal, [json.dumps({**ours, "ignored": sorted(self.ignored)}).encode()])

    @functools.cached_property
    def _old_index(self) -> Index:
        assert self.old is not None
        return Index.open_checked(self.root, self.old.index)

    def _known(self) -> tuple[list[Known], dict[int, dict[str, FieldType]]]:
        """Rows that need not be packed again: the old store's, then those of an interrupted run.

        Also the field types of each shard that has some, by its number; those of the old store are
        under -1.
        """
        parts = []
        types_of = {}
        if self.old is not None and not self.force:
            index = self._old_index
            self.entries.extend(self.old.shards)
            types_of[_OLD_STORE] = {field.name: field.type for field in self.old.fields}
            places = index.shard.astype(np.int64), index.row.astype(np.int64)
            parts.append(Known(index.keys, index.fingerprints, *places))
        named = {entry.digest for entry in self.entries} | self.ignored
        for shard in _shards_left_behind(self.root, named):
            packed_as = shard.meta.transform, shard.meta.compression
            if packed_as != (self.transform.identity, self.compression):
                continue
            number = len(self.entries)
            self.entries.append(shard.entry)
            types_of[number] = {field.name: field.type for field in shard.meta.fields}
            rows = np.full(len(shard), number), np.arange(len(shard))
            parts.append(Known(shard.keys, np.asarray(shard.fingerprints), *rows))
        return parts, types_of

    def _common_types(self, types_of: dict[int, dict[str, FieldType]]) -> dict[str, FieldType] | None:
        """The types of what is used again; shards of other types are not used after all."""
        num_old = len(self.old.shards) if self.old is not None and not self.force else 0
        chosen = None
        dropped = set()
        for number in np.unique(self.reuse.shard[self.reuse.shard >= 0]).tolist():
            types = types_of[_OLD_STORE if number < num_old else number]
            chosen = chosen or types
            if types != chosen:
                dropped.add(number)
        self.reuse.drop(dropped)
        return chosen

    def _places(self, keys: Strings) -> NDArray[np.int16]:
        """The splits that samples had, if the rule is still the same."""
        places = np.full(len(keys), -1, np.int16)
        if self.old is not None and self.old.splits == self.rule:
            try:
                index = self._old_index
            except DamagedStoreError:
                if self.force:
                    return places
                raise
            position = match_keys(keys, index.keys)
            found = position >= 0
            places[found] = index.split[position[found]]
        return places

    def _changes_anything(self, draft: Draft) -> bool:
        assert self.old is not None
        if self.force or self.num_packed or self.old.splits != self.rule:
            return True
        axes = {field.name: field.channel_axis for field in self.old.fields}
        if any(axes.get(name, axis) != axis for name, axis in self.channel_axis.items()):
            return True
        index = self._old_index
        return not (
            index.keys == draft.keys
            and np.array_equal(index.shard, draft.shard)
            and np.array_equal(index.row, draft.row)
            and dict(self.old.classes) == dict(draft.classes)
        )

    def _check_files(self, manifest: Manifest) -> None:
        """Nothing to do is not said of a store whose shards are gone or cut short."""
        for entry in manifest.shards:
            with open_checked(shard_path(self.root, entry.digest), entry.num_bytes):
                pass

    def _merge_small_shards(self, manifest: Manifest, shard_bytes: int) -> Manifest:
        """Join small shards; if that fails, the store is whole all the same."""
        try:
            return merge_small_shards(self.root, manifest, shard_bytes, before=self.old)
        except StoreError as error:
            self.log(f"small shards were not joined: {error}")
            return manifest

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


def _shards_left_behind(root: Path, named: set[str]) -> Iterator[Shard]:
    """Whole shards that an interrupted run left; a damaged one is passed over."""
    for path in sorted(our_files(root)):
        if path.parent == root or path.stem in named:
            continue
        num_bytes = path.stat().st_size
        try:
            if digest(map_file(path, num_bytes).data) == path.stem:
                yield Shard.of_unknown_size(root, path.stem, num_bytes)
        except DamagedStoreError:
            continue


def _title(entry: TransformEntry) -> str:
    version = "" if entry.version is None else f" version {entry.version}"
    return f"{entry.name}{version} ({entry.identity[:8]})"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
