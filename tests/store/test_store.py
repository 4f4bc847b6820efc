import multiprocessing as mp
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

import stoker
from stoker.errors import DamagedStoreError, StoreNotFoundError, UsageError
from support.datasets import Signals, assert_same, keys


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    path = tmp_path_factory.mktemp("store") / "a.stoker"
    return stoker.pack(
        Signals(keys(60)),
        path,
        shard_bytes=3000,
        workers=0,
        splits={"train": 0.7, "val": 0.3},
        group="group",
    )


def test_negative_numbers_count_from_the_end(store: stoker.Store) -> None:
    assert_same(store[-1], store[59])
    with pytest.raises(IndexError, match="sample 60 of 60"):
        store[60]
    with pytest.raises(IndexError, match="sample -61 of 60"):
        store[-61]


@pytest.mark.parametrize("item", [[5, 3, 59, 3], slice(2, 50, 7), np.arange(4), [], [-1, 0]])
def test_a_batch_is_its_samples_stacked(store: stoker.Store, item: Any) -> None:
    batch = store[item]
    numbers = np.arange(60)[item] if len(np.arange(60)[item]) else []
    samples = [store[int(i)] for i in numbers]
    assert set(batch) == {"x", "y", "tail", "group"}
    np.testing.assert_array_equal(batch["x"], [s["x"] for s in samples] or np.empty((0, 2, 50)))
    assert batch["x"].dtype == np.float32
    assert batch["group"] == [s["group"] for s in samples]
    assert [t.tolist() for t in batch["tail"]] == [s["tail"].tolist() for s in samples]  # type: ignore[union-attr]


def test_a_boolean_mask_chooses_samples(store: stoker.Store) -> None:
    mask = store.column("y") == 1
    np.testing.assert_array_equal(store[mask]["y"], np.ones(mask.sum()))


@pytest.mark.parametrize("item", ["x", 1.5, [1.5], [[1, 2]], None])
def test_what_is_no_number_is_refused(store: stoker.Store, item: Any) -> None:
    with pytest.raises(UsageError, match="a number, a slice or a list"):
        store[item]


def test_what_a_caller_does_to_a_sample_never_reaches_the_file(store: stoker.Store) -> None:
    sample, before = store[3], store[3]
    sample["x"][:] = 0  # type: ignore[index]
    batch = store[[3]]
    batch["x"][:] = 0
    assert_same(store[3], before)


def test_the_shards_that_a_view_needs_are_told(tmp_path: Path) -> None:
    rows = [{"x": np.full(64, i, np.float32)} for i in range(40)]
    store = stoker.pack(rows, tmp_path / "s.stoker", workers=0, shard_bytes=2048, progress=False)
    assert len(store.shards) > 3
    for view in (store, store.select([0]), store.select([39, 20, 21])):
        assert view.used_shards.tolist() == np.unique(store.index.shard[view.numbers]).tolist()


def test_splits_partition_and_keep_groups_together(store: stoker.Store) -> None:
    train, val = store.split("train"), store.split("val")
    assert len(train) + len(val) == 60
    assert store.splits == {"train": len(train), "val": len(val)}
    assert not set(train.column("group")) & set(val.column("group"))
    assert sorted([*train.numbers, *val.numbers]) == list(range(60))
    assert_same(val[0], store[int(val.numbers[0])])
    assert val.key(0) == store.key(int(val.numbers[0]))
    with pytest.raises(UsageError, match=r"no split 'test'; there are \['train', 'val'\]"):
        store.split("test")


def test_selections_nest(store: stoker.Store) -> None:
    inner = store.select(range(10, 40)).select([0, 5, -1])
    assert inner.numbers.tolist() == [10, 15, 39]
    assert [inner.key(i) for i in range(3)] == [store.key(i) for i in (10, 15, 39)]


def test_a_store_is_pickled_by_path(store: stoker.Store) -> None:
    view = store.split("val")
    copy = pickle.loads(pickle.dumps(view))
    assert len(pickle.dumps(store)) < 1000
    assert_same(copy[2], view[2])


