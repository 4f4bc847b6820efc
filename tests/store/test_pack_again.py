"""Second runs: what is used again, what is not, and what is never touched."""

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import MissingExtraError, SchemaError, StoreMismatchError, UsageError, WorkerDiedError
from stoker.store._identity import transform_entry
from support.datasets import Signals, assert_same, keys


class Interrupted(Signals):
    """Ctrl-C at sample 30."""

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i == 30:
            raise KeyboardInterrupt
        return super().__getitem__(i)


def test_changed_samples_that_were_packed_before_the_interruption_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    stoker.pack(Signals(keys(40)), path, workers=0)
    first, second = Interrupted(keys(40)), Signals(keys(40))
    first.changed = second.changed = dict.fromkeys(keys(40), 1)
    with pytest.raises(KeyboardInterrupt):
        stoker.pack(first, path, workers=0, shard_bytes=2000)
    store = stoker.pack(second, path, workers=0)
    assert sorted(second.reads) == keys(10, start=30)
    for i in range(40):
        assert_same(store[i], second[i])


def test_a_schema_mended_in_the_source_is_packed(tmp_path: Path) -> None:
    samples: list[Any] = [{"x": np.zeros(3)}, *({"x": np.zeros(3, np.float32)} for _ in range(5))]
    with pytest.raises(SchemaError):
        stoker.pack(samples, tmp_path / "a.stoker", workers=0, shard_bytes=1)
    samples[0] = {"x": np.zeros(3, np.float32)}
    assert len(stoker.pack(samples, tmp_path / "a.stoker", workers=0)) == 6


def test_a_forced_run_that_failed_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    value = 1

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        if value == 1 and sample["y"] == 2:
            raise RuntimeError("a bug")
        return {"x": value}

    source: list[Any] = [{"y": y} for y in (0, 1, 0, 1, 2, 0)]
    with pytest.raises(Exception, match="a bug"):
        stoker.pack(source, path, transform=transform, transform_version="1", workers=0, force=True)
    value = 5
    store = stoker.pack(source, path, transform=transform, transform_version="1", workers=0, force=True)
    assert store.column("x").tolist() == [5] * 6


def test_a_store_that_cannot_be_read_survives_a_forced_run_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    stoker.pack(Signals(keys(10)), path, workers=0)
    shards = sorted((path / "shards").iterdir())
    (path / "manifest.json").write_bytes(b'{"schema_version": 2}')
    with pytest.raises(StoreMismatchError, match="upgrade"):
        stoker.pack(Signals(keys(10)), path, workers=0, force=True)
    (path / "manifest.json").write_bytes(b"{")

    class Failing(Signals):
        def __getitem__(self, i: int) -> dict[str, Any]:
            raise OSError("no")

    with pytest.raises(Exception, match="no"):
        stoker.pack(Failing(keys(10)), path, workers=0, force=True)
    assert sorted((path / "shards").iterdir()) == shards


def test_files_that_are_not_ours_are_never_removed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "shards").mkdir(parents=True)
    (mine / "shards" / "measurements.h5").write_text("precious")
    (mine / "index-2024.h5").write_text("precious")
    with pytest.raises(UsageError, match="other files"):
        stoker.pack(Signals(keys(3)), mine, workers=0)
    store = stoker.pack(Signals(keys(3)), tmp_path / "a.stoker", workers=0)
    (store.path / "shards" / "copy.h5").write_text("precious")
    (store.path / "index-2024.h5").write_text("precious")
    for salt in range(3):
        stoker.pack(Signals(keys(5), salt=salt), store.path, workers=0, force=True)
    assert (store.path / "shards" / "copy.h5").exists()
    assert (store.path / "index-2024.h5").exists()
    assert sorted(path.name for path in mine.rglob("*.h5")) == ["index-2024.h5", "measurements.h5"]


