"""The decoded cache of a compressed store, and what is brought into memory ahead of use."""

import itertools
import os
import pickle
import re
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import stoker
from stoker.errors import DamagedStoreError, StoreWriteError, UsageError
from stoker.loader import decoded
from stoker.loader._preload import num_that_fit
from stoker.loader._room import is_in_memory, mount_kind, room_bytes
from support.datasets import Signals, assert_same, keys

COUNT = 90


class Wide(Signals):
    """Large enough to be compressed in chunks of several samples."""

    classes = ("low", "middle", "high")

    def __getitem__(self, i: int) -> dict[str, Any]:
        whole = np.random.default_rng(i).integers(0, 9, (2, 600)).astype(np.float32)
        return {**super().__getitem__(i), "x": whole}


@pytest.fixture(scope="module", params=["lz4", "gzip"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    return stoker.pack(
        Wide(keys(COUNT)),
        tmp_path_factory.mktemp("store") / "a.stoker",
        workers=0,
        shard_bytes=150_000,
        compression=request.param,
        splits={"train": 0.6, "val": 0.4},
        stratify="y",
        channel_axis={"x": 1},
    )


def batches_of(loader: stoker.Loader) -> list[dict[str, Any]]:
    return [{name: _copy(value) for name, value in batch.items()} for batch in loader]


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def assert_equal_batches(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> None:
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            same = torch.equal(one[name], value) if isinstance(value, torch.Tensor) else one[name] == value
            assert same, name


def test_the_decoded_store_is_the_compressed_one_in_all_but_its_bytes(
    store: stoker.Store, tmp_path: Path
) -> None:
    found = decoded(store, tmp_path)
    assert found.manifest.compression == "none"
    assert found.path.parent == tmp_path
    for i in range(COUNT):
        assert_same(found[i], store[i])
        assert found.key(i) == store.key(i)
    assert found.content_digest == store.content_digest
    assert (found.fields, found.stats, found.classes) == (store.fields, store.stats, store.classes)
    for name in ("train", "val"):
        assert found.split(name).numbers.tolist() == store.split(name).numbers.tolist()
    assert found.verify().ok


def test_an_uncompressed_store_needs_no_cache(tmp_path: Path) -> None:
    plain = stoker.pack(Signals(keys(5)), tmp_path / "a.stoker", workers=0)
    assert decoded(plain, tmp_path / "cache") is plain
    with stoker.Loader(plain, cache=tmp_path / "cache"):
        pass
    assert not (tmp_path / "cache").exists()


def test_the_cache_is_made_once(store: stoker.Store, tmp_path: Path) -> None:
    first = decoded(store, tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    assert decoded(stoker.open(store.path), tmp_path).path == first.path
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("fields", [None, ["x"], ["tail", "y"]])
def test_a_loader_with_a_cache_gives_the_same_batches(
    store: stoker.Store, fields: list[str] | None, tmp_path: Path
) -> None:
    for source in (store, store.split("val"), store.select(range(COUNT - 1, 0, -2))):
        with (
            stoker.Loader(source, 8, fields=fields, cache=tmp_path) as cached,
            stoker.Loader(source, 8, fields=fields) as plain,
        ):
            assert_equal_batches(batches_of(cached), batches_of(plain))


def test_only_the_chosen_fields_are_decoded(store: stoker.Store, tmp_path: Path) -> None:
    found = decoded(store, tmp_path, fields=["y", "x"])
    assert list(found.fields) == ["x", "y"]
    assert found.path != decoded(store, tmp_path).path
    with pytest.raises(UsageError, match="no field 'z'"):
        decoded(store, tmp_path, fields=["z"])


@pytest.mark.parametrize("fields", [None, ["y"]])
def test_a_state_fits_with_and_without_the_cache(
    store: stoker.Store, fields: list[str] | None, tmp_path: Path
) -> None:
    caches = (None, tmp_path)
    for first, second in itertools.product(caches, caches):
        with stoker.Loader(store, 8, fields=fields, cache=first) as loader:
            batches = iter(loader)
            for _ in range(3):
                next(batches)
            state = loader.state_dict()
            rest = [batch["index"].tolist() for batch in batches]
        with stoker.Loader(store, 8, fields=fields, cache=second) as resumed:
            resumed.load_state_dict(state)
            assert [batch["index"].tolist() for batch in resumed] == rest


def test_a_decoded_store_survives_pickling(store: stoker.Store, tmp_path: Path) -> None:
    found = decoded(store.split("val"), tmp_path)
    again = pickle.loads(pickle.dumps(found))
    assert len(again) == len(found)
    assert_same(again[3], found[3])
    assert again.content_digest == store.content_digest


def test_a_changed_store_never_meets_an_old_cache(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.stoker", tmp_path / "cache"
    source = Wide(keys(20))
    old = decoded(stoker.pack(source, path, workers=0, compression="lz4"), cache)
    before = old[3]
    changed = stoker.pack(Wide(keys(20, start=5)), path, workers=0, compression="lz4")
    new = decoded(changed, cache)
    assert new.path != old.path
    assert [new.key(i) for i in range(20)] == keys(20, start=5)
    assert list(cache.glob("*.stoker")) == [new.path]  # nothing to clean up
    assert_same(before, Wide(keys(20))[3])


@pytest.mark.parametrize("harm", ["truncate", "remove", "manifest"])
def test_a_damaged_cache_is_made_again(store: stoker.Store, harm: str, tmp_path: Path) -> None:
    found = decoded(store, tmp_path)
    shard = found.shards[0].path
    if harm == "truncate":
        os.truncate(shard, shard.stat().st_size - 1)
    elif harm == "remove":
        shard.unlink()
    else:
        (found.path / "manifest.json").write_text("{}")
    again = decoded(store, tmp_path)
    assert again.verify().ok
    assert_same(again[COUNT - 1], store[COUNT - 1])


def test_a_store_that_decodes_to_something_else_is_refused(tmp_path: Path) -> None:
    store = stoker.pack(Wide(keys(20)), tmp_path / "a.stoker", workers=0, compression="lz4")
    path = store.shards[0].path
    with h5py.File(path) as file:
        place = file["fields/y"].id.get_offset()  # so small that it was not compressed
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    cache = tmp_path / "cache"
    with pytest.raises(DamagedStoreError, match="does not decode to what was packed; run `stoker verify`"):
        decoded(stoker.open(store.path), cache)
    assert not list(cache.glob("*.stoker"))


def test_a_chunk_that_does_not_decode_is_named(tmp_path: Path) -> None:
    store = stoker.pack(Wide(keys(20)), tmp_path / "a.stoker", workers=0, compression="zstd")
    path = store.shards[0].path
    with h5py.File(path) as file:
        chunk = file["fields/x"].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset : chunk.byte_offset + chunk.size] = bytes(chunk.size)
    path.write_bytes(data)
    with pytest.raises(DamagedStoreError, match=r"does not decode.*'sample-0000' to 'sample-0019'"):
        stoker.Loader(stoker.open(store.path), cache=tmp_path / "cache")


def test_a_cache_larger_than_its_budget_is_refused(store: stoker.Store, tmp_path: Path) -> None:
    with pytest.raises(StoreWriteError, match=r"needs 0\.4 MB, max_bytes allows 0\.1 MB; allow more"):
        decoded(store, tmp_path, max_bytes=100_000)
    assert not list(tmp_path.glob("*.stoker"))
    decoded(store, tmp_path, max_bytes=10_000_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(mount)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_a_folder_without_room_is_refused_by_name_but_auto_goes_on(
    store: stoker.Store, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreWriteError, match=rf"{small_disk} has room for .* choose another folder"):
        stoker.Loader(store, cache=small_disk)
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    with pytest.warns(UserWarning, match="no decoded cache, chunks are decoded at each read") as told:
        loader = stoker.Loader(store, 16, cache="auto")
    assert len(told) == 1
    assert Path(told[0].filename) == Path(__file__)
    with loader, stoker.Loader(store, 16) as plain:
        assert_equal_batches(batches_of(loader), batches_of(plain))


def test_auto_uses_a_folder_of_the_users_own(
    store: stoker.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = tmp_path / f"stoker-{os.getuid()}"
    with stoker.Loader(store, cache="auto"):
        assert len(list(own.glob("decoded-*.stoker"))) == 1
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)
    with pytest.raises(StoreWriteError, match="only you can write"):
        decoded(store)


def test_a_cache_is_for_stores(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cache is for stores, got list"):
        stoker.Loader([1, 2, 3], cache=tmp_path)


def test_a_tmpfs_counts_as_memory() -> None:
    text = (
        "22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "30 22 0:26 / /dev/shm rw,nosuid shared:4 master:2 - tmpfs tmpfs rw\n"
        "nonsense\n"
    )
    assert mount_kind(text, "0:26") == "tmpfs"
    assert mount_kind(text, "0:20") == "ext4"
    assert mount_kind(text, "9:9") is None
    shm = Path("/dev/shm")
    if not shm.is_dir():
        pytest.skip("there is no /dev/shm here")
    assert is_in_memory(shm)
    assert 0 < room_bytes(shm) <= stoker.config.available_memory_bytes()


def resident_bytes(store: stoker.Store) -> list[int]:
    """How much of each shard's file is in this process' memory, in the order of the shards."""
    resident = {entry.digest: 0 for entry in store.manifest.shards}
    name = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            name = Path(line.split(maxsplit=5)[-1]).stem
        elif line.startswith("Rss:") and name in resident:
            resident[name] += 1024 * int(line.split()[1])
    return list(resident.values())


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    """Four shards of 256 pages of x each."""
    path = tmp_path_factory.mktemp("large") / "a.stoker"
    samples = [{"x": np.full(4096, i % 251, np.uint8), "y": i} for i in range(1024)]
    store = stoker.pack(samples, path, workers=0, shard_bytes=256 * 4104)
    assert len(store.manifest.shards) == 4
    return store


X_BYTES = 256 * 4096


def test_preload_brings_everything_into_memory(large: stoker.Store) -> None:
    with stoker.Loader(large, preload=True, fields=["x"]):
        assert min(resident_bytes(large)) >= X_BYTES


@pytest.mark.parametrize("num_shards", [0, 1, 3])
def test_preload_keeps_to_its_budget_and_says_so(large: stoker.Store, num_shards: int) -> None:
    budget = num_shards * X_BYTES + X_BYTES // 2
    with pytest.warns(UserWarning, match=r"of 4\.2 MB into memory.*the rest is read when") as told:
        loader = stoker.Loader(large, preload=budget, fields=["x"])
    assert Path(told[0].filename) == Path(__file__)
    with loader:
        resident = resident_bytes(large)
        assert all(size >= X_BYTES for size in resident[:num_shards])
        assert not any(resident[num_shards:])
        assert sum(len(batch["index"]) for batch in loader) == 1024


def test_preload_never_takes_more_than_is_available(
    large: stoker.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.loader._preload.available_memory_bytes", lambda: 2 * X_BYTES)
    for preload in (True, 1 << 40):
        with pytest.warns(UserWarning, match=r"brought 2\.1 MB of 4\.2 MB"):
            loader = stoker.Loader(large, preload=preload, fields=["x"])
        with loader:
            assert np.count_nonzero(resident_bytes(large)) == 2


def test_preload_leaves_out_shards_without_a_sample_of_the_view(large: stoker.Store) -> None:
    chosen = large.select(np.flatnonzero(large.index.shard == 2)[:5])
    with stoker.Loader(chosen, preload=2 * X_BYTES, fields=["x"]):
        assert np.flatnonzero(resident_bytes(large)).tolist() == [2]


def test_preload_tells_what_it_cannot_do(store: stoker.Store, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"preload leaves out \['x'\]: compressed"):
        stoker.Loader(store, preload=True).close()
    with pytest.warns(UserWarning, match="preload is for stores"):
        stoker.Loader(Signals(keys(3)), preload=True, num_workers=0).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stoker.Loader(store, preload=True, cache=tmp_path).close()
    for wrong in (-1, "all", 0.5):
        with pytest.raises(UsageError, match="preload must be True, False or a number of bytes"):
            stoker.Loader(store, preload=wrong)  # type: ignore[arg-type]


def test_what_fits_is_counted_from_the_first() -> None:
    assert num_that_fit([3, 4, 5], 7) == 2
    assert num_that_fit([3, 4, 5], 2) == 0
    assert num_that_fit([3, 4, 5], 12) == 3
    assert num_that_fit([], 0) == 0
