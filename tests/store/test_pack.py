import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import (
    BadSampleError,
    SchemaError,
    SourceError,
    StoreMismatchError,
    TransformIdentityError,
    UsageError,
)
from support.datasets import Signals, assert_same, keys


def statistics(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((path / "statistics.json").read_text())
    return report


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_store_holds_the_source_in_its_order(workers: int, tmp_path: Path) -> None:
    source = Signals(keys(40))
    store = stoker.pack(source, tmp_path / "a.stoker", workers=workers, shard_bytes=2000)
    assert len(store) == 40
    for i in range(40):
        assert store.key(i) == source.key(i)
        assert_same(store[i], source[i])


def test_an_unchanged_source_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    stoker.pack(Signals(keys(10)), path, workers=0)
    files = {file: file.stat().st_mtime_ns for file in path.rglob("*.h5")}
    again = Signals(keys(10))
    stoker.pack(again, path, workers=0)
    assert again.reads == []
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*.h5")} == files
    assert statistics(path)["num_kept"] == 10


def test_only_new_and_changed_samples_are_packed_and_gone_ones_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    stoker.pack(Signals(keys(10)), path, workers=0, shard_bytes=500)
    source = Signals([*keys(3, start=20), *keys(8, start=2)])
    source.changed["sample-0005"] = 1
    store = stoker.pack(source, path, workers=0, shard_bytes=500)
    assert sorted(source.reads) == ["sample-0005", *keys(3, start=20)]
    report = statistics(path)
    assert (report["num_packed"], report["num_kept"], report["num_dropped"]) == (4, 7, 2)
    fresh = Signals(source.names)
    fresh.changed = source.changed
    assert [store.key(i) for i in range(len(store))] == source.names
    for i in range(len(store)):
        assert_same(store[i], fresh[i])
    assert store.verify().ok
    assert store.content_digest == stoker.pack(fresh, tmp_path / "b.stoker").content_digest


def test_statistics_after_changes_are_those_of_a_fresh_pack(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    stoker.pack(Signals(keys(30)), path, workers=0, shard_bytes=2000)
    source = Signals(keys(20, start=5))
    source.changed["sample-0007"] = 2
    store = stoker.pack(source, path, workers=0)
    fresh = stoker.pack(source, tmp_path / "b.stoker", workers=0)
    assert store.fields == fresh.fields
    for name, found in store.stats.items():
        expected = fresh.stats[name]
        assert found.count == expected.count
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(found.std, expected.std, rtol=1e-12)
        assert (found.min, found.max) == (expected.min, expected.max)


def test_a_source_without_fingerprints_is_read_but_not_packed_again(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    samples = [{"x": np.arange(5) + i} for i in range(8)]
    calls: list[int] = []

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        calls.append(1)
        return sample

    stoker.pack(samples, path, workers=0, transform=transform, transform_version="1")
    assert len(calls) == 8
    samples[3] = {"x": np.arange(5) - 1}
    store = stoker.pack(samples, path, workers=0, transform=transform, transform_version="1")
    assert len(calls) == 9
    np.testing.assert_array_equal(store.column("x"), [s["x"] for s in samples])


def double(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "x": sample["x"] * 2}


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "x": sample["x"] * self.factor}


def test_the_transform_runs_once_at_packing(tmp_path: Path) -> None:
    source = Signals(keys(5))
    store = stoker.pack(source, tmp_path / "a.stoker", transform=double, workers=0)
    for i in range(5):
        assert_same(store[i], double(source[i]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, double),
        (double, None),
        (Scale(2.0), Scale(3.0)),
        (lambda s: {"x": s["x"] + 1}, lambda s: {"x": s["x"] + 2}),
    ],
)
def test_another_transform_is_refused_with_the_remedy(
    before: Callable[[Any], Any] | None, after: Callable[[Any], Any] | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.stoker"
    stoker.pack(Signals(keys(5)), path, transform=before, workers=0)
    with pytest.raises(StoreMismatchError, match="force"):
        stoker.pack(Signals(keys(5)), path, transform=after, workers=0)
    store = stoker.pack(Signals(keys(5)), path, transform=after, workers=0, force=True)
    assert statistics(path)["num_packed"] == 5
    assert store.verify().ok


def test_another_compression_is_refused_with_the_remedy(tmp_path: Path) -> None:
    stoker.pack(Signals(keys(5)), tmp_path / "a.stoker", workers=0)
    with pytest.raises(StoreMismatchError, match="force"):
        stoker.pack(Signals(keys(5)), tmp_path / "a.stoker", workers=0, compression="gzip")


def test_a_transform_with_a_hidden_parameter_needs_a_version(tmp_path: Path) -> None:
    class Hidden:
        def __init__(self) -> None:
            self.state = iter(range(3))

        def __call__(self, sample: Any) -> Any:
            return sample

    with pytest.raises(TransformIdentityError, match="transform_version"):
        stoker.pack(Signals(keys(2)), tmp_path / "a.stoker", transform=Hidden(), workers=0)


class Faulty(Signals):
    """Every fifth sample cannot be read."""

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i % 5 == 2:
            raise OSError(f"cannot read number {i}")
        return super().__getitem__(i)


@pytest.mark.parametrize("workers", [0, 2])
def test_raise_stops_with_the_name_of_the_bad_sample(workers: int, tmp_path: Path) -> None:
    with pytest.raises(BadSampleError, match=r"sample 'sample-0002': OSError: cannot read number 2"):
        stoker.pack(Faulty(keys(5)), tmp_path / "a.stoker", workers=workers)
    assert not (tmp_path / "a.stoker" / "manifest.json").exists()


@pytest.mark.parametrize("workers", [0, 2])
def test_skip_finishes_and_lists_every_bad_sample(workers: int, tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    store = stoker.pack(Faulty(keys(20)), path, workers=workers, on_error="skip")
    assert len(store) == 16
    bad = [f"sample-{i:04d}" for i in (2, 7, 12, 17)]
    listed = statistics(path)["skipped"]
    assert sorted(entry["key"] for entry in listed) == bad
    assert all("cannot read number" in entry["why"] for entry in listed)
    log = (path / "pack.log").read_text()
    assert all(f"skipped {key}" in log for key in bad)
    mended = stoker.pack(Signals(keys(20)), path, workers=0)
    assert len(mended) == 20
    assert statistics(path)["num_packed"] == 4


def test_a_source_of_only_bad_samples_makes_no_store(tmp_path: Path) -> None:
    class AllBad(Signals):
        def __getitem__(self, i: int) -> dict[str, Any]:
            raise RuntimeError("no")

    with pytest.raises(SourceError, match="none of the 3 samples"):
        stoker.pack(AllBad(keys(3)), tmp_path / "a.stoker", on_error="skip", workers=0)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"x": np.zeros(3)}, "fields are"),
        ({"x": np.zeros(3), "y": 1.5}, "'y' is float64 of 0 axes"),
        ({"x": np.zeros((3, 1)), "y": 1}, "'x' is float64 of 2 axes"),
        ({"x": "text", "y": 1}, "'x' is text"),
    ],
)
def test_a_sample_of_other_fields_is_refused_by_name(
    odd: dict[str, Any], why: str, workers: int, tmp_path: Path
) -> None:
    samples = [{"x": np.zeros(3), "y": 1} for _ in range(9)]
    samples[7] = odd
    with pytest.raises(SchemaError, match=f"000000007.*{why}"):
        stoker.pack(samples, tmp_path / "a.stoker", workers=workers)


