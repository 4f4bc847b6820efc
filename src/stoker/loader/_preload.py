"""Bringing a store into memory before its first batch, as much of it as there is room for."""

import itertools
import math
import warnings
from collections.abc import Sequence

from stoker.config import available_memory_bytes
from stoker.errors import UsageError
from stoker.loader._readers import StoreReader
from stoker.loader._room import megabytes
from stoker.loader._threads import ThreadFeed
from stoker.store._layout import MappedColumn

_CALLER = 3  # the line that made the loader


def populate(feed: ThreadFeed, reader: StoreReader, preload: bool | int) -> None:  # noqa: FBT001 - the option
    """Bring into memory what fits, in the store's order; a warning says what does not.

    ``preload`` is True for all of it or a number of bytes; it is never more than is available.
    """
    if not preload:
        return
    left_out = unmapped_fields(reader)
    if left_out:
        warnings.warn(
            f"preload leaves out {sorted(left_out)}: compressed fields are not mapped; decode them once, "
            'by cache="auto"',
            stacklevel=_CALLER,
        )
    sizes = mapped_bytes(reader)
    budget = available_memory_bytes()
    if preload is not True:
        budget = min(preload, budget)
    parts = list(sizes)[: num_that_fit(list(sizes.values()), budget)]
    feed.populate(parts)
    if len(parts) < len(sizes):
        done, total = sum(sizes[part] for part in parts), sum(sizes.values())
        warnings.warn(
            f"preload brought {megabytes(done)} of {megabytes(total)} into memory, which is what fits into "
            f"{megabytes(budget)}; the rest is read when it is needed",
            stacklevel=_CALLER,
        )


def check_preload(preload: bool | int, *, is_store: bool) -> None:  # noqa: FBT001 - the option
    """Raise UsageError unless it is one that can be; warn if it will be ignored."""
    if not isinstance(preload, int) or preload < 0:
        raise UsageError(f"preload must be True, False or a number of bytes of at least 0, got {preload!r}")
    if preload and not is_store:
        warnings.warn("preload is for stores: these data are read when they are needed", stacklevel=_CALLER)


def mapped_bytes(reader: StoreReader) -> dict[int, int]:
    """Bytes of the chosen fields that are mapped, by shard; only shards with samples of this view."""
    store = reader.store
    names = reader.fixed.keys() - unmapped_fields(reader)
    row_bytes = sum(reader.fixed[name][0].itemsize * math.prod(reader.fixed[name][1]) for name in names)

    def in_shard(number: int) -> int:
        rest = reader.rest_columns(number).values()
        rest_bytes = sum(column.num_bytes for column in rest if isinstance(column, MappedColumn))
        return row_bytes * store.manifest.shards[number].num_samples + rest_bytes

    sizes = {number: in_shard(number) for number in store.used_shards.tolist()}
    return {number: size for number, size in sizes.items() if size}


def unmapped_fields(reader: StoreReader) -> set[str]:
    """Fields that must be decoded when they are read."""
    shards, used = reader.store.manifest.shards, reader.store.used_shards.tolist()
    rest = itertools.chain.from_iterable(reader.rest_columns(number).items() for number in used)
    ragged = {name for name, column in rest if not isinstance(column, MappedColumn)}
    return ragged | {name for name in reader.fixed if any(name not in entry.offsets for entry in shards)}


def num_that_fit(sizes: Sequence[int], budget: int) -> int:
    """How many, from the first, take no more than the budget together."""
    return sum(total <= budget for total in itertools.accumulate(sizes))
