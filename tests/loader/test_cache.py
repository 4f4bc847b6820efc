"""A slow Dataset behind a cache: the same samples, computed once, within the budget, in all processes."""

import copy
import gc
import math
import mmap
import multiprocessing
import os
import pickle
import random
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.utils.data import DataLoader

import stoker
from stoker.errors import StoreMismatchError, UsageError
from stoker.loader import _cache_arena, _cache_budget, _cache_codec, _cache_files
from stoker.loader._cache_arena import Arena
from stoker.loader._cache_files import in_memory

PAGE = mmap.PAGESIZE
NUM_SAMPLES = 24


class Slow:
    """Deterministic; writes down in a file, which all processes see, what was computed."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.log.touch()
        self.offset = 0

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, i: int) -> dict[str, Any]:
        if not 0 <= i < len(self):
            raise IndexError(i)
        with self.log.open("a") as file:
            file.write(f"{i}\n")
        return {
            "x": torch.full((1, 500), i + self.offset, dtype=torch.float32),
            "z": np.arange(i, dtype=np.int16),
            "y": i,
            "name": f"n{i}",
        }

    def computed(self) -> list[int]:
        return [int(line) for line in self.log.read_text().split()]


class Together(Slow):
    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self.calls: list[list[int]] = []

    def __getitems__(self, numbers: list[int]) -> list[dict[str, Any]]:
        self.calls.append(numbers)
        return [self[number] for number in numbers]


class Keyed(Slow):
    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self.changed: set[int] = set()

    def key(self, i: int) -> str:
        return f"file-{i}"

    def fingerprint(self, i: int) -> str:
        return "new" if i in self.changed else "old"


class Augmenting:
    def __init__(self, source: str) -> None:
        self.source = source

    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: int) -> dict[str, Any]:
        draws = {"random": random.random, "numpy": np.random.rand, "torch": lambda: torch.rand(1).item()}
        return {"x": [np.zeros(3), np.full(3, draws[self.source]())], "y": i}


class Sized:
    """Samples of given sizes, in pages."""

    def __init__(self, num_pages: list[int]) -> None:
        self.num_pages = num_pages
        self.computed: list[int] = []

    def __len__(self) -> int:
        return len(self.num_pages)

    def __getitem__(self, i: int) -> np.ndarray[Any, Any]:
        self.computed.append(i)
        return np.full(self.num_pages[i] * PAGE - 500, i, np.uint8)


class Whatever:
    """One sample, whatever it is."""

    def __init__(self, sample: Any, count: int = 1) -> None:
        self.sample = sample
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return self.sample


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(tmp_path / "log")


@pytest.fixture(autouse=True)
def _no_cache_left_open() -> Iterator[None]:
    yield
    gc.collect()
    assert not _cache_names()


def _cache_names() -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        found += [target] if "stoker-cache" in target else []
    return found


def assert_identical(left: Any, right: Any) -> None:
    """Of the same type, to the bit, however deep."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_identical(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_identical(one, other)
    elif isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        bits = [value.resolve_conj().contiguous().reshape(-1).view(torch.uint8) for value in (left, right)]
        assert torch.equal(*bits)
    elif isinstance(left, np.ndarray | np.generic):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes()
    elif isinstance(left, float):
        assert np.float64(left).tobytes() == np.float64(right).tobytes()
    else:
        assert left == right


# ---- the codec

plain_dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(),
    hnp.datetime64_dtypes(),
    hnp.unicode_string_dtypes(),
    hnp.byte_string_dtypes(),
)
arrays = st.one_of(plain_dtypes, hnp.array_dtypes()).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
)
tensors = st.sampled_from(
    [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64]
).flatmap(
    lambda dtype: st.lists(st.integers(0, 3), max_size=3).map(
        lambda shape: (torch.rand(shape) * 9 - 4).to(dtype)
    )
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(allow_nan=False),
    st.text(st.characters()),
    st.binary(),
    arrays,
    tensors,
    plain_dtypes.flatmap(lambda dtype: hnp.arrays(dtype, (1,)).map(lambda array: array[0])),
)
samples = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=5), st.integers()), inner, max_size=4),
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(samples)
def test_a_sample_comes_back_the_same_to_the_bit(sample: Any) -> None:
    with stoker.cache(Whatever(sample), max_bytes=1 << 20, check=False) as cached:
        assert cached[0] is sample
        assert_identical(cached[0], sample)
        assert cached.stats().hits == 1