def test_two_samples_of_one_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="two samples have the key 'b'"):
        stoker.pack(Signals(["a", "b", "b"]), tmp_path / "a.stoker", workers=0)


def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="empty"):
        stoker.pack([], tmp_path / "a.stoker")
    assert not (tmp_path / "a.stoker").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match="other files"):
        stoker.pack(Signals(keys(2)), tmp_path, workers=0)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"workers": -1}, "workers must be at least 0, got -1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"shard_bytes": 0}, "shard_bytes must be at least 1, got 0"),
        ({"compression": "lzma"}, "compression must be one of none, lz4, zstd, gzip, got 'lzma'"),
        ({"on_error": "ignore"}, "on_error must be 'raise' or 'skip', got 'ignore'"),
        ({"stratify": "y"}, "need splits"),
        ({"splits": {"train": 1.5}}, "fraction in"),
        ({"splits": {"train": 0.8, "val": 0.8}}, "sum to at most 1"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(
    options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=why):
        stoker.pack(Signals(keys(2)), tmp_path / "a.stoker", **options)
    assert not (tmp_path / "a.stoker").exists()


def test_a_sample_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    class Changing(Signals):
        changes = 2

        def __getitem__(self, i: int) -> dict[str, Any]:
            if self.changes:
                self.changes -= 1
                self.changed[self.key(i)] = self.changes + 10
            return super().__getitem__(i)

    source = Changing(keys(3))
    store = stoker.pack(source, tmp_path / "a.stoker", workers=0)
    settled = Signals(keys(3))
    settled.changed = source.changed
    for i in range(3):
        assert_same(store[i], settled[i])


def test_a_sample_that_never_stops_changing_is_a_bad_sample(tmp_path: Path) -> None:
    class Restless(Signals):
        def __getitem__(self, i: int) -> dict[str, Any]:
            self.changed[self.key(i)] = self.changed.get(self.key(i), 0) + 1
            return super().__getitem__(i)

    with pytest.raises(BadSampleError, match="changed during each of 3 attempts"):
        stoker.pack(Restless(keys(3)), tmp_path / "a.stoker", workers=0)


def test_many_small_shards_become_few(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    for count in range(10, 200, 10):
        stoker.pack(Signals(keys(count)), path, workers=0)
    store = stoker.open(path)
    assert len(store.shards) < 12
    assert store.verify().ok
    assert sorted(file.stem for file in (path / "shards").iterdir()) == sorted(
        shard.digest for shard in store.manifest.shards
    )


def test_packing_leaves_nothing_but_the_store(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    store = stoker.pack(Signals(keys(10)), path, workers=2)
    names = {file.name for file in path.iterdir()}
    index = f"index-{store.manifest.index.digest}.h5"
    assert names == {"manifest.json", "statistics.json", "pack.log", "shards", ".lock", index}
    assert list(tmp_path.iterdir()) == [path]
