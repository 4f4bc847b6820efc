import multiprocessing as mp
import pickle
import tracemalloc
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils.data import DataLoader

import stoker
from stoker.errors import SourceError, UsageError
from stoker.loader._session_reader import SessionReader
from stoker.loader._session_tracks import MappedTrack, Track
from stoker.loader._sessions import SessionField, Sessions
from stoker.loader._window_plan import (
    Blocks,
    WindowPlan,
    WindowShape,
    join_blocks,
    keyed_draw,
    valid_runs,
    whole_sessions,
)
from stoker.loader._windows import Windows, windows

TABLE = np.dtype([("time", "<f8"), ("joint_angles", "<f8", (3,)), ("emg", "<f4", (4,))])


def make_table(num_steps: int, seed: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    table = np.zeros(num_steps, TABLE)
    table["time"] = np.arange(num_steps) + 10_000 * seed
    table["joint_angles"] = rng.standard_normal((num_steps, 3))
    table["emg"] = rng.standard_normal((num_steps, 4))
    return table


def write(path: Path, table: NDArray[Any], **options: Any) -> None:
    with h5py.File(path, "w") as file:
        group = file.create_group("emg2pose")
        group.create_dataset("timeseries", data=table, **options)
        group.attrs["user"] = f"user-{path.stem}"


@pytest.fixture
def tables() -> list[NDArray[Any]]:
    return [make_table(n, seed) for seed, n in enumerate([310, 40, 257, 0])]


@pytest.fixture
def folder(tmp_path: Path, tables: list[NDArray[Any]]) -> Path:
    for number, table in enumerate(tables):
        write(tmp_path / f"{number}.h5", table)
    return tmp_path


def buffers(view: Windows, count: int) -> dict[str, NDArray[Any]]:
    return {name: np.empty((count, *shape), dtype) for name, (dtype, shape) in view.fields.items()}


# ---------------------------------------------------------------------------------- the plan alone


@given(
    lengths=st.lists(st.integers(0, 60), max_size=8),
    length=st.integers(1, 12),
    stride=st.integers(1, 15),
    padding=st.tuples(st.integers(0, 6), st.integers(0, 6)),
)
def test_a_plan_is_all_windows_that_fit_in_order(
    lengths: list[int], length: int, stride: int, padding: tuple[int, int]
) -> None:
    plan = WindowPlan(whole_sessions(np.array(lengths, np.int64)), WindowShape(length, stride, padding, 0))
    span = sum(padding) + length
    by_hand = [
        (session, begin)
        for session, steps in enumerate(lengths)
        for begin in range(0, steps, stride)
        if begin + span <= steps
    ]
    session, begin = plan.begins(np.arange(len(plan)))
    assert list(zip(session.tolist(), begin.tolist(), strict=True)) == by_hand


@given(mask=st.lists(st.booleans(), max_size=40), cuts=st.sets(st.integers(0, 40)), least=st.integers(1, 5))
def test_valid_runs_are_the_same_however_the_mask_is_cut(
    mask: list[bool], cuts: set[int], least: int
) -> None:
    bad = np.array(mask, bool)
    found = valid_runs(np.split(bad, sorted(cuts)), least)
    padded = np.concatenate([[True], bad, [True]])
    edges = np.flatnonzero(padded[1:] != padded[:-1]).reshape(-1, 2).tolist()
    expected = [(start, stop) for start, stop in edges if stop - start >= least]
    assert list(zip(*[part.tolist() for part in found], strict=True)) == expected


@given(
    masks=st.lists(st.lists(st.booleans(), max_size=50), min_size=1, max_size=4),
    length=st.integers(1, 6),
    stride=st.integers(1, 7),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_windows_lie_in_blocks_and_count_from_their_starts(
    masks: list[list[bool]], length: int, stride: int, padding: tuple[int, int]
) -> None:
    shape = WindowShape(length, stride, padding, 0)
    plan = WindowPlan(join_blocks(valid_runs([np.array(mask, bool)], shape.span) for mask in masks), shape)
    by_hand = []
    for session, mask in enumerate(masks):
        block = 0
        for step, is_bad in enumerate([*mask, True]):
            if is_bad:
                by_hand += [(session, begin) for begin in range(block, step - shape.span + 1, stride)]
                block = step + 1
    session_of, begin_of = plan.begins(np.arange(len(plan)))
    assert list(zip(session_of.tolist(), begin_of.tolist(), strict=True)) == by_hand


@given(
    runs=st.lists(st.lists(st.integers(1, 30), max_size=4), min_size=1, max_size=5),
    chosen=st.lists(st.integers(0, 4), max_size=6),
)
def test_a_subset_of_sessions_keeps_their_blocks_in_the_given_order(
    runs: list[list[int]], chosen: list[int]
) -> None:
    chosen = [number for number in chosen if number < len(runs)]
    cuts = [np.cumsum([0, *sizes]) for sizes in runs]
    blocks = join_blocks((cut[:-1], cut[1:]) for cut in cuts)
    part = blocks.of_sessions(np.array(chosen, np.int64))
    expected = [
        (new, start, stop)
        for new, old in enumerate(chosen)
        for start, stop in zip(cuts[old][:-1].tolist(), cuts[old][1:].tolist(), strict=True)
    ]
    found = zip(part.session.tolist(), part.start.tolist(), part.stop.tolist(), strict=True)
    assert list(found) == expected


@given(
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 1000),
    jitter=st.integers(1, 20),
    steps=st.integers(10, 80),
)
def test_jitter_stays_in_its_block_and_depends_on_seed_epoch_and_number_alone(
    seed: int, epoch: int, jitter: int, steps: int
) -> None:
    blocks = Blocks(np.array([0, 0]), np.array([5, 100]), np.array([5 + steps, 100 + steps]))
    plan = WindowPlan(blocks, WindowShape(4, 3, (2, 1), jitter))
    numbers = np.arange(len(plan))
    _, plain = plan.begins(numbers)
    session, moved = plan.jittered_begins(numbers, seed=seed, epoch=epoch)
    end = np.where(plain < 100, 5 + steps, 100 + steps)
    assert (moved >= plain).all()
    assert (moved - plain <= jitter).all()
    assert (moved + 7 <= end).all()
    shuffled = numbers[::-2]
    again = plan.jittered_begins(shuffled, seed=seed, epoch=epoch)
    np.testing.assert_array_equal(again, (session[::-2], moved[::-2]))


def test_draws_are_uniform_and_differ_between_epochs_seeds_and_numbers() -> None:
    numbers, limits = np.arange(100_000), np.full(100_000, 9)
    draws = {
        (seed, epoch): keyed_draw(limits, numbers, seed=seed, epoch=epoch)
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    for draw in draws.values():
        shares = np.bincount(draw, minlength=10) / len(draw)
        np.testing.assert_allclose(shares, 0.1, atol=0.005)
        assert abs(np.corrcoef(draw[1:], draw[:-1])[0, 1]) < 0.02
    first, *others = draws.values()
    for other in others:
        assert abs((first == other).mean() - 0.1) < 0.01
    assert (keyed_draw(np.zeros(5, np.int64), np.arange(5), seed=3, epoch=0) == 0).all()


class _Counting(Track):
    """A session whose value at each step is its own number and the step's, with no memory."""

    def __init__(self, session: int, num_steps: int) -> None:
        super().__init__((num_steps,), np.dtype(np.int64), 0)
        self._session = session

    def read(self, start: int, stop: int, target: NDArray[Any]) -> None:
        target[...] = np.arange(start, stop) + self._session * 1_000_000


class _MemorySessions(Sessions):
    def __init__(self, lengths: list[int]) -> None:
        super().__init__(0)
        self.lengths = np.array(lengths, np.int64)
        self.fields = {"x": SessionField(np.dtype(np.int64), (), 0)}

    def key(self, number: int) -> str:
        return f"memory-{number}"

    def attributes(self, number: int) -> dict[str, Any]:
        return {"number": number}

    def _open(self, number: int) -> dict[str, Track]:
        return {"x": _Counting(number, int(self.lengths[number]))}


def test_a_billion_windows_cost_memory_by_session_only() -> None:
    tracemalloc.start()
    try:
        sessions = _MemorySessions([100_099] * 10_000)
        plan = WindowPlan(whole_sessions(sessions.lengths), WindowShape(100, 1, (0, 0), 50))
        view = Windows(SessionReader(sessions, ["x"], time_last=False), plan, np.arange(len(sessions)))
        assert len(view) == 1_000_000_000
        numbers = np.random.default_rng(0).integers(0, len(view), 64)
        out = buffers(view, 64)
        view.read_into(numbers, out, seed=0, epoch=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000  # 80 kB an array of one number a session
    session, begin = np.divmod(numbers, 100_000)
    moved = out["x"][:, 0] - (session * 1_000_000 + begin)
    assert (moved >= 0).all()
    assert (moved <= 50).all()
    assert len(np.unique(moved)) > 10
    np.testing.assert_array_equal(out["x"] - out["x"][:, :1], np.tile(np.arange(100), (64, 1)))
    assert view[-1]["x"][-1] == 9_999 * 1_000_000 + 100_098
    assert view.session(999_999_999) == (9_999, 99_999)


# ------------------------------------------------------------------------------------ over files


@pytest.mark.parametrize(("stride", "padding"), [(None, (0, 0)), (1, (0, 0)), (7, (3, 2)), (64, (0, 9))])
def test_windows_equal_slices_by_hand(
    folder: Path, tables: list[NDArray[Any]], stride: int | None, padding: tuple[int, int]
) -> None:
    left, right = padding
    with windows(folder, length=50, stride=stride, padding=padding) as view:
        assert view.num_sessions == 4
        number = 0
        for session, table in enumerate(tables):
            for start in range(left, len(table) - 50 - right + 1, stride or 50):
                assert view.session(number) == (session, start)
                window = view[number]
                assert list(window) == ["time", "joint_angles", "emg"]
                for name, array in window.items():
                    np.testing.assert_array_equal(array, table[start - left : start + 50 + right][name])
                number += 1
        assert len(view) == number


def test_fields_says_what_a_window_is(folder: Path) -> None:
    view = windows(folder, length=30, padding=(2, 3), fields=["emg", "time"])
    assert view.fields == {"emg": (np.dtype("f4"), (35, 4)), "time": (np.dtype("f8"), (35,))}
    turned = windows(folder, length=30, fields=["emg", "time"], channels_first=True)
    assert turned.fields == {"emg": (np.dtype("f4"), (4, 30)), "time": (np.dtype("f8"), (30,))}
    assert repr(turned) == (
        "Windows(19 every 30 steps of 4 sessions, emg: float32[4, 30], time: float64[30])"
    )


def test_channels_first_turns_every_window(folder: Path) -> None:
    plain = windows(folder, length=30, stride=11)
    turned = windows(folder, length=30, stride=11, channels_first=True)
    for number in range(len(plain)):
        for name, array in turned[number].items():
            np.testing.assert_array_equal(array, plain[number][name].T)
            assert array.flags.c_contiguous
    out = buffers(turned, len(turned))
    turned.read_into(np.arange(len(turned)), out, seed=0, epoch=0)
    np.testing.assert_array_equal(out["emg"], [plain[i]["emg"].T for i in range(len(plain))])


def test_threads_read_batches_that_equal_single_windows(folder: Path) -> None:
    view = windows(folder, length=20, stride=3, padding=(1, 1))
    expected = [view[i] for i in range(len(view))]
    fresh = windows(folder, length=20, stride=3, padding=(1, 1))

    def read(seed: int) -> None:
        numbers = np.random.default_rng(seed).integers(0, len(fresh), 33)
        out = buffers(fresh, 40)  # more rows than windows, as a loader's buffers may have
        fresh.read_into(numbers, out, seed=seed, epoch=0)
        for name, batch in out.items():
            np.testing.assert_array_equal(batch[:33], [expected[i][name] for i in numbers])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(64)))


def test_batches_are_jittered_by_key_and_single_windows_are_not(folder: Path) -> None:
    view = windows(folder, length=20, stride=30, jitter=9, fields=["time"])
    still = np.stack([view[i]["time"] for i in range(len(view))])

    def starts(numbers: NDArray[np.int64], seed: int, epoch: int) -> NDArray[Any]:
        out = buffers(view, len(numbers))
        view.read_into(numbers, out, seed=seed, epoch=epoch)
        assert (np.diff(out["time"], axis=1) == 1).all()
        moved: NDArray[Any] = out["time"][:, 0] - still[numbers, 0]
        return moved

    everything = np.arange(len(view))
    moved = starts(everything, 5, 2)
    assert moved.min() >= 0
    assert moved.max() <= 9
    assert len(np.unique(moved)) > 3
    by_one = np.concatenate([starts(everything[i : i + 1], 5, 2) for i in everything[::-1]])
    np.testing.assert_array_equal(by_one[::-1], moved)
    assert (starts(everything, 5, 3) != moved).any()
    assert (starts(everything, 6, 2) != moved).any()


def test_skipped_steps_are_in_no_window_and_blocks_count_from_their_start(
    tmp_path: Path, tables: list[NDArray[Any]]
) -> None:
    tables[0]["joint_angles"][[60, 61, 150]] = 0
    tables[2]["joint_angles"][:37] = 0
    tables[2]["joint_angles"][100, :2] = 0  # not all of them
    for number, table in enumerate(tables):
        write(tmp_path / f"{number}.h5", table)
    options: dict[str, Any] = {"length": 20, "stride": 15, "padding": (5, 0)}
    view = windows(tmp_path, fields=["emg"], skip="all_zero:joint_angles", **options)
    blocks = [(0, 0, 60), (0, 62, 150), (0, 151, 310), (1, 0, 40), (2, 37, 257)]
    expected = [(s, b + 5) for s, start, stop in blocks for b in range(start, stop - 24, 15)]
    assert [view.session(i) for i in range(len(view))] == expected
    assert list(view[0]) == ["emg"]
    np.testing.assert_array_equal(view[2]["emg"], tables[0]["emg"][30:55])

    def bad(fields: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        assert fields["joint_angles"].shape[0] == 3
        return np.asarray(~fields["joint_angles"].any(axis=0))

    by_function = windows(tmp_path, skip=bad, channels_first=True, **options)
    assert [by_function.session(i) for i in range(len(by_function))] == expected


def test_a_long_session_is_skipped_through_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.loader._windows._PIECE_BYTES", 1000)
    table = make_table(5000, 0)
    table["joint_angles"][1000:1010] = 0
    write(tmp_path / "a.h5", table)
    pieces = []

    def bad(fields: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        pieces.append(len(fields["time"]))
        return np.asarray(~fields["joint_angles"].any(axis=1))

    view = windows(tmp_path / "a.h5", length=900, skip=bad)
    assert max(pieces) * 48 <= 1000
    assert sum(pieces) == 5000
    assert [view.session(i)[1] for i in range(len(view))] == [0, 1010, 1910, 2810, 3710]


@pytest.mark.parametrize("given", [np.zeros(3, bool), np.zeros((310, 1), bool), np.zeros(310)])
def test_a_mask_must_be_a_bool_a_step(folder: Path, given: NDArray[Any]) -> None:
    with pytest.raises(UsageError, match="skip must give a bool for each of 310 steps, got"):
        windows(folder, length=5, skip=lambda _: given)


def test_a_subset_restricts_to_sessions_and_numbers_them_anew(folder: Path) -> None:
    view = windows(folder, length=40, stride=10)
    part = view.subset([2, 1])
    assert part.num_sessions == 2
    assert [part.session_key(s) for s in range(2)] == ["2.h5", "1.h5"]
    assert part.attributes(0) == {"user": "user-2"}
    numbers = [i for i in range(len(view)) if view.session(i)[0] == 2]
    assert len(part) == len(numbers) + 1
    for new, old in enumerate(numbers):
        np.testing.assert_array_equal(part[new]["emg"], view[old]["emg"])
    assert part.session(len(part) - 1) == (1, 0)
    assert part.subset([1]).session_key(0) == "1.h5"
    assert len({w.identity for w in (view, part, part.subset([1]), view.subset([2, 1]))}) == 3
    with pytest.raises(IndexError, match="session 4 of 4"):
        view.subset([4])
    with pytest.raises(SourceError, match=r"the longest of 1 sessions, '3\.h5', has 0"):
        view.subset([3])


# ------------------------------------------------------------------------- statistics, life, errors


@pytest.mark.parametrize("channels_first", [False, True])
def test_exact_statistics_equal_numpy_over_all_steps(
    folder: Path, tables: list[NDArray[Any]], channels_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.loader._windows._PIECE_BYTES", 3000)
    stats = windows(folder, length=300, channels_first=channels_first).statistics()
    whole = np.concatenate(tables)
    for name, found in stats.items():
        steps = whole[name].reshape(len(whole), -1).astype(np.float64)
        assert found.count == (len(whole),) * steps.shape[1]
        np.testing.assert_allclose(found.mean, steps.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(found.std, steps.std(axis=0), rtol=1e-9)
        np.testing.assert_array_equal(found.min, steps.min(axis=0))
        np.testing.assert_array_equal(found.max, steps.max(axis=0))


def test_statistics_leave_skipped_steps_out(tmp_path: Path) -> None:
    table = make_table(300, 0)
    table["joint_angles"][100:120] = 0
    write(tmp_path / "a.h5", table)
    with windows(tmp_path, length=50, skip="all_zero:joint_angles") as view:
        stats = view.statistics()["joint_angles"]
    kept = np.delete(table["joint_angles"], slice(100, 120), axis=0)
    np.testing.assert_allclose(stats.mean, kept.mean(axis=0), rtol=1e-9)


def test_many_channels_each_get_their_own_statistics(tmp_path: Path) -> None:
    wide = np.random.default_rng(0).standard_normal((50, 100, 2)).astype(np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["grid"] = wide
    stats = windows(tmp_path / "a.h5", length=10).statistics()["grid"]
    np.testing.assert_allclose(stats.std, wide.reshape(50, 200).std(axis=0, dtype=np.float64), rtol=1e-6)


def test_sampled_statistics_come_from_windows_spread_over_all(folder: Path) -> None:
    view = windows(folder, length=10, stride=5, fields=["emg"])
    drawn = view.statistics(num_windows=30, seed=1)["emg"]
    assert drawn.count == (300,) * 4
    assert view.statistics(num_windows=30, seed=1)["emg"] == drawn
    assert view.statistics(num_windows=30, seed=2)["emg"] != drawn
    everything = view.statistics(num_windows=10**9)["emg"]
    all_windows = np.concatenate([view[i]["emg"] for i in range(len(view))]).astype(np.float64)
    np.testing.assert_allclose(everything.mean, all_windows.mean(axis=0), rtol=1e-9)
    with pytest.raises(UsageError, match="num_windows must be a whole number of at least 1, got 0"):
        view.statistics(num_windows=0)


def test_a_pickle_reads_the_same_windows(folder: Path) -> None:
    view = windows(folder, length=20, skip=lambda f: f["time"] < 0).subset([0, 2])
    copy = pickle.loads(pickle.dumps(view))
    assert len(copy) == len(view)
    np.testing.assert_array_equal(copy[5]["emg"], view[5]["emg"])
    assert copy.identity == view.identity


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_it_is_a_dataset_for_worker_processes(folder: Path, method: str) -> None:
    view = windows(folder, length=20, fields=["emg"])
    view[0]
    loader: DataLoader[Any] = DataLoader(
        view,  # type: ignore[arg-type]  # a Dataset in all but name
        batch_size=4,
        num_workers=2 if method == "fork" else 1,  # a fresh process imports torch anew
        multiprocessing_context=mp.get_context(method),
    )
    found = np.concatenate([batch["emg"].numpy() for batch in loader])
    np.testing.assert_array_equal(found, [view[i]["emg"] for i in range(len(view))])


def test_closing_is_not_the_end(folder: Path) -> None:
    with windows(folder, length=20) as view:
        before = view[3]
    np.testing.assert_array_equal(view[3]["emg"], before["emg"])
    view.close()


def test_numbers_count_from_the_end_and_end_there(folder: Path) -> None:
    view = windows(folder, length=20)
    np.testing.assert_array_equal(view[-1]["emg"], view[len(view) - 1]["emg"])
    assert view.key(1) == "0.h5[20:40]"
    for number in (len(view), -len(view) - 1):
        with pytest.raises(IndexError, match=f"window {number} of {len(view)}"):
            view[number]
    with pytest.raises(IndexError, match=f"window {len(view)} of"):
        view.read_into(np.array([0, len(view)]), buffers(view, 2), seed=0, epoch=0)


def test_buffers_must_fit(folder: Path) -> None:
    view = windows(folder, length=20, fields=["emg"])
    numbers = np.arange(4)
    for wrong in ({"emg": np.empty((3, 20, 4), "f4")}, {"emg": np.empty((4, 20, 4))}, {"x": np.empty(4)}):
        with pytest.raises(UsageError, match="a buffer for 4 windows must fit one of"):
            view.read_into(numbers, wrong, seed=0, epoch=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length must be a whole number of at least 1, got 0"),
        ({"length": 2.5}, r"length must be a whole number of at least 1, got 2\.5"),
        ({"length": 5, "stride": 0}, "stride must be a whole number of at least 1, got 0"),
        ({"length": 5, "padding": (-1, 0)}, "padding must be a whole number of at least 0, got -1"),
        ({"length": 5, "padding": 3}, r"padding must be two numbers of steps, \(left, right\), got 3"),
        ({"length": 5, "jitter": -1}, "jitter must be a whole number of at least 0, got -1"),
        ({"length": 5, "chunk_cache_bytes": -1}, "chunk_cache_bytes must be"),
        ({"length": 5, "skip": "zeros"}, "skip must be a function or 'all_zero:FIELD', got 'zeros'"),
        ({"length": 5, "fields": "emg"}, "fields must be a list of names"),
        ({"length": 5, "time_axis": {"emh": 0}}, "'emh' is none; did you mean 'emg'?"),
    ],
)
def test_what_cannot_be_is_said(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        windows(folder, **options)


def test_a_tested_field_must_be_there(folder: Path) -> None:
    for fields in (None, ["time"]):
        with pytest.raises(SourceError, match="there is no field 'joint_angle'; did you mean 'joint_angles'"):
            windows(folder, length=5, skip="all_zero:joint_angle", fields=fields)


def test_no_window_at_all_names_the_longest_session(folder: Path) -> None:
    assert len(windows(folder, length=310)) == 1
    steps = r"takes 311 valid steps in a row \(1 \+ 310 \+ 0\)"
    with pytest.raises(SourceError, match=steps + r", and the longest of 4 sessions, '0\.h5', has 310"):
        windows(folder, length=310, padding=(1, 0))


def test_what_is_neither_store_nor_files_is_refused() -> None:
    with pytest.raises(UsageError, match="windows are cut from a store or from HDF5 files, got 5"):
        windows(5, length=5)  # type: ignore[arg-type]


def test_mapped_tracks_copy_as_they_are() -> None:
    array = np.arange(24.0).reshape(2, 12)
    target = np.empty((2, 3))
    MappedTrack(array, 1).read(4, 7, target)
    np.testing.assert_array_equal(target, array[:, 4:7])


def test_a_store_that_is_named_by_its_path_is_opened(tmp_path: Path) -> None:
    stoker.pack([{"x": np.arange(50.0)}], tmp_path / "a.stoker", workers=0)
    view = windows(tmp_path / "a.stoker", length=20, stride=10)
    np.testing.assert_array_equal(view[1]["x"], np.arange(10.0, 30.0))