def test_views_and_unusual_layouts_come_back_by_value() -> None:
    base = np.arange(24).reshape(4, 6)
    sample = {
        "transposed": base.T,
        "strided": base[::2, ::-1],
        "tensor": torch.from_numpy(base).T[1:],
        "conjugated": torch.tensor([1 + 2j]).conj(),
        "large": [10**5000, -(10**5000)],
        "table": np.array([("a", 1)], [("name", "U3"), ("count", ">i4")])[0],
        "float8": torch.ones(3).to(torch.float8_e4m3fn),
    }
    found = _cache_codec.copy(sample)
    assert_identical(found["large"], sample["large"])
    for name in ("transposed", "strided", "table"):
        assert_identical(found[name].copy(), sample[name].copy())
    for name in ("tensor", "conjugated", "float8"):
        assert_identical(found[name], sample[name])


@pytest.mark.parametrize(
    ("sample", "where"),
    [
        ({"x": [1, {2}]}, r"sample 0: set at \['x'\]\[1\] cannot be cached"),
        ({"x": np.array([None])}, r"ndarray \(object, cpu\) at \['x'\]"),
        ({"x": np.ma.masked_array([1.0], [True])}, r"MaskedArray \(float64, cpu\) at \['x'\]"),
        ({1.5: 2}, "float as a key of the sample itself"),
        (torch.ones(2, requires_grad=True), r"Tensor \(torch.float32, cpu, requires_grad\) at the sample"),
        (torch.ones(2).to_sparse(), "Tensor"),
        (OrderedDict(x=1), "OrderedDict at the sample itself"),
    ],
    ids=["set", "object", "masked", "key", "grad", "sparse", "subclass"],
)
def test_what_cannot_be_told_back_is_refused_by_place(sample: Any, where: str) -> None:
    with (
        stoker.cache(Whatever(sample), max_bytes=1 << 20) as cached,
        pytest.raises(UsageError, match=where + r".*convert it in the dataset"),
    ):
        cached[0]


# ---- hits and misses


def test_each_sample_is_computed_once(slow: Slow) -> None:
    with stoker.cache(slow, max_bytes=1 << 20, check=False) as cached:
        expected = [slow[i] for i in range(NUM_SAMPLES)]
        slow.log.write_text("")
        for _ in range(3):
            for i in np.random.default_rng(0).permutation(NUM_SAMPLES):
                assert_identical(cached[i], expected[i])
        assert sorted(slow.computed()) == list(range(NUM_SAMPLES))
        stats = cached.stats()
        assert (stats.hits, stats.misses, stats.evictions) == (2 * NUM_SAMPLES, NUM_SAMPLES, 0)
        assert (stats.num_samples, stats.num_bytes) == (NUM_SAMPLES, NUM_SAMPLES * PAGE)
        assert len(cached) == NUM_SAMPLES
        assert_identical(cached[-1], expected[-1])
        with pytest.raises(IndexError, match="sample 24 of 24"):
            cached[NUM_SAMPLES]
        assert len(list(iter(cached))) == NUM_SAMPLES


def test_changing_a_sample_in_place_does_not_change_the_cache(slow: Slow) -> None:
    with stoker.cache(slow, max_bytes=1 << 20, check=False) as cached:
        expected = slow[7]
        for _ in range(3):
            sample = cached[7]
            assert_identical(sample, expected)
            sample["x"] *= 3
            sample["z"][:] = -1
            sample["y"] = 99
        first, second = cached[7], cached[7]
        first["x"].zero_()
        assert_identical(second, expected)


def test_misses_are_fetched_together_and_repeated_numbers_are_not_shared(tmp_path: Path) -> None:
    inner = Together(tmp_path / "log")
    with stoker.cache(inner, max_bytes=1 << 20, check=False) as cached:
        cached[3]
        samples = cached.__getitems__([1, 3, 5, 1, -1])
        assert inner.calls == [[3], [1, 5, 23]]
        for number, sample in zip([1, 3, 5, 1, 23], samples, strict=True):
            assert_identical(sample, inner[number])
        samples[0]["x"].zero_()
        assert_identical(samples[3], inner[1])
        stats = cached.stats()
        assert (stats.hits, stats.misses) == (2, 4)


def test_a_dataset_that_gives_too_few_is_told() -> None:
    class Short(Whatever):
        def __getitems__(self, numbers: list[int]) -> list[int]:
            return [0] * (len(numbers) - 1)

    with (
        stoker.cache(Short(0, 5), max_bytes=1 << 20) as cached,
        pytest.raises(UsageError, match="one sample for each number, got 1 for 2"),
    ):
        cached.__getitems__([0, 1])


