"""From a list of rows to a published store: fields, statistics, splits, digest, index, manifest.

Packing, repairing and compacting all end here. The manifest is replaced last; whatever it does not
name is removed after that.
"""

import contextlib
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
from stoker.store._manifest import (
    SHARD_FOLDER,
    FieldSpec,
    FieldStats,
    FileEntry,
    Manifest,
    SplitRule,
    TransformEntry,
    index_path,
    shard_path,
    write_manifest,
)
from stoker.store._moments import Moments, merge
from stoker.store._samples import Array
from stoker.store._shard import Shard, ShardField, Shards, common_shape
from stoker.store._splits import assign_splits
from stoker.store._strings import Strings

_BLOCK = 65536  # samples gathered at a time


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


def publish(root: Path, draft: Draft) -> Manifest:
    """Make the draft the store at ``root``, and remove what it no longer needs."""
    draft = _without_unused_shards(draft)
    shards = Shards(root, draft.entries)
    rows_of = _rows_by_shard(draft)
    fields = _fields(shards, rows_of, draft.channel_axis)
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
        stats=_stats(shards, rows_of, fields),
        classes={name: names for name, names in draft.classes.items() if name in _names(fields)},
        transform=draft.transform,
        compression=draft.compression,
        splits=draft.rule,
        index=index.publish(root),
        shards=tuple(draft.entries),
        content_digest=digest_of(fields, index, shards),
    )
    write_manifest(root, manifest)
    remove_unnamed(root, manifest)
    return manifest


def remove_unnamed(root: Path, manifest: Manifest | None) -> None:
    """Remove shards and indexes that the manifest does not name, and unfinished files."""
    named: set[Path] = set()
    if manifest is not None:
        named = {shard_path(root, shard.digest) for shard in manifest.shards}
        named.add(index_path(root, manifest.index.digest))
    folder = root / SHARD_FOLDER
    for path in [*root.glob("index-*.h5"), *folder.glob("*.h5")]:
        if path not in named:
            path.unlink(missing_ok=True)
    remove_unfinished(root)
    for touched in (folder, root):
        with contextlib.suppress(FileNotFoundError):
            sync_folder(touched)


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


def column(shards: Shards, shard: NDArray[Any], row: NDArray[Any], name: str) -> list[Any] | Array:
    """One field of the given rows, in order: an array where all values have one shape."""
    shard = np.asarray(shard, np.int64)
    row = np.asarray(row, np.int64)
    numbers = np.unique(shard)
    parts: dict[int, Any] = {int(n): shards[int(n)].fields[name].values(row[shard == n]) for n in numbers}
    if len(parts) == 1:
        return next(iter(parts.values()))  # type: ignore[no-any-return]
    arrays = [part for part in parts.values() if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and len({part.shape[1:] for part in arrays}) == 1 and arrays:
        joined = np.empty((len(shard), *arrays[0].shape[1:]), arrays[0].dtype)
        for n in numbers:
            joined[shard == n] = parts[int(n)]
        return joined
    values: list[Any] = [None] * len(shard)
    for n in numbers:
        for place, value in zip(np.flatnonzero(shard == n), parts[int(n)], strict=True):
            values[place] = value
    return values


def _without_unused_shards(draft: Draft) -> Draft:
    """The shards in use, in the order of their digests (so that equal packs have equal lists)."""
    used = np.unique(draft.shard)
    ordered = sorted(used.tolist(), key=lambda number: draft.entries[number].digest)
    position = np.full(len(draft.entries), -1)
    position[ordered] = np.arange(len(ordered))
    entries = [draft.entries[number] for number in ordered]
    return replace(draft, entries=entries, shard=position[draft.shard])


def _rows_by_shard(draft: Draft) -> list[NDArray[np.int64]]:
    order = np.argsort(draft.shard, kind="stable")
    cuts = np.searchsorted(draft.shard[order], np.arange(1, len(draft.entries)))
    return [np.sort(draft.row[part]) for part in np.split(order, cuts)]


def _names(fields: Sequence[FieldSpec]) -> set[str]:
    return {field.name for field in fields}


def _fields(
    shards: Shards, rows_of: list[NDArray[np.int64]], channel_axis: Mapping[str, int | None]
) -> tuple[FieldSpec, ...]:
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
    ours = {f.name: (f.kind, f.dtype, len(f.shape)) for f in reference}
    theirs = {f.name: (f.kind, f.dtype, len(f.shape)) for f in shard.meta.fields}
    if ours != theirs:
        raise SchemaError(
            shard.keys[0],
            f"its fields are {theirs}, those of other samples {ours}; convert them in the "
            "transform, or pack everything again with force",
        )


def _stats(
    shards: Shards, rows_of: list[NDArray[np.int64]], fields: Sequence[FieldSpec]
) -> dict[str, FieldStats]:
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
        columns[option] = column(shards, draft.shard, draft.row, name)
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
            taken = np.asarray(shard.checksums)[rows[here]]
            block[here] = taken[:, [names.index(field.name) for field in fields]]
        yield block
