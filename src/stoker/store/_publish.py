"""From a list of rows to a published store: fields, statistics, splits, digest, index, manifest.

Packing, repairing and compacting all end here. The manifest is replaced last; whatever it does not
name is removed after that.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stoker
from stoker.errors import SchemaError, UsageError
from stoker.store._checksums import content_digest
from stoker.store._codec import Compression
from stoker.store._durable import TEMPORARY_PREFIX, sync_folder
from stoker.store._index import NO_SPLIT, Index
from stoker.store._layout import MappedColumn
from stoker.store._manifest import (
    SHARD_FOLDER,
    FieldSpec,
    FieldStats,
    FileEntry,
    Manifest,
    ShardEntry,
    SplitRule,
    TransformEntry,
    write_manifest,
)
from stoker.store._moments import Moments, merge
from stoker.store._shard import FixedField, Shard, ShardField, Shards, common_shape
from stoker.store._splits import assign_splits
from stoker.store._strings import Strings

_BLOCK = 65536  # samples gathered at a time
_BLOCK_BYTES = 1 << 22
_SHARD_NAME = re.compile(r"[0-9a-f]{32}\.h5")
_INDEX_NAME = re.compile(r"index-[0-9a-f]{32}\.h5")


@dataclass(frozen=True)
class Draft:
    """A store to be: its samples in order, and where each one lies."""

    keys: Strings
    fingerprints: NDArray[np.uint64]
    entries: Sequence[FileEntry]
    shard: NDArray[np.int64]
    row: NDArray[np.int64]
    transform: TransformEntry
    compression: Compression
    classes: Mapping[str, tuple[str, ...]]
    channel_axis: Mapping[str, int | None]
    rule: SplitRule | None
    places: NDArray[np.int16]  # splits given before, -1 for a new sample

    def __len__(self) -> int:
        return len(self.shard)


def publish(root: Path, draft: Draft, *, before: Manifest | None) -> Manifest:
    """Make the draft the store at ``root``, and remove what nobody needs any more.

    Files that only the store ``before`` needed stay until the next time, for those who read it now.
    """
    draft = _without_unused_shards(draft)
    shards = Shards(root, draft.entries)
    rows_of = rows_by_shard(draft.shard, draft.row, len(draft.entries))
    fields = fields_of(shards, rows_of, draft.channel_axis)
    index = Index(
        keys=draft.keys,
        fingerprints=draft.fingerprints,
        shard=draft.shard.astype(np.uint32),
        row=draft.row.astype(np.uint32),
        split=_splits(draft, shards, fields),
    )
    manifest = Manifest(
        stoker_version=stoker.__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        num_samples=len(draft),
        fields=fields,
        stats=stats_of(shards, rows_of, fields),
        classes={name: names for name, names in draft.classes.items() if name in _names(fields)},
        transform=draft.transform,
        compression=draft.compression,
        splits=draft.rule,
        index=index.publish(root),
        shards=tuple(_shard_entry(shard) for shard in shards),
        content_digest=digest_of(fields, index, shards),
        superseded=() if before is None else tuple(sorted(_digests(before))),
    )
    write_manifest(root, manifest)
    remove_unnamed(root, manifest)
    return manifest


def remove_unnamed(root: Path, manifest: Manifest) -> None:
    """Remove shards and indexes that neither this manifest nor the one before names.

    Only files that bear a name of ours: whatever else lies there is not ours to remove.
    """
    named = _digests(manifest) | set(manifest.superseded)
    for path in our_files(root):
        if path.stem.removeprefix("index-") not in named:
            path.unlink(missing_ok=True)
    remove_unfinished(root)
    for touched in (root / SHARD_FOLDER, root):
        with contextlib.suppress(FileNotFoundError):
            sync_folder(touched)


def our_files(root: Path) -> Iterator[Path]:
    """Every shard and index in the folder, by the form of its name."""
    for folder, form in ((root, _INDEX_NAME), (root / SHARD_FOLDER, _SHARD_NAME)):
        if folder.is_dir():
            yield from (path for path in folder.iterdir() if form.fullmatch(path.name))


def remove_unfinished(root: Path) -> None:
    """Remove the temporary files of writers that were killed."""
    for folder in (root, root / SHARD_FOLDER):
        for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
            path.unlink(missing_ok=True)


def digest_of(fields: Sequence[FieldSpec], index: Index, shards: Shards) -> str:
    """The digest of all keys and values in order, from the checksums in the shards."""
    ordered = sorted(fields, key=lambda field: field.name)
    description = ";".join(f"{f.name}:{f.kind}:{f.dtype}:{len(f.shape)}" for f in ordered)
    return content_digest(description, index.keys, _ordered_checksums(ordered, index, shards))


def _without_unused_shards(draft: Draft) -> Draft:
    """The shards in use, in the order of their digests (so that equal packs have equal lists)."""
    used = np.unique(draft.shard)
    ordered = sorted(used.tolist(), key=lambda number: draft.entries[number].digest)
    position = np.full(len(draft.entries), -1)
    position[ordered] = np.arange(len(ordered))
    entries = [draft.entries[number] for number in ordered]
    return replace(draft, entries=entries, shard=position[draft.shard])


def rows_by_shard(shard: NDArray[Any], row: NDArray[Any], num_shards: int) -> list[NDArray[np.int64]]:
    """The rows in use of each shard, in order."""
    order = np.argsort(shard, kind="stable")
    cuts = np.searchsorted(shard[order], np.arange(1, num_shards))
    return [np.sort(row[part].astype(np.int64)) for part in np.split(order, cuts)]


def _digests(manifest: Manifest) -> set[str]:
    return {manifest.index.digest, *(shard.digest for shard in manifest.shards)}


def _shard_entry(shard: Shard) -> ShardEntry:
    offsets = {
        name: field.column.offset
        for name, field in shard.fields.items()
        if isinstance(field, FixedField) and isinstance(field.column, MappedColumn)
    }
    entry = shard.entry
    return ShardEntry(
        digest=entry.digest,
        num_bytes=entry.num_bytes,
        num_samples=entry.num_samples,
        value_bytes=shard.value_bytes,
        offsets=offsets,
    )


def _names(fields: Sequence[FieldSpec]) -> set[str]:
    return {field.name for field in fields}


def fields_of(
    shards: Shards, rows_of: list[NDArray[np.int64]], channel_axis: Mapping[str, int | None]
) -> tuple[FieldSpec, ...]:
    """Types and shapes of the rows in use."""
    reference = shards[0].meta.fields
    shapes: dict[str, list[tuple[int | None, ...]]] = {field.name: [] for field in reference}
    for shard, rows in zip(shards, rows_of, strict=True):
        if shard.meta.fields != reference:
            _check_same_types(shard, reference)
        for field in shard.meta.fields:
            whole = len(rows) == len(shard) or not field.ragged or field.kind == "string"
            shapes[field.name].append(
                field.shape if whole else common_shape(shard.fields[field.name].shapes_of(rows))
            )
    return tuple(
        field.model_copy(
            update={
                "shape": common_shape(shapes[field.name]),
                "channel_axis": channel_axis.get(field.name, field.channel_axis),
            }
        )
        for field in reference
    )


def _check_same_types(shard: Shard, reference: tuple[FieldSpec, ...]) -> None:
    ours = {field.name: field.type for field in reference}
    theirs = {field.name: field.type for field in shard.meta.fields}
    if ours != theirs:
        told = {name: str(kind) for name, kind in theirs.items()}
        others = {name: str(kind) for name, kind in ours.items()}
        raise SchemaError(
            shard.keys[0],
            f"its fields are {told}, those of other samples {others}; convert them in the "
            "transform, or pack everything again with force",
        )


def stats_of(
    shards: Shards, rows_of: list[NDArray[np.int64]], fields: Sequence[FieldSpec]
) -> dict[str, FieldStats]:
    """Statistics of the rows in use."""
    stats = {}
    for field in fields:
        if field.kind == "string" or np.dtype(field.dtype).kind == "c":
            continue
        merged = merge([_moments(shard, rows, field) for shard, rows in zip(shards, rows_of, strict=True)])
        stats[field.name] = FieldStats(
            count=tuple(merged.count.tolist()),
            num_nonfinite=tuple(merged.num_nonfinite.tolist()),
            mean=tuple(merged.mean.tolist()),
            std=tuple(merged.std.tolist()),
            min=tuple(merged.minimum.tolist()),
            max=tuple(merged.maximum.tolist()),
        )
    return stats


def _moments(shard: Shard, rows: NDArray[np.int64], field: FieldSpec) -> Moments:
    """The shard's own statistics, or new ones where some of its rows are dead."""
    own = next(spec for spec in shard.meta.fields if spec.name == field.name)
    if len(rows) == len(shard) and own.channel_axis == field.channel_axis:
        return shard.meta.moments[field.name]
    return merge(list(_moments_of_rows(shard.fields[field.name], rows, field.channel_axis)))