def test_an_error_of_the_dataset_is_the_users_and_is_not_cached() -> None:
    class Failing(Whatever):
        def __getitem__(self, i: int) -> Any:
            if self.sample is None:
                raise OSError("disk on fire")
            return self.sample

    inner = Failing(None)
    with stoker.cache(inner, max_bytes=1 << 20, check=False) as cached:
        for _ in range(2):
            with pytest.raises(OSError, match="disk on fire"):
                cached[0]
        inner.sample = 5
        assert cached[0] == 5


# ---- the budget


@settings(deadline=None, max_examples=60)
@given(
    num_pages=st.lists(st.integers(1, 3), min_size=1, max_size=8),
    budget=st.integers(1, 9),
    asked=st.lists(st.integers(0, 7), max_size=40),
    victims=st.sampled_from([1, 2, 1024]),
)
def test_it_is_an_exact_lru_by_bytes(
    num_pages: list[int], budget: int, asked: list[int], victims: int
) -> None:
    inner, model, expected = Sized(num_pages), OrderedDict[int, int](), []
    evictions = 0
    before, _cache_arena._NUM_VICTIMS = _cache_arena._NUM_VICTIMS, victims
    try:
        with warnings.catch_warnings(), stoker.cache(inner, max_bytes=budget * PAGE, check=False) as cached:
            warnings.simplefilter("ignore")  # that a sample is larger than the budget
            for number in (i % len(num_pages) for i in asked):
                assert cached[number][0] == number
                if number in model:
                    model.move_to_end(number)
                    continue
                expected.append(number)
                if num_pages[number] > budget:
                    continue
                while sum(model.values()) + num_pages[number] > budget:
                    model.popitem(last=False)
                    evictions += 1
                model[number] = num_pages[number]
                stats = cached.stats()
                assert stats.num_bytes == PAGE * sum(model.values()) <= budget * PAGE
                assert (stats.num_samples, stats.evictions) == (len(model), evictions)
                blocks = os.fstat(cached._arena.index.files.samples).st_blocks
                assert blocks * 512 == stats.num_bytes  # what is evicted is really given back
            assert inner.computed == expected
    finally:
        _cache_arena._NUM_VICTIMS = before


def test_keeping_has_hits_where_a_cycle_evicts_everything() -> None:
    hits = {}
    for when_full in ("evict", "keep"):
        with stoker.cache(Sized([1] * 8), max_bytes=4 * PAGE, when_full=when_full, check=False) as cached:
            for _ in range(3):
                for i in range(8):
                    cached[i]
            hits[when_full] = cached.stats().hits
            assert cached.stats().num_bytes == 4 * PAGE
    assert hits == {"evict": 0, "keep": 8}


def test_a_sample_larger_than_the_budget_is_given_and_told() -> None:
    with stoker.cache(Sized([5, 1]), max_bytes=2 * PAGE, check=False) as cached:
        with pytest.warns(UserWarning, match=r"larger than max_bytes=8192 .* sample 0 has"):
            assert cached[0][0] == 0
        assert cached[1][0] == 1
        assert cached.stats().num_samples == 1


def test_a_smaller_budget_in_the_next_run_is_kept_at_once(tmp_path: Path) -> None:
    for budget, left in ((8, 8), (3, 3), (8, 3)):
        with stoker.cache(
            Sized([1] * 8), max_bytes=budget * PAGE, path=tmp_path / "c", check=False
        ) as cached:
            assert cached.stats().num_samples == left or budget == 8
            if left == 8:
                for i in range(8):
                    cached[i]
    inner = Sized([1] * 8)
    with stoker.cache(inner, max_bytes=8 * PAGE, path=tmp_path / "c", check=False) as cached:
        for i in range(8):
            cached[i]
    assert inner.computed == [0, 1, 2, 3, 4]  # the last ones were used last


def test_a_file_that_has_grown_too_long_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cache_arena, "_LARGEST_FILE", 10 * PAGE)
    with stoker.cache(Sized([1] * 8), max_bytes=4 * PAGE, check=False) as cached:
        for i in [0, 1, 2, 3, 4, 5, 6, 7] * 4:
            assert cached[i][0] == i
            assert cached.stats().num_bytes <= 4 * PAGE
        assert os.fstat(cached._arena.index.files.samples).st_size <= 10 * PAGE


