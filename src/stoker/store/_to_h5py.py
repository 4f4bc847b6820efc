"""A store as one ordinary HDF5 file: virtual datasets over the shards, in the store's order."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from stoker.store._shard import FixedField, RaggedField, ShardField, TextField

if TYPE_CHECKING:
    from stoker.store._store import Store


def to_h5py(store: "Store") -> Any:
    """An ``h5py.File`` in memory; close it after use.

    A field of one shape is a dataset [N, ...]; one whose samples differ is a group of ``values``,
    ``offsets`` and ``shapes``, text a group of ``values`` (UTF-8) and ``offsets``. No data is
    copied: every read goes to the shards.
    """
    import h5py

    if store.manifest.compression in {"lz4", "zstd"}:
        import hdf5plugin  # noqa: F401 - registers its filters with libhdf5

    file = h5py.File("store", "w", driver="core", backing_store=False)
    for name, field in store.fields.items():
        if not field.ragged and all(
            isinstance(store.shards[number].fields[name], FixedField) for number, _, _ in _runs(store)
        ):
            sizes = [size for size in field.shape if size is not None]
            layout = h5py.VirtualLayout((len(store), *sizes), np.dtype(field.dtype))
            place = 0
            for number, start, stop in _runs(store):
                source = _source(store, number, name, f"fields/{name}")
                layout[place : place + stop - start] = source[start:stop]
                place += stop - start
            file.create_virtual_dataset(name, layout)
        else:
            _add_ragged(file.create_group(name), store, name)
    file.attrs["content_digest"] = store.content_digest
    return file


def _add_ragged(group: Any, store: "Store", name: str) -> None:
    import h5py

    field = store.fields[name]
    shapes = np.array(
        [
            shape
            for number, start, stop in _runs(store)
            for shape in _shapes(store, number, name, start, stop)
        ],
        np.int64,
    ).reshape(len(store), -1)
    offsets = np.concatenate([[0], np.cumsum(shapes.prod(axis=1))])
    dtype = np.dtype(np.uint8 if field.kind == "string" else field.dtype)
    layout = h5py.VirtualLayout((int(offsets[-1]),), dtype)
    sample = 0
    for number, start, stop in _runs(store):
        part = store.shards[number].fields[name]
        first, last = int(offsets[sample]), int(offsets[sample + stop - start])
        if last > first:
            if isinstance(part, FixedField):
                source = _source(store, number, name, f"fields/{name}")[start:stop]
            else:
                assert isinstance(part, RaggedField | TextField)
                source = _source(store, number, name, f"fields/{name}/values")
                source = source[int(part.offsets[start]) : int(part.offsets[stop])]
            layout[first:last] = source
        sample += stop - start
    group.create_virtual_dataset("values", layout)
    group["offsets"] = offsets
    if field.kind == "array":
        group["shapes"] = shapes


def _shapes(store: "Store", number: int, name: str, start: int, stop: int) -> list[tuple[int, ...]]:
    part: ShardField = store.shards[number].fields[name]
    if isinstance(part, TextField):
        return [(int(size),) for size in np.diff(part.offsets[start : stop + 1])]
    return part.shapes_of(np.arange(start, stop))


def _source(store: "Store", number: int, name: str, path: str) -> Any:
    import h5py

    shard = store.shards[number]
    part = shard.fields[name]
    assert isinstance(part, FixedField | RaggedField | TextField)
    return h5py.VirtualSource(
        str(shard.path.resolve()), path, shape=part.column.shape, dtype=part.column.dtype
    )


def _runs(store: "Store") -> Iterator[tuple[int, int, int]]:
    """Stretches of samples that lie one after the other: shard, first row, last row + 1."""
    if len(store) == 0:
        return
    shard = store.index.shard[store.numbers].astype(np.int64)
    row = store.index.row[store.numbers].astype(np.int64)
    breaks = np.flatnonzero((np.diff(shard) != 0) | (np.diff(row) != 1)) + 1
    starts = np.concatenate([[0], breaks])
    stops = np.concatenate([breaks, [len(shard)]])
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield int(shard[start]), int(row[start]), int(row[stop - 1]) + 1
