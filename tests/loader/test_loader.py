import gc
import itertools
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stoker
from stoker.errors import BadSampleError, DamagedStoreError, UsageError
from stoker.loader._slots import Buffers
from stoker.loader._threads import ThreadFeed
from support.datasets import Signals, keys

COUNT = 150


@pytest.fixture(scope="module", params=["none", "lz4", "gzip"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    path = tmp_path_factory.mktemp("store") / "a.stoker"
    return stoker.pack(
        Signals(keys(COUNT)),
        path,
        shard_bytes=6000,
        workers=0,
        compression=request.param,
        splits={"train": 0.7, "val": 0.3},
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    path = tmp_path_factory.mktemp("plain") / "a.stoker"
    return stoker.pack(Signals(keys(COUNT)), path, shard_bytes=6000, workers=0)


def assert_batch_is(batch: dict[str, Any], store: stoker.Store) -> None:
    """Every row of the batch is the sample that ``index`` says, to the bit."""
    for row, number in enumerate(batch["index"].tolist()):
        sample = store[number]
        assert torch.equal(batch["x"][row], torch.from_numpy(sample["x"]))
        assert batch["y"][row] == torch.as_tensor(sample["y"])
        tail = torch.from_numpy(sample["tail"])
        assert batch["tail_length"][row] == len(tail)
        assert torch.equal(batch["tail"][row, : len(tail)], tail)
        assert not batch["tail"][row, len(tail) :].any()
        assert batch["group"][row] == sample["group"]


@pytest.mark.parametrize("shuffle", [True, False, "quasi"])
def test_an_epoch_gives_every_sample_once_and_rightly(store: stoker.Store, shuffle: Any) -> None:
    with stoker.Loader(store, 16, shuffle=shuffle, run_length=4, pool=3) as loader:
        seen = []
        for batch in loader:
            assert_batch_is(batch, store)
            seen += batch["index"].tolist()
    assert sorted(seen) == list(range(COUNT))
    assert (seen == list(range(COUNT))) == (shuffle is False)


@given(
    batch_size=st.integers(1, 200),
    seed=st.integers(0, 9),
    num_workers=st.integers(1, 4),
    drop_last=st.booleans(),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_batch_size_and_number_of_threads_gives_the_same_order(
    plain: stoker.Store, batch_size: int, seed: int, num_workers: int, drop_last: bool
) -> None:
    with stoker.Loader(plain, 1, seed=seed) as reference:
        expected = [int(batch["index"][0]) for batch in reference]
    with stoker.Loader(plain, batch_size, seed=seed, num_workers=num_workers, drop_last=drop_last) as loader:
        found = torch.cat([torch.zeros(0, dtype=torch.int64), *(batch["index"] for batch in loader)])
        steps = len(loader)
    kept = steps * batch_size if drop_last else COUNT
    assert found.tolist() == expected[:kept]


def test_epochs_differ_and_set_epoch_brings_one_back(plain: stoker.Store) -> None:
    with stoker.Loader(plain, 32) as loader:
        epochs = [[b["index"].tolist() for b in loader] for _ in range(3)]
        assert epochs[0] != epochs[1] != epochs[2]
        loader.set_epoch(1)
        assert [b["index"].tolist() for b in loader] == epochs[1]
        assert loader.epoch == 1


def test_an_iteration_left_early_counts_as_an_epoch(plain: stoker.Store) -> None:
    with stoker.Loader(plain, 8) as loader:
        first = next(iter(loader))["index"].tolist()
        second = next(iter(loader))["index"].tolist()
    assert first != second


def test_batches_that_are_kept_never_change(plain: stoker.Store) -> None:
    with stoker.Loader(plain, 4, memory_bytes=1) as loader:
        kept = [batch for _ in range(3) for batch in loader]
        views = [batch["x"][0, 1, ::2] for batch in kept]
        copies = [view.clone() for view in views]
        for _ in range(3):
            for batch in loader:
                assert len(batch["index"])
    for batch in kept:
        assert_batch_is(batch, plain)
    assert all(torch.equal(view, copy) for view, copy in zip(views, copies, strict=True))


def test_a_plain_loop_has_no_more_slots_than_blocks_ahead_and_in_hand(plain: stoker.Store) -> None:
    with stoker.Loader(plain, 4, num_workers=2) as loader:
        for _ in range(50):
            for batch in loader:
                del batch
        assert isinstance(loader._feed, ThreadFeed)
        assert loader._feed.num_slots <= loader._feed._num_ahead + 2


def test_a_selection_keeps_its_own_order_even_of_all_samples(plain: stoker.Store) -> None:
    backwards = plain.select(range(len(plain) - 1, -1, -1))
    with stoker.Loader(backwards, 16, shuffle=False, fields=["y"]) as loader:
        loaded = torch.cat([batch["y"] for batch in loader])
    np.testing.assert_array_equal(loaded.numpy(), plain.column("y")[::-1])


def test_a_state_of_another_selection_is_refused(plain: stoker.Store) -> None:
    with stoker.Loader(plain.select(range(20)), 4) as loader:
        state = loader.state_dict()
    with (
        stoker.Loader(plain.select(range(1, 21)), 4) as other,
        pytest.raises(UsageError, match="content or the chosen fields changed"),
    ):
        other.load_state_dict(state)


def while_the_threads_are_busy(loader: stoker.Loader) -> Iterator[dict[str, Any]]:
    """All batches of an epoch during which none of the loader's threads reads."""
    assert isinstance(loader._feed, ThreadFeed)
    threads = loader._feed._threads()
    release = threading.Event()
    for _ in range(loader._feed._num_threads):
        threads.submit(release.wait)
    try:
        yield from loader
    finally:
        release.set()


def test_a_consumer_reads_itself_what_its_threads_have_not_begun(tmp_path: Path) -> None:
    values = np.arange(60 * 2000, dtype=np.float32).reshape(60, 2000)
    store = stoker.pack([{"x": x} for x in values], tmp_path / "a.stoker", workers=0)
    with stoker.Loader(store, 8) as loader:
        for batch in while_the_threads_are_busy(loader):
            np.testing.assert_array_equal(batch["x"].numpy(), values[batch["index"].numpy()])
        assert loader.state_dict()["consumed"] == 60


def test_so_it_does_with_windows_of_an_uncompressed_store(tmp_path: Path) -> None:
    values = np.arange(3 * 500, dtype=np.float32).reshape(3, 500)
    store = stoker.pack([{"x": x} for x in values], tmp_path / "a.stoker", workers=0)
    view = stoker.windows(store, length=100, stride=50)
    with stoker.Loader(view, 4) as loader:
        batches = list(while_the_threads_are_busy(loader))
    for batch in batches:
        expected = [view[number]["x"] for number in batch["index"].tolist()]
        np.testing.assert_array_equal(batch["x"].numpy(), expected)
    assert sum(len(batch["index"]) for batch in batches) == len(view) == 27


def test_windows_that_must_be_decoded_are_left_to_the_threads(tmp_path: Path) -> None:
    store = stoker.pack([{"x": np.zeros(500)}], tmp_path / "a.stoker", compression="lz4", workers=0)
    with stoker.Loader(stoker.windows(store, length=100, stride=50), 4) as loader:
        assert isinstance(loader._feed, ThreadFeed)
        assert not loader._feed.consumer_reads


def test_preloading_maps_ragged_fields_too(tmp_path: Path) -> None:
    samples = [{"x": np.full(5000 + i, i, np.float32)} for i in range(40)]
    store = stoker.pack(samples, tmp_path / "a.stoker", workers=0)
    column = store.shards[0].fields["x"].column
    before = mapped_bytes(tmp_path)
    with stoker.Loader(store, 8, preload=True) as loader:
        assert mapped_bytes(tmp_path) - before >= 0.9 * column.num_bytes
        for batch in loader:
            np.testing.assert_array_equal(batch["x_length"], 5000 + batch["index"])


def test_ragged_batches_count_against_the_memory_for_reading_ahead(tmp_path: Path) -> None:
    samples = [{"x": np.zeros(50_000 + i, np.float32)} for i in range(64)]
    store = stoker.pack(samples, tmp_path / "a.stoker", workers=0)
    with stoker.Loader(store, 2, memory_bytes=8 << 20) as loader:
        most = 0
        for _ in loader:
            assert isinstance(loader._feed, ThreadFeed)
            most = max(most, sum(flat.nbytes for flat in loader._feed._buffers._all))
    assert most <= 8 << 20


def mapped_bytes(folder: Path) -> int:
    """How much of the files in a folder this process has mapped, by the kernel's count."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            inside = str(folder) in rest
        elif inside and name == "Rss:":
            found += 1024 * int(rest.split()[0])
    return found


def test_a_split_is_loaded_by_its_own_numbers(store: stoker.Store) -> None:
    val = store.split("val")
    with stoker.Loader(val, 7) as loader:
        seen = []
        for batch in loader:
            assert_batch_is(batch, val)
            seen += batch["index"].tolist()
    assert sorted(seen) == list(range(len(val)))


def test_only_the_chosen_fields_are_read(plain: stoker.Store) -> None:
    with stoker.Loader(plain, 8, fields=["y"]) as loader:
        assert set(next(iter(loader))) == {"y", "index"}
    with pytest.raises(UsageError, match="no field 'z'"):
        stoker.Loader(plain, 8, fields=["z"])


def test_ragged_fields_are_packed_or_listed_on_request(plain: stoker.Store) -> None:
    with stoker.Loader(plain, 10, shuffle=False, ragged="pack", fields=["tail"]) as loader:
        batch = next(iter(loader))
        for row in range(10):
            start, stop = batch["tail_offset"][row : row + 2]
            assert torch.equal(batch["tail"][start:stop], torch.from_numpy(plain[row]["tail"]))
    with stoker.Loader(plain, 10, shuffle=False, ragged="list", fields=["tail"]) as loader:
        batch = next(iter(loader))
        for row in range(10):
            assert torch.equal(batch["tail"][row], torch.from_numpy(plain[row]["tail"]))


def test_padded_batches_that_are_kept_never_change(plain: stoker.Store) -> None:
    with stoker.Loader(plain, 7, fields=["tail"]) as loader:
        kept = [batch for _ in range(3) for batch in loader]
        parts = [batch["tail"][:2, :1] for batch in loader]  # a view keeps all of its batch
        expected = [part.clone() for part in parts]
        del loader
    for batch in kept:
        for row, number in enumerate(batch["index"].tolist()):
            length = int(batch["tail_length"][row])
            assert torch.equal(batch["tail"][row, :length], torch.from_numpy(plain[number]["tail"]))
            assert not batch["tail"][row, length:].any()
    assert all(torch.equal(part, before) for part, before in zip(parts, expected, strict=True))


def test_buffers_are_used_again_when_nobody_sees_them() -> None:
    buffers = Buffers()
    first = buffers.array((3, 5), np.dtype(np.float32))
    address = first.ctypes.data
    tensor = torch.from_numpy(first)[1:]
    del first
    second = buffers.array((2, 2), np.dtype(np.int16))
    assert second.ctypes.data != address
    del tensor
    assert buffers.array((15,), np.dtype(np.float32)).ctypes.data == address
    assert buffers.array((0, 4), np.dtype(np.float64)).shape == (0, 4)
    held = [buffers.array((100,), np.dtype(np.uint8)) for _ in range(50)]
    addresses = {array.ctypes.data for array in held}
    assert len(addresses) == 50
    held.clear()
    for size in range(1000, 3000, 10):  # ever larger ones do not pile up
        buffers.array((size,), np.dtype(np.uint8))
    assert sum(flat.nbytes for flat in buffers._all) < 30_000


def test_padding_is_what_the_caller_says(plain: stoker.Store) -> None:
    with stoker.Loader(plain, 10, shuffle=False, pad_values={"tail": 7}, fields=["tail"]) as loader:
        batch = next(iter(loader))
    for row in range(10):
        length = int(batch["tail_length"][row])
        assert torch.equal(batch["tail"][row, :length], torch.from_numpy(plain[row]["tail"]))
        assert (batch["tail"][row, length:] == 7).all()
    masks = [{"mask": np.ones((4, 4 + 2 * i), np.uint8)} for i in range(2)]
    with stoker.Loader(masks, 2, shuffle=False, pad_values={"mask": 255}, num_workers=0) as loader:
        batch = next(iter(loader))
    assert batch["mask"][0, 0].tolist() == [1, 1, 1, 1, 255, 255]
    assert batch["mask_length"].tolist() == [4, 6]
    for value in (256, 256.0, -1, 0.5):  # a settings file gives floats
        with (
            stoker.Loader(masks, 2, pad_values={"mask": value}, num_workers=0) as loader,
            pytest.raises(UsageError, match=f"pad_values of 'mask' must fit uint8, got {value}"),
        ):
            next(iter(loader))
    with pytest.raises(UsageError, match="pad_values is for ragged='pad'"):
        stoker.Loader(masks, 2, ragged="list", pad_values={"mask": 255})
    with pytest.raises(UsageError, match="ragged must be 'pad', 'pack' or 'list', got 'fill'"):
        stoker.Loader(masks, 2, ragged="fill")  # type: ignore[arg-type]


def test_weights_draw_with_replacement(plain: stoker.Store) -> None:
    weights = np.zeros(COUNT)
    weights[[3, 5]] = 1
    with stoker.Loader(plain, 50, weights=weights) as loader:
        seen = torch.cat([batch["index"] for batch in loader])
    assert len(seen) == COUNT
    assert set(seen.tolist()) == {3, 5}


def test_augmentation_sees_index_and_epoch(plain: stoker.Store) -> None:
    calls = []

    def augment(batch: dict[str, Any], *, index: torch.Tensor, epoch: int) -> dict[str, Any]:
        calls.append((index.tolist(), epoch))
        return {**batch, "x": batch["x"] + 1}

    with stoker.Loader(plain, 50, augment=augment, shuffle=False) as loader:
        first = next(iter(loader))
        assert torch.equal(first["x"][0], torch.from_numpy(plain[0]["x"]) + 1)
        for _ in loader:
            pass
    assert calls[0] == (list(range(50)), 0)
    assert {epoch for _, epoch in calls} == {0, 1}
    assert torch.equal(
        next(iter(stoker.Loader(plain, 1, shuffle=False)))["x"][0], torch.from_numpy(plain[0]["x"])
    )


@pytest.mark.parametrize("shuffle", [True, False, "quasi"])
def test_resuming_at_every_step_gives_exactly_what_was_left(plain: stoker.Store, shuffle: Any) -> None:
    options: dict[str, Any] = {"shuffle": shuffle, "run_length": 4, "pool": 3, "seed": 5}
    with stoker.Loader(plain, 16, **options) as loader:
        loader.set_epoch(2)
        states, batches = [loader.state_dict()], []
        for batch in loader:
            batches.append(batch["index"].tolist())
            states.append(loader.state_dict())
        whole = list(itertools.chain(*batches))
        following = [batch["index"].tolist() for batch in loader]
    for step, state in enumerate(states):
        for batch_size in (16, 5):
            with stoker.Loader(plain, batch_size, num_workers=1, **options) as resumed:
                resumed.load_state_dict(pickle.loads(pickle.dumps(state)))
                rest = list(itertools.chain(*(batch["index"].tolist() for batch in resumed)))
                assert rest == whole[step * 16 :]
                if batch_size == 16:
                    assert [batch["index"].tolist() for batch in resumed] == following


def test_ranks_resume_with_another_number_of_ranks(plain: stoker.Store) -> None:
    for step in range(5):
        seen: list[int] = []
        state: dict[str, Any] = {}
        for rank in range(2):
            with stoker.Loader(plain, 10, rank=rank, world_size=2) as loader:
                batches = iter(loader)
                for _ in range(step):
                    seen += next(batches)["index"].tolist()
                state = loader.state_dict()
        for rank in range(3):
            with stoker.Loader(plain, 7, rank=rank, world_size=3) as loader:
                loader.load_state_dict(state)
                for batch in loader:
                    seen += batch["index"].tolist()
        assert set(seen) == set(range(COUNT))
        assert len(seen) - COUNT < 3


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seed": 9}, "seed 9, this loader 0"),
        ({"order": "sequential"}, "same shuffle"),
        ({"data": "other"}, "content or the chosen fields changed"),
        ({"num_samples": 3}, "the split changed"),
        ({"schema_version": 0}, "another version"),
        ({"consumed": -1}, "cannot be"),
        ({"consumed": 10**9}, "cannot be"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_by_name(
    plain: stoker.Store, change: dict[str, Any], why: str
) -> None:
    with stoker.Loader(plain, 8) as loader:
        with pytest.raises(UsageError, match=why):
            loader.load_state_dict({**loader.state_dict(), **change})
        with pytest.raises(UsageError, match="lacks"):
            loader.load_state_dict({})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"shuffle": "maybe"}, "shuffle must be"),
        ({"rank": 1}, "go together"),
        ({"rank": 2, "world_size": 2}, "rank must be from 0"),
        ({"weights": [1.0]}, "one a sample, got 1 for 150"),
        ({"on_bad_sample": "hide"}, "on_bad_sample must be"),
    ],
)
def test_a_wrong_option_is_refused(plain: stoker.Store, options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        stoker.Loader(plain, **options)


def test_an_empty_split_is_refused(plain: stoker.Store) -> None:
    with pytest.raises(UsageError, match="a split may be empty"):
        stoker.Loader(plain.select([]))


class Wide(Signals):
    """Samples large enough to be compressed in several chunks."""

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": np.random.default_rng(i).integers(0, 9, 9000).astype(np.float32), "y": i}


@pytest.fixture
def damaged(tmp_path: Path) -> stoker.Store:
    import h5py

    store = stoker.pack(Wide(keys(20)), tmp_path / "d.stoker", workers=0, compression="zstd")
    path = store.shards[0].path
    with h5py.File(path) as file:
        x = file["fields/x"]
        assert x.chunks[0] == 1
        chunk = x.id.get_chunk_info(7)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset : chunk.byte_offset + 60] = bytes(60)
    path.write_bytes(data)
    return stoker.open(store.path)


def test_a_sample_that_cannot_be_read_is_named_at_once(damaged: stoker.Store) -> None:
    with (
        stoker.Loader(damaged, 6, shuffle=False) as loader,
        pytest.raises(BadSampleError, match=r"sample-0007.*DamagedStoreError") as caught,
    ):
        for _ in loader:
            pass
    assert isinstance(caught.value.__cause__, DamagedStoreError)


def test_bad_samples_can_be_skipped_and_are_reported(damaged: stoker.Store) -> None:
    with stoker.Loader(damaged, 6, shuffle=False, on_bad_sample="skip") as loader:
        seen = [batch["index"].tolist() for batch in loader]
    assert list(itertools.chain(*seen)) == [i for i in range(20) if i != 7]
    assert [error.key for error in loader.bad_samples] == ["sample-0007"]


def resources() -> tuple[int, int, int]:
    """Open descriptors, threads and resident kilobytes."""
    gc.collect()
    rss = next(
        int(line.split()[1])
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), rss


def test_a_thousand_early_breaks_leave_everything_flat(plain: stoker.Store) -> None:
    with stoker.Loader(plain, 4) as loader:
        for _ in range(50):
            next(iter(loader))
        before = resources()
        for _ in range(1000):
            for _batch in loader:
                break
        after = resources()
    assert after[0] == before[0]
    assert after[1] == before[1]
    assert after[2] - before[2] < 20_000


def test_loaders_that_are_closed_or_forgotten_leave_no_thread(plain: stoker.Store) -> None:
    before = set(threading.enumerate())
    for number in range(20):
        loader = stoker.Loader(plain, 4)
        next(iter(loader))
        if number % 2:
            loader.close()
        del loader
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


def test_fifty_loaders_are_open_at_once(plain: stoker.Store) -> None:
    loaders = [stoker.Loader(plain, 8, seed=seed, num_workers=1) for seed in range(50)]
    iterators = [iter(loader) for loader in loaders]
    for _ in range(3):
        for iterator in iterators:
            assert_batch_is(next(iterator), plain)
    for loader in loaders:
        loader.close()


def test_a_loader_used_before_a_fork_works_after_it(plain: stoker.Store) -> None:
    with stoker.Loader(plain, 8) as loader:
        next(iter(loader))
        expected = loader.state_dict()
        child = os.fork()
        if child == 0:
            try:
                loader.set_epoch(0)
                ok = sum(len(batch["index"]) for batch in loader) == COUNT
                os._exit(0 if ok else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert loader.state_dict() == expected
        assert sum(len(batch["index"]) for batch in loader) == COUNT


def test_a_shard_removed_while_open_is_still_read_and_a_new_loader_refuses(tmp_path: Path) -> None:
    store = stoker.pack(Signals(keys(30)), tmp_path / "a.stoker", workers=0, shard_bytes=2000)
    with stoker.Loader(store, 8, fields=["x", "y"]) as loader:
        next(iter(loader))
        path = store.shards[0].path
        path.unlink()
        assert sum(len(batch["index"]) for batch in loader) == 30
    with pytest.raises(DamagedStoreError, match="cannot be opened"):
        stoker.Loader(stoker.open(tmp_path / "a.stoker"), 8)


def test_a_truncated_shard_is_refused_before_it_is_mapped(tmp_path: Path) -> None:
    store = stoker.pack(Signals(keys(30)), tmp_path / "a.stoker", workers=0, shard_bytes=2000)
    path = store.path / "shards" / f"{store.manifest.shards[1].digest}.h5"
    os.truncate(path, path.stat().st_size - 100)
    with pytest.raises(DamagedStoreError, match="the manifest says"):
        stoker.Loader(stoker.open(store.path), 8)


def test_a_shard_truncated_while_mapped_is_noticed_by_the_next_epoch(tmp_path: Path) -> None:
    store = stoker.pack(Signals(keys(30)), tmp_path / "a.stoker", workers=0, shard_bytes=2000)
    with stoker.Loader(store, 8, fields=["x", "y"]) as loader:
        list(loader)
        os.truncate(store.shards[0].path, 4096)
        with pytest.raises(DamagedStoreError, match="has 4096 bytes, the manifest says"):
            next(iter(loader))


def test_ctrl_c_ends_a_loop_at_once(plain: stoker.Store) -> None:
    code = (
        "import os, signal, sys, stoker\n"
        f"loader = stoker.Loader(stoker.open({str(plain.path)!r}), 4)\n"
        "for step, batch in enumerate(loader):\n"
        "    if step == 3:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False
    )
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode != 0


def test_preloading_changes_nothing_but_the_pages(store: stoker.Store) -> None:
    with stoker.Loader(store, 16, preload=True) as loader:
        assert sum(len(batch["index"]) for batch in loader) == COUNT


def test_the_repr_tells_what_it_is(plain: stoker.Store) -> None:
    assert repr(stoker.Loader(plain, 16)) == "Loader(150 samples, 10 steps of 16)"
    assert "rank 1 of 2" in repr(stoker.Loader(plain, 16, rank=1, world_size=2))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_arrive_on_the_gpu_and_stay_right(plain: stoker.Store) -> None:
    with stoker.Loader(plain, 16, device="cuda") as loader:
        for _ in range(3):
            for batch in loader:
                assert batch["x"].is_cuda
                back = {name: getattr(value, "cpu", lambda v=value: v)() for name, value in batch.items()}
                assert_batch_is(back, plain)


def test_windows_are_loaded_with_jitter_and_resume(tmp_path: Path) -> None:
    import h5py

    for session in range(3):
        with h5py.File(tmp_path / f"{session}.h5", "w") as file:
            file["signal"] = np.arange(100 * (session + 1), dtype=np.float32)[:, None] + 1000 * session
    with stoker.windows(tmp_path, length=10, stride=7, jitter=3) as view:
        with stoker.Loader(view, 4, seed=2) as loader:
            batches, states = [], [loader.state_dict()]
            for batch in loader:
                assert batch["signal"].shape[1:] == (10, 1)
                assert (batch["signal"].diff(dim=1) == 1).all()
                for row, number in enumerate(batch["index"].tolist()):
                    offset = batch["signal"][row, 0, 0] - view[number]["signal"][0, 0]
                    assert 0 <= offset <= 3
                batches.append((batch["index"].clone(), batch["signal"].clone()))
                states.append(loader.state_dict())
        assert sorted(torch.cat([index for index, _ in batches]).tolist()) == list(range(len(view)))
        for step, state in enumerate(states):
            with stoker.Loader(view, 4, seed=2, num_workers=1) as resumed:
                resumed.load_state_dict(state)
                rest = [(batch["index"], batch["signal"].clone()) for batch in resumed]
            assert len(rest) == len(batches) - step
            for (index, signal), (expected, values) in zip(rest, batches[step:], strict=True):
                assert torch.equal(index, expected)
                assert torch.equal(signal, values)