def test_a_pickle_of_a_store_that_was_packed_anew_is_refused(tmp_path: Path) -> None:
    first = stoker.pack(Signals(keys(5)), tmp_path / "a.stoker", workers=0)
    pickled = pickle.dumps(first)
    stoker.pack(Signals(keys(6)), tmp_path / "a.stoker", workers=0)
    with pytest.raises(DamagedStoreError, match="packed anew"):
        pickle.loads(pickled)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_it_is_a_dataset_for_worker_processes(store: stoker.Store, method: str) -> None:
    store[0]  # opens a shard before the fork
    numeric = _Numeric(store)
    num_workers = 2 if method == "fork" else 1  # a fresh process imports torch anew
    loader: DataLoader[Any] = DataLoader(
        numeric, batch_size=16, num_workers=num_workers, multiprocessing_context=mp.get_context(method)
    )
    x = np.concatenate([batch["x"].numpy() for batch in loader])
    np.testing.assert_array_equal(x, store.column("x"))


class _Numeric(Dataset[dict[str, Any]]):
    """The fields of a store that PyTorch's collate can stack."""

    def __init__(self, store: stoker.Store) -> None:
        self.store = store

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, item: int) -> dict[str, Any]:
        return self.__getitems__([item])[0]

    def __getitems__(self, items: list[int]) -> list[dict[str, Any]]:
        return [{"x": s["x"], "y": s["y"]} for s in self.store.__getitems__(items)]


def test_threads_share_a_store(store: stoker.Store) -> None:
    fresh = stoker.open(store.path)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: fresh[i]["x"], [*range(60)] * 5))
    np.testing.assert_array_equal(np.stack(found), np.tile(store.column("x"), (5, 1, 1)))


def test_any_hdf5_tool_reads_a_shard(store: stoker.Store) -> None:
    number, row = int(store.index.shard[7]), int(store.index.row[7])
    with h5py.File(store.shards[number].path) as file:
        np.testing.assert_array_equal(file["fields/x"][row], store[7]["x"])
        start, stop = file["fields/tail/offsets"][row : row + 2]
        np.testing.assert_array_equal(file["fields/tail/values"][start:stop], store[7]["tail"])


def test_large_fields_start_on_a_page(store: stoker.Store) -> None:
    with h5py.File(store.shards[0].path) as file:
        x = file["fields/x"]
        assert x.chunks is None
        assert x.nbytes < 4096 or x.id.get_offset() % 4096 == 0


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd"])
def test_to_h5py_shows_the_whole_store_in_order(compression: Any, tmp_path: Path) -> None:
    packed = stoker.pack(Signals(keys(30)), tmp_path / "a.stoker", shard_bytes=3000, compression=compression)
    view = packed.select(np.arange(29, -1, -1))
    with view.to_h5py() as file:
        np.testing.assert_array_equal(file["x"][:], view.column("x"))
        offsets = file["tail/offsets"][:]
        for i in range(30):
            found = file["tail/values"][offsets[i] : offsets[i + 1]]
            np.testing.assert_array_equal(found, view[i]["tail"])
        names = bytes(file["group/values"][:]).decode()
        assert names == "".join(view.column("group"))


def test_a_store_can_be_packed_again_as_a_source(store: stoker.Store, tmp_path: Path) -> None:
    copy = stoker.pack(store, tmp_path / "copy.stoker", compression="zstd")
    assert copy.content_digest == store.content_digest


def test_an_unknown_field_is_named(store: stoker.Store) -> None:
    with pytest.raises(UsageError, match=r"no field 'z'; there are \['group', 'tail', 'x', 'y'\]"):
        store.column("z")


def test_opening_what_is_no_store_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="there is no store at"):
        stoker.open(tmp_path / "nothing")
    with pytest.raises(StoreNotFoundError, match="a folder but not a store"):
        stoker.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreNotFoundError, match="is a file"):
        stoker.open(tmp_path / "file")
    (tmp_path / "half" / "shards").mkdir(parents=True)
    with pytest.raises(StoreNotFoundError, match="interrupted; run `stoker pack` again"):
        stoker.open(tmp_path / "half")


def test_the_repr_tells_what_it_is(store: stoker.Store) -> None:
    assert "60 samples, x: float32[2, 50], y: int64[], tail: int16[?], group: text" in repr(store)