def test_a_store_that_is_open_outlives_one_new_pack(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    source = Signals(keys(30))
    stoker.pack(source, path, workers=0, shard_bytes=1000)
    opened = stoker.open(path)
    stoker.pack(Signals(keys(30), salt=1), path, workers=0, force=True)
    for i in range(30):
        assert_same(opened[i], source[i])
    stoker.pack(Signals(keys(30), salt=2), path, workers=0, force=True)
    shards = {shard.digest for shard in opened.manifest.shards}
    assert not shards & {file.stem for file in (path / "shards").iterdir()}


def test_what_a_kill_after_publishing_left_is_removed_by_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    stoker.pack(Signals(keys(10)), path, workers=0)
    garbage = path / "shards" / f"{'0' * 32}.h5"
    garbage.write_bytes(b"left")
    stoker.pack(Signals(keys(10)), path, workers=0)
    assert not garbage.exists()


def test_full_compressed_shards_are_not_taken_for_small_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    zeros: list[Any] = [{"x": np.zeros(20_000), "i": i} for i in range(30)]
    store = stoker.pack(zeros, path, workers=0, compression="zstd", shard_bytes=300_000)
    shards = {shard.digest for shard in store.manifest.shards}
    zeros.append({"x": np.ones(20_000), "i": 30})
    again = stoker.pack(zeros, path, workers=0, compression="zstd", shard_bytes=300_000)
    assert shards < {shard.digest for shard in again.manifest.shards}


def test_a_field_whose_odd_rows_are_gone_has_one_shape(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    source = Signals(["a", "b", "c"])

    class Odd(Signals):
        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"x": np.zeros(5 if self.key(i) == "b" else 3)}

    stoker.pack(Odd(source.names), path, workers=0)
    store = stoker.pack(Odd(["a", "c"]), path, workers=0)
    assert store.fields["x"].shape == (3,)
    assert store[[0, 1]]["x"].shape == (2, 3)
    with store.to_h5py() as file:
        assert len(file["x/offsets"]) == 3
    with stoker.Loader(store, 2) as loader:
        assert next(iter(loader))["x"].shape == (2, 3)


def test_a_bad_sample_among_very_many_ends_the_run_and_nothing_hangs(tmp_path: Path) -> None:
    class Many(Signals):
        def __getitem__(self, i: int) -> dict[str, Any]:
            if i == 45_000:
                raise OSError("bad")
            return {"x": i}

    with pytest.raises(Exception, match="bad"):
        stoker.pack(Many([str(i) for i in range(60_000)]), tmp_path / "a.stoker", workers=2)


def test_a_lock_does_not_stay_with_a_process_that_the_source_started(tmp_path: Path) -> None:
    class Starting(Signals):
        child = 0

        def __getitem__(self, i: int) -> dict[str, Any]:
            if Starting.child == 0:
                Starting.child = os.fork()
                if Starting.child == 0:
                    signal.pause()
            return super().__getitem__(i)

    try:
        stoker.pack(Starting(keys(3)), tmp_path / "a.stoker", workers=0)
        stoker.pack(Signals(keys(4)), tmp_path / "a.stoker", workers=0)
    finally:
        os.kill(Starting.child, signal.SIGKILL)
        os.waitpid(Starting.child, 0)


def test_any_error_survives_its_way_out_of_a_worker(tmp_path: Path) -> None:
    class Missing(Signals):
        def __getitem__(self, i: int) -> dict[str, Any]:
            raise MissingExtraError("this", extra="audio", library="soundfile")

    with pytest.raises(MissingExtraError, match=r"stoker\[audio\]"):
        stoker.pack(Missing(keys(3)), tmp_path / "a.stoker", workers=2)

    class Surrogate(Signals):
        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"text": "\ud800" if i == 1 else "fine"}

    for workers in (0, 2):
        path = tmp_path / f"{workers}.stoker"
        with pytest.raises(SchemaError, match="not Unicode"):
            stoker.pack(Surrogate(keys(3)), path, workers=workers)
        assert len(stoker.pack(Surrogate(keys(3)), path, workers=workers, on_error="skip")) == 2
    assert issubclass(WorkerDiedError, RuntimeError)