def _moments_of_rows(values: ShardField, rows: NDArray[np.int64], axis: int | None) -> Iterator[Moments]:
    if isinstance(values, FixedField):
        row_bytes = max(1, values.column.num_bytes // max(1, len(values)))
        step = max(1, _BLOCK_BYTES // row_bytes)
        for start in range(0, len(rows), step):
            yield Moments.of(values.values(rows[start : start + step]), axis)
        return
    for row in rows.tolist():
        value = values.value(row)
        assert not isinstance(value, str)
        yield Moments.of(value[None], axis)


def _splits(draft: Draft, shards: Shards, fields: Sequence[FieldSpec]) -> NDArray[np.uint8]:
    rule = draft.rule
    if rule is None:
        return np.full(len(draft), NO_SPLIT, np.uint8)
    columns: dict[str, Any] = {}
    for option, name in (("stratify", rule.stratify), ("group", rule.group)):
        if name is None:
            continue
        field = next((field for field in fields if field.name == name), None)
        if field is None or (field.kind == "array" and field.shape != ()):
            known = sorted(f.name for f in fields if f.kind == "string" or f.shape == ())
            raise UsageError(f"{option} needs a scalar or text field, got {name!r}; there are {known}")
        columns[option] = shards.column(draft.shard, draft.row, name)
    return assign_splits(
        rule,
        keys=draft.keys,
        labels=columns.get("stratify"),
        groups=columns.get("group"),
        previous=draft.places,
    )


def _ordered_checksums(
    fields: Sequence[FieldSpec], index: Index, shards: Shards
) -> Iterator[NDArray[np.uint64]]:
    for start in range(0, len(index), _BLOCK):
        numbers = index.shard[start : start + _BLOCK]
        rows = index.row[start : start + _BLOCK]
        block = np.empty((len(numbers), len(fields)), np.uint64)
        for number in np.unique(numbers):
            shard = shards[int(number)]
            names = [spec.name for spec in shard.meta.fields]
            here = numbers == number
            taken = shard.checksum_table[rows[here]]
            block[here] = taken[:, [names.index(field.name) for field in fields]]
        yield block
