"""Every kind of byte of a store flipped, every file cut: found, named, repaired or refused."""

import random
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import stoker
from stoker.errors import DamagedStoreError, SourceError, StoreError, StoreMismatchError
from support.datasets import Signals, assert_same, keys
from support.forging import forge

COUNT = 24


@pytest.fixture(params=["none", "zstd"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> stoker.Store:
    return stoker.pack(
        Signals(keys(COUNT)),
        tmp_path / "a.stoker",
        workers=0,
        shard_bytes=5000,
        compression=request.param,
    )


class Large(Signals):
    """Fields large enough to be compressed, in several chunks."""

    def __getitem__(self, i: int) -> dict[str, object]:
        sample = super().__getitem__(i)
        wave = np.sin(np.arange(20_000) * (i + 1) / 1000).astype(np.float32)
        return {**sample, "x": wave, "group": f"patient {i} " * 700}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << (position % 8)
    path.write_bytes(data)


def shard_file(store: stoker.Store, number: int = 0) -> Path:
    return store.path / "shards" / f"{store.manifest.shards[number].digest}.h5"


def dataset_place(path: Path, name: str) -> tuple[int, int]:
    """Offset and size of a dataset's bytes in the file."""
    with h5py.File(path) as file:
        dataset = file[name]
        if dataset.chunks is None:
            return int(dataset.id.get_offset()), int(dataset.nbytes)
        chunk = dataset.id.get_chunk_info(0)
        return int(chunk.byte_offset), int(chunk.size)


def test_a_flipped_data_byte_names_sample_and_field(store: stoker.Store) -> None:
    path = shard_file(store)
    offset, _ = dataset_place(path, "fields/x")
    first = next(i for i in range(COUNT) if store.index.shard[i] == 0 and store.index.row[i] == 0)
    flip(path, offset + 100)
    report = stoker.open(store.path).verify()
    assert not report.ok
    assert (store.key(first), "x") in {(key, field) for key, field, _ in report.bad}
    assert path.name in {name for name, _ in report.files}


def test_a_flipped_checksum_names_sample_and_field(store: stoker.Store) -> None:
    path = shard_file(store)
    offset, _ = dataset_place(path, "index/checksums")
    flip(path, offset)
    report = store.verify()
    assert [(field) for _, field, _ in report.bad] == ["x"]


@pytest.mark.parametrize("part", ["start", "keys", "offsets", "meta", "end"])
def test_a_flipped_byte_beside_the_data_names_the_file(store: stoker.Store, part: str) -> None:
    path = shard_file(store)
    size = path.stat().st_size
    places = {
        "start": 9,
        "keys": dataset_place(path, "index/keys/values")[0],
        "offsets": dataset_place(path, "fields/tail/offsets")[0] + 9,
        "meta": dataset_place(path, "meta")[0] + 5,
        "end": size - 1,
    }
    flip(path, places[part])
    report = stoker.open(store.path).verify()
    assert not report.ok
    assert path.name in {name for name, _ in report.files}


def test_any_flipped_byte_of_any_file_is_found(store: stoker.Store) -> None:
    rng = random.Random(0)
    files = [
        store.path / "manifest.json",
        store.path / f"index-{store.manifest.index.digest}.h5",
        shard_file(store),
    ]
    for path in files:
        whole = path.read_bytes()
        for _ in range(25):
            flip(path, rng.randrange(len(whole)))
            try:
                found = not stoker.open(store.path).verify().ok
            except StoreError:
                found = True
            assert found
            path.write_bytes(whole)
    assert stoker.open(store.path).verify().ok


@pytest.mark.parametrize("kept", [0, 1, 512, 4096, -4096, -1])
def test_a_truncated_shard_is_found_before_it_is_mapped(store: stoker.Store, kept: int) -> None:
    path = shard_file(store)
    data = path.read_bytes()
    path.write_bytes(data[:kept])
    opened = stoker.open(store.path)
    bad = next(i for i in range(COUNT) if store.index.shard[i] == 0)
    with pytest.raises(DamagedStoreError, match="the manifest says"):
        opened[bad]
    report = opened.verify()
    expected = {store.key(i) for i in range(COUNT) if store.index.shard[i] == 0}
    assert {key for key, _, _ in report.bad} == expected


def test_a_missing_shard_is_found(store: stoker.Store) -> None:
    shard_file(store, 1).unlink()
    report = stoker.open(store.path).verify()
    expected = {store.key(i) for i in range(COUNT) if store.index.shard[i] == 1}
    assert {key for key, _, _ in report.bad} == expected


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"schema_version": 1}'])
def test_a_manifest_that_is_none_is_refused(store: stoker.Store, content: bytes) -> None:
    (store.path / "manifest.json").write_bytes(content)
    with pytest.raises(DamagedStoreError, match="is damaged"):
        stoker.open(store.path)


def test_a_manifest_of_a_later_version_asks_for_an_upgrade(store: stoker.Store) -> None:
    (store.path / "manifest.json").write_bytes(b'{"schema_version": 99}')
    with pytest.raises(StoreMismatchError, match="upgrade Stoker"):
        stoker.open(store.path)


def test_a_store_without_its_manifest_is_rebuilt_from_its_shards(store: stoker.Store) -> None:
    digest = store.content_digest
    (store.path / "manifest.json").unlink()
    source = Signals(keys(COUNT))
    again = stoker.pack(source, store.path, workers=0, compression=store.manifest.compression)
    assert source.reads == []
    assert again.content_digest == digest


@pytest.mark.parametrize("damage", ["data", "header", "gone"])
def test_repair_packs_only_the_bad_samples_again(store: stoker.Store, damage: str) -> None:
    from stoker.store import repair

    digest = store.content_digest
    path = shard_file(store)
    if damage == "data":
        flip(path, dataset_place(path, "fields/x")[0] + 100)
    elif damage == "header":
        flip(path, 0)
    else:
        path.unlink()
    source = Signals(keys(COUNT))
    bad = {key for key, _, _ in stoker.open(store.path).verify().bad}
    done = repair(store.path, source)
    assert done.num_files == 1
    assert set(source.reads) == set(done.keys) == bad
    mended = stoker.open(store.path)
    assert mended.verify().ok
    assert mended.content_digest == digest
    for i in range(COUNT):
        assert_same(mended[i], source[i])
    assert repair(store.path, source).num_files == 0


def test_repair_refuses_another_transform_and_a_source_that_lacks_the_sample(
    store: stoker.Store,
) -> None:
    from stoker.store import repair

    with pytest.raises(StoreMismatchError, match="repair needs the same one"):
        repair(store.path, Signals(keys(COUNT)), transform=dict)
    shard_file(store).unlink()
    with pytest.raises(SourceError, match="no longer in the source"):
        repair(store.path, Signals(["other"]))


def test_compact_drops_dead_rows_and_keeps_the_content(store: stoker.Store) -> None:
    from stoker.store import compact

    compression = store.manifest.compression
    source = Signals(keys(COUNT))
    for key in keys(COUNT)[::2]:
        source.changed[key] = 1
    changed = stoker.pack(source, store.path, workers=0, compression=compression)
    done = compact(store.path)
    assert done.num_bytes < done.num_bytes_before
    after = stoker.open(store.path)
    assert after.content_digest == changed.content_digest
    assert sum(shard.num_samples for shard in after.manifest.shards) == COUNT
    assert after.verify().ok
    assert compact(store.path).num_bytes == done.num_bytes


def test_compact_never_launders_damage(store: stoker.Store) -> None:
    from stoker.store import compact

    path = shard_file(store)
    flip(path, dataset_place(path, "fields/x")[0] + 100)
    before = (store.path / "manifest.json").read_bytes()
    with pytest.raises(DamagedStoreError, match="stoker repair"):
        compact(store.path)
    assert (store.path / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("compression", ["lz4", "zstd", "gzip"])
def test_damaged_chunks_are_named_and_repaired(compression: Any, tmp_path: Path) -> None:
    from stoker.store import repair

    source = Large(keys(10))
    whole = stoker.pack(source, tmp_path / "a.stoker", workers=0, compression=compression)
    path = shard_file(whole)
    with h5py.File(path) as file:
        compressed = [name for name in ("fields/x", "fields/group/values") if file[name].chunks]
    assert len(compressed) == 2
    intact = path.read_bytes()
    rng = random.Random(0)
    for trial in range(30):
        start, size = dataset_place(path, compressed[trial % 2])
        flip(path, start + rng.randrange(size))
        report = stoker.open(whole.path).verify()
        assert not report.ok
        opened = stoker.open(whole.path)
        for i in range(10):
            try:
                opened[i]
            except DamagedStoreError:
                pass
            except UnicodeDecodeError:
                assert trial % 2
        path.write_bytes(intact)
    flip(path, dataset_place(path, "fields/x")[0] + 30)
    repair(whole.path, source)
    mended = stoker.open(whole.path)
    assert mended.verify().ok
    assert mended.content_digest == whole.content_digest


def test_a_damaged_index_is_never_built_upon_and_is_repaired(store: stoker.Store) -> None:
    from stoker.store import compact, repair

    path = store.path / f"index-{store.manifest.index.digest}.h5"
    flip(path, dataset_place(path, "row")[0] + 4 * 5)
    compression = store.manifest.compression
    with pytest.raises(DamagedStoreError, match="stoker repair"):
        stoker.pack(Signals(keys(COUNT + 1)), store.path, workers=0, compression=compression)
    with pytest.raises(DamagedStoreError, match="stoker repair"):
        compact(store.path)
    source = Signals(keys(COUNT))
    repair(store.path, source)
    assert source.reads == []
    mended = stoker.open(store.path)
    assert mended.verify().ok
    assert mended.content_digest == store.content_digest


def test_a_damaged_key_in_a_shard_is_not_copied_on(store: stoker.Store) -> None:
    from stoker.store import repair

    path = shard_file(store)
    flip(path, dataset_place(path, "index/keys/values")[0] + 8)
    repair(store.path, Signals(keys(COUNT)))
    mended = stoker.open(store.path)
    for i in range(COUNT):
        shard = mended.shards[int(mended.index.shard[i])]
        assert shard.keys[int(mended.index.row[i])] == mended.key(i)


def test_repair_refuses_what_changed_in_the_source(store: stoker.Store) -> None:
    from stoker.store import repair

    shard_file(store).unlink()
    changed = Signals(keys(COUNT))
    changed.changed = dict.fromkeys(keys(COUNT), 1)
    with pytest.raises(StoreMismatchError, match="has changed in the source"):
        repair(store.path, changed)
    other = Signals(keys(COUNT))
    classes = {"y": ["a", "b", "c"]}
    classed = Signals(keys(COUNT))
    classed.classes = classes  # type: ignore[attr-defined]
    stoker.pack(classed, store.path, workers=0, compression=store.manifest.compression, force=True)
    shard_file(stoker.open(store.path)).unlink()
    other.classes = {"y": ["a", "c"]}  # type: ignore[attr-defined]
    with pytest.raises(StoreMismatchError, match="classes of 'y'"):
        repair(store.path, other)


def test_nothing_to_do_is_not_said_of_a_store_that_lacks_a_shard(store: stoker.Store) -> None:
    shard_file(store).unlink()
    with pytest.raises(DamagedStoreError, match="cannot be opened"):
        stoker.pack(Signals(keys(COUNT)), store.path, workers=0, compression=store.manifest.compression)


def test_a_forged_shape_or_statistic_in_the_manifest_is_found(store: stoker.Store) -> None:
    forge(store.path, lambda data: data["stats"]["x"].update(mean=[0.5, 0.5]))
    assert ("manifest.json", "its statistics are not those of the samples") in store.verify().files


def test_statistics_that_another_machine_rounded_are_those_of_the_samples(store: stoker.Store) -> None:
    def round_otherwise(data: dict[str, Any]) -> None:
        stats = data["stats"]["x"]
        stats["mean"] = [value + 1e-13 for value in stats["mean"]]
        stats["std"] = [value * (1 + 1e-13) for value in stats["std"]]

    forge(store.path, round_otherwise)
    assert store.verify().ok