@pytest.mark.parametrize(
    ("axes", "why"), [({"x": 5}, "2 axes"), ({"x": -1}, "2 axes"), ({"z": 0}, "there are")]
)
def test_a_channel_axis_that_cannot_be_is_refused(axes: dict[str, int], why: str, tmp_path: Path) -> None:
    for workers in (0, 2):
        with pytest.raises(UsageError, match=why):
            stoker.pack(Signals(keys(3)), tmp_path / "a.stoker", workers=workers, channel_axis=axes)


def test_another_channel_axis_gives_other_statistics_without_packing(tmp_path: Path) -> None:
    source = Signals(keys(5))
    assert len(stoker.pack(source, tmp_path / "a.stoker", workers=0).stats["x"].count) == 2
    source.reads.clear()
    again = stoker.pack(source, tmp_path / "a.stoker", workers=0, channel_axis={"x": None})
    assert len(again.stats["x"].count) == 1
    assert source.reads == []
    assert again.verify().ok


FACTOR = 2


def helper(x: Any) -> Any:
    return x * FACTOR


def scaling(factor: float) -> Callable[[Any], Callable[[Any], Any]]:
    def decorate(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(function)
        def wrapped(sample: Any) -> Any:
            return {"x": function(sample)["x"] * factor}

        return wrapped

    return decorate


def plain(sample: Any) -> Any:
    return {"x": helper(sample["x"])}


def test_the_identity_covers_decorators_constants_and_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert transform_entry(scaling(2)(plain), None) != transform_entry(scaling(3)(plain), None)
    before = transform_entry(plain, None)
    assert transform_entry(plain, None) == before
    monkeypatch.setitem(plain.__globals__, "FACTOR", 3)  # named by the helper that it calls
    assert transform_entry(plain, None) != before


def test_the_same_samples_make_the_same_bytes(tmp_path: Path) -> None:
    first = stoker.pack(Signals(keys(2000)), tmp_path / "a.stoker", workers=0)
    code = (
        "import stoker\n"
        "from support.datasets import Signals, keys\n"
        f"stoker.pack(Signals(keys(2000)), {str(tmp_path / 'b.stoker')!r}, workers=0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    second = stoker.open(tmp_path / "b.stoker")
    assert [s.digest for s in first.manifest.shards] == [s.digest for s in second.manifest.shards]


def test_masked_arrays_are_refused(tmp_path: Path) -> None:
    masked: list[Any] = [{"x": np.ma.masked_array([1, 2], [True, False])}]
    with pytest.raises(SchemaError, match="masked array"):
        stoker.pack(masked, tmp_path / "a.stoker", workers=0)


def test_processes_that_find_everything_packed_end(tmp_path: Path) -> None:
    samples: list[Any] = [{"x": np.full(3, i)} for i in range(50)]
    first = stoker.pack(samples, tmp_path / "a.stoker", workers=3)
    assert stoker.pack(samples, tmp_path / "a.stoker", workers=3).content_digest == first.content_digest
    samples[49] = {"x": np.full(3, -1)}
    last = stoker.pack(samples, tmp_path / "a.stoker", workers=3)[49]
    np.testing.assert_array_equal(last["x"], [-1] * 3)


def test_a_source_with_nothing_of_the_store_is_refused_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    before = stoker.pack(Signals(keys(10)), path, workers=0).content_digest
    with pytest.raises(StoreMismatchError, match="10 samples, and the source has none of them"):
        stoker.pack(Signals(keys(5, start=20)), path, workers=0)
    assert stoker.open(path).content_digest == before
    assert len(stoker.pack(Signals(keys(12, start=9)), path, workers=0)) == 12  # one is enough
    assert len(stoker.pack(Signals(keys(5, start=30)), path, workers=0, force=True)) == 5