def test_more_memory_than_there_is_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"max_bytes must be at most .* give less, or path="):
        stoker.cache(Sized([1]), max_bytes=1 << 60)
    monkeypatch.setattr(_cache_budget, "available_memory_bytes", lambda: 8 << 20)
    with stoker.cache(Sized([1])) as cached:
        assert cached.max_bytes == 4 << 20
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with stoker.cache(Sized([1])) as cached:  # each rank has its own
        assert cached.max_bytes == 1 << 20


def test_caching_stops_before_memory_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with stoker.cache(Sized([600] * 9), max_bytes=64 << 20, check=False) as cached:
        monkeypatch.setattr(_cache_budget, "available_memory_bytes", lambda: 1 << 20)
        with pytest.warns(UserWarning, match=r"no more samples are cached, 7 of 9 are: .* nearly used up"):
            assert [cached[i][0] for i in range(9)] == list(range(9))
        assert [cached[i][0] for i in range(9)] == list(range(9))
        assert (cached.stats().hits, cached.stats().num_samples) == (7, 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_bytes": 0}, "max_bytes must be at least 1, got 0"),
        ({"when_full": "drop"}, "when_full must be 'evict' or 'keep', got 'drop'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        stoker.cache(Sized([1]), **options)
    with pytest.raises(UsageError, match="got generator"):
        stoker.cache(i for i in range(3))


# ---- processes and threads


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_workers_share_it_and_the_parent_sees_what_they_did(start: str, slow: Slow) -> None:
    with stoker.cache(slow, max_bytes=1 << 20, check=False) as cached:
        for _ in range(2):
            loader: DataLoader[Any] = DataLoader(
                cached,  # type: ignore[arg-type]
                batch_size=4,
                num_workers=2 if start == "fork" else 1,  # a fresh process imports torch anew
                multiprocessing_context=start,
                collate_fn=list,
            )
            for number, sample in enumerate(sample for batch in loader for sample in batch):
                assert_identical(sample, Slow.__getitem__(slow, number))
        computed = slow.computed()
        assert len(computed) == 3 * NUM_SAMPLES  # of which two by this test
        stats = cached.stats()
        assert (stats.hits, stats.misses, stats.num_samples) == (NUM_SAMPLES, NUM_SAMPLES, NUM_SAMPLES)
        cached[0]
        assert cached.stats().hits == NUM_SAMPLES + 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_reads_through_it(workers: int, slow: Slow) -> None:
    with (
        stoker.cache(slow, max_bytes=1 << 20, check=False) as cached,
        stoker.Loader(cached, 5, num_workers=workers) as loader,
    ):
        for _ in range(2):
            seen = []
            for batch in loader:
                assert batch["x"][:, 0, 0].tolist() == batch["y"].tolist() == batch["index"].tolist()
                seen += batch["index"].tolist()
            assert sorted(seen) == list(range(NUM_SAMPLES))
        assert sorted(slow.computed()) == list(range(NUM_SAMPLES))
        assert cached.stats().hits == NUM_SAMPLES


def test_threads_share_it() -> None:
    inner = Sized([1, 2, 3] * 20)
    wrong: list[int] = []
    with stoker.cache(inner, max_bytes=40 * PAGE, check=False) as cached:

        def read(seed: int) -> None:
            numbers = np.random.default_rng(seed).integers(0, 60, 400).tolist()
            wrong.extend(i for i in numbers if set(cached[i].tolist()) != {i})

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = cached.stats()
        assert not wrong
        assert stats.hits + stats.misses == 4 * 400
        assert stats.num_bytes <= 40 * PAGE


def test_a_fork_in_a_thread_that_writes_does_not_hang() -> None:
    with stoker.cache(Sized([1] * 200), max_bytes=100 * PAGE, check=False) as cached:
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                for i in range(200):
                    cached[i]

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(10):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
                    child = multiprocessing.get_context("fork").Process(target=cached.__getitem__, args=(5,))
                    child.start()
                child.join(200)
                assert child.exitcode == 0
        finally:
            stop.set()
            writer.join()


def test_copies_share_it_and_an_orphan_has_its_own(slow: Slow) -> None:
    cached = stoker.cache(slow, max_bytes=1 << 20, check=False)
    cached[1]
    with pickle.loads(pickle.dumps(cached)) as other, copy.copy(cached) as third:
        assert other[1]["y"] == third[1]["y"] == 1
        assert cached.stats() == other.stats() == third.stats()
        assert cached.stats().hits == 2
    text = pickle.dumps(cached)
    cached.close()
    with pickle.loads(text) as orphan:
        assert orphan.stats().num_samples == orphan.stats().hits == 0
        assert orphan[1]["y"] == 1


def test_more_processes_than_counters_still_count(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cache_files, "NUM_COUNTERS", 2)
    caches = [stoker.cache(slow, max_bytes=1 << 20, check=False)]
    caches += [copy.copy(caches[0]) for _ in range(3)]
    for cached in caches:
        cached[0]
    assert (caches[0].stats().hits, caches[0].stats().misses) == (3, 1)
    for cached in caches:
        cached.close()


# ---- from run to run


def test_a_folder_keeps_samples_from_run_to_run(slow: Slow, tmp_path: Path) -> None:
    for run in range(3):
        with stoker.cache(slow, path=tmp_path / "c", version="1", check=False) as cached:
            assert cached.stats().num_samples == (NUM_SAMPLES if run else 0)
            assert cached.stats().hits == 0  # of this run
            for i in range(NUM_SAMPLES):
                assert cached[i]["y"] == i
            assert cached.stats().hits == (NUM_SAMPLES if run else 0)
    assert len(slow.computed()) == NUM_SAMPLES
    assert {file.name for file in (tmp_path / "c").iterdir()} == {
        "stoker-cache.index",
        "stoker-cache.samples",
    }


def test_a_folder_of_another_dataset_is_refused(slow: Slow, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    stoker.cache(slow, path=folder, version="1").close()
    for other, version in ((slow, "2"), (slow, None), (Sized([1] * NUM_SAMPLES), "1"), (Sized([1]), "1")):
        with pytest.raises(
            StoreMismatchError, match=r"caches .*Slow \(24 samples, version '1'\), not .*path"
        ):
            stoker.cache(other, path=folder, version=version)
    (folder / "stoker-cache.index").write_bytes(b"something else")
    with pytest.raises(StoreMismatchError, match=r"is no cache of this version.*delete that folder"):
        stoker.cache(slow, path=folder, version="1")


def test_two_caches_of_one_folder_in_one_process_agree(slow: Slow, tmp_path: Path) -> None:
    with (
        stoker.cache(slow, path=tmp_path / "c", check=False) as one,
        stoker.cache(slow, path=tmp_path / "c", check=False) as other,
    ):
        one[3]
        assert_identical(other[3], one[3])
        other.clear()
        assert one.stats().num_samples == 0
        one[3]
    assert slow.computed() == [3, 3]


def test_samples_of_another_fingerprint_are_computed_anew(tmp_path: Path) -> None:
    inner = Keyed(tmp_path / "log")
    with stoker.cache(inner, path=tmp_path / "c", check=False) as cached:
        for i in range(6):
            cached[i]
        assert cached.key(3) == "file-3"
    inner.changed, inner.offset = {2, 4}, 100
    inner.log.write_text("")
    with stoker.cache(inner, path=tmp_path / "c", check=False) as cached:
        assert [float(cached[i]["x"][0, 0]) for i in range(6)] == [0, 1, 102, 3, 104, 5]
        assert cached.stats().num_bytes == 6 * PAGE
    assert inner.computed() == [2, 4]


def test_a_folder_whose_samples_are_not_the_datasets_is_refused(slow: Slow, tmp_path: Path) -> None:
    with stoker.cache(slow, path=tmp_path / "c") as cached:
        for i in range(6):
            cached[i]
    slow.offset = 1  # the code has changed, the version has not
    with stoker.cache(slow, path=tmp_path / "c") as cached:
        for i in [5, 4, 3, 2, 1, 0, 5]:  # not even to somebody who catches the first errors
            message = rf"sample {i} .* differ at \['x'\]: .* delete that folder"
            with pytest.raises(StoreMismatchError, match=message):
                cached[i]
    with stoker.cache(slow, path=tmp_path / "c", check=False) as cached:
        assert float(cached[5]["x"][0, 0]) == 5


def test_other_rounding_is_no_other_dataset(tmp_path: Path) -> None:
    inner = Whatever({"x": torch.linspace(-1, 1, 50), "y": 3, "n": math.nan, "b": torch.ones(2).bfloat16()})
    with stoker.cache(inner, path=tmp_path / "c") as cached:
        cached[0]
    inner.sample = {**inner.sample, "x": inner.sample["x"] * (1 + 1e-6)}
    with stoker.cache(inner, path=tmp_path / "c") as cached:
        assert cached[0]["y"] == 3
    inner.sample = {**inner.sample, "y": 4}
    with (
        stoker.cache(inner, path=tmp_path / "c") as cached,
        pytest.raises(StoreMismatchError, match=r"\['y'\]"),
    ):
        cached[0]


def test_a_reboot_keeps_the_order_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    files = in_memory(5)
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic_ns", iter(range(10**18, 2 * 10**18)).__next__)
        arena = Arena(files, 5, 4 * PAGE, evicts=True)
        for number in (2, 0, 3, 1):
            arena.store(number, number, b"x")
        arena.load(2, 2)
    twin = Arena(arena.index.address.open() or files, 5, 4 * PAGE, evicts=True)  # the clock began anew
    twin.store(4, 4, b"x")
    assert [number for number in range(5) if twin.load(number, number) is None] == [0]
    twin.index.close()
    arena.index.close()


# ---- the check


@pytest.mark.parametrize("source", ["random", "numpy", "torch"])
def test_a_random_dataset_is_told_and_the_users_numbers_are_left_alone(source: str) -> None:
    random.seed(0)  # as many scripts begin
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]  # noqa: NPY002
    inner = Augmenting(source)
    with stoker.cache(Whatever({"x": 1}, 5), max_bytes=1 << 20) as quiet:
        assert quiet[0] == {"x": 1}
    assert states == (
        random.getstate(),
        np.random.get_state()[1].tolist(),  # type: ignore[index]  # noqa: NPY002
        torch.get_rng_state().tolist(),
    )
    with stoker.cache(inner, max_bytes=1 << 20) as cached:
        with pytest.warns(
            UserWarning, match=r"sample 0 of .*Augmenting .* at \['x'\]\[1\]: the cache freezes"
        ):
            first = cached[0]
        assert_identical(cached[0], first)
    with stoker.cache(inner, max_bytes=1 << 20, check=False) as cached:
        cached[0]


def test_only_the_first_few_samples_of_a_run_are_computed_twice(slow: Slow) -> None:
    with stoker.cache(slow, max_bytes=1 << 20) as cached:
        loader: DataLoader[Any] = DataLoader(cached, batch_size=4, num_workers=2, collate_fn=list)  # type: ignore[arg-type]
        assert len(list(loader)) == len(list(loader)) == NUM_SAMPLES // 4
        assert cached.stats().misses == NUM_SAMPLES
    assert len(slow.computed()) == NUM_SAMPLES + 4


# ---- the rest of the surface


def test_an_empty_dataset_can_be_cached() -> None:
    with stoker.cache(Sized([])) as cached:
        assert len(cached) == len(cached.__getitems__([])) == 0


def test_ranks_that_share_a_folder_check_a_few_samples_each(slow: Slow, tmp_path: Path) -> None:
    with stoker.cache(slow, path=tmp_path / "c") as one, stoker.cache(slow, path=tmp_path / "c") as other:
        for i in range(NUM_SAMPLES):
            assert one[i]["y"] == other[i]["y"] == i
        before = len(slow.computed())
        assert before <= NUM_SAMPLES + 2 * 2 * 4
        for i in range(NUM_SAMPLES):
            assert one[i]["y"] == other[i]["y"] == i
        assert len(slow.computed()) == before


def test_clear_close_and_repr(slow: Slow, tmp_path: Path) -> None:
    cached = stoker.cache(slow, max_bytes=1 << 20, version="3", check=False)
    cached[0], cached[0]
    assert repr(cached) == (
        f"Cached({__name__}.Slow (24 samples, version '3'): 1 in 0.0 MB of 1.0 MB of memory, "
        "1 hits, 1 misses)"
    )
    cached.clear()
    assert cached.stats().num_samples == cached.stats().num_bytes == 0
    cached[0]
    assert slow.computed() == [0, 0]
    cached.close()
    cached.close()
    assert repr(cached).endswith("closed)")
    with pytest.raises(UsageError, match="the cache is closed; make a new one"):
        cached[0]
    with stoker.cache(slow, path=tmp_path / "c") as on_disk:
        assert f"in {tmp_path / 'c'}" in repr(on_disk)


def test_an_unclosed_cache_is_freed_with_its_object(slow: Slow) -> None:
    cached = stoker.cache(slow, max_bytes=1 << 20)
    cached[0]
    assert _cache_names()
    del cached
    gc.collect()
    assert not _cache_names()
