"""A few rows of a remote shard, fetched by range into a file of the whole one's layout.

What is not needed is a hole in that file, which takes no room on the disk; whoever reads the rows that are
needed cannot tell it from the whole. A part of a file says nothing about the file's digest, so every value
that came is held to its own checksum instead.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, UnsafeStoreError
from stoker.store._manifest import FieldSpec, FileEntry, ShardEntry
from stoker.store._shard import Shard
from stoker.store.remote._ranges import Span

_PAGE_BYTES = 4096  # of which disks take whole ones
_REQUEST_BYTES = 1 << 18  # what could have come instead, while an object store answers one of a few requests


class Part(NamedTuple):
    """Some rows of a shard."""

    entry: FileEntry  # of the file that holds them: as the whole one's, under a name of its own
    rows: NDArray[np.int64]  # ascending
    spans: list[Span]
    fields: Sequence[FieldSpec]

    @property
    def num_bytes(self) -> int:
        """On the disk, which takes whole pages, and one in which it notes where they are."""
        return _PAGE_BYTES + sum(int(_pages(stop)) - start for start, stop in self.spans)


def part_of(entry: ShardEntry, fields: Sequence[FieldSpec], rows: NDArray[np.int64]) -> Part | None:
    """The rows of a shard by range; None where that would cost more than half of fetching all of it."""
    spans = needed_spans(entry, fields, rows)
    cost = sum(stop - start + _REQUEST_BYTES for start, stop in spans)
    if 2 * cost > entry.num_bytes:
        return None
    name = xxhash.xxh3_128_hexdigest(entry.digest.encode() + rows.tobytes())
    return Part(entry.model_copy(update={"digest": name}), rows, spans, fields)


def needed_spans(entry: ShardEntry, fields: Sequence[FieldSpec], rows: NDArray[np.int64]) -> list[Span]:
    """What to fetch for some rows: all of the file but values of other rows, as far as leaving out pays.

    Holes are whole pages, so that what is fetched is what the disk takes.

    Args:
        entry: of the shard; only fields that it has an offset of can be fetched in part.
        fields: of the store.
        rows: ascending.
    """
    bounds = np.concatenate([[-1], rows, [entry.num_samples]])
    holes: list[Span] = []
    for field in fields:
        if field.ragged or field.name not in entry.offsets:
            continue
        sizes = [size for size in field.shape if size is not None]
        row_bytes = math.prod(sizes) * np.dtype(field.dtype).itemsize
        begin = entry.offsets[field.name]
        starts = _pages(begin + (bounds[:-1] + 1) * row_bytes)
        stops = (begin + bounds[1:] * row_bytes) // _PAGE_BYTES * _PAGE_BYTES
        wide = stops - starts > _REQUEST_BYTES
        holes += zip(starts[wide].tolist(), stops[wide].tolist(), strict=True)
    holes.sort()
    firsts = [0, *(stop for _, stop in holes)]
    lasts = [*(start for start, _ in holes), entry.num_bytes]
    return [(first, last) for first, last in zip(firsts, lasts, strict=True) if first < last]


def check_part(path: Path, part: Part) -> None:
    """Raise DamagedStoreError unless every value of the rows in this file is the one that was published.

    As the whole's digest is not looked at, neither is what it says of its fields taken on trust.
    """
    try:
        shard = Shard(path.parent, part.entry, path=path)
        if {field.name: field.type for field in shard.meta.fields} != {
            field.name: field.type for field in part.fields
        }:
            raise DamagedStoreError("it arrived with other fields than the manifest says")
        for name in shard.fields:
            for row in part.rows.tolist():
                if (why := shard.damage(row, name)) is not None:
                    raise DamagedStoreError(f"{name} of its row {row} arrived otherwise: {why}")
    except UnsafeStoreError as error:  # it may have been spoilt on the way: worth another try
        raise DamagedStoreError(str(error)) from error


def _pages(num_bytes: Any) -> Any:
    """As many bytes as the pages have that these lie in: a number, or an array of such."""
    return -(-num_bytes // _PAGE_BYTES) * _PAGE_BYTES
