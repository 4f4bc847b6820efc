"""Every way in which a session can lie in a file or store gives the same windows."""

import multiprocessing as mp
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from numpy.typing import NDArray

import stoker
from stoker.errors import SourceError, UsageError
from stoker.loader._chunk_cache import ChunkCache
from stoker.loader._session_tracks import (
    ChunkedTrack,
    FlatTrack,
    HandleTrack,
    MappedTrack,
    Track,
    as_rows,
)
from stoker.loader._windows import Windows, windows

TABLE = np.dtype([("time", "<f8"), ("joint_angles", "<f8", (20,)), ("emg", "<f4", (16,))])
LENGTHS = [900, 1203, 200]
Write = Callable[[Any, NDArray[Any]], None]


def make_tables() -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    tables = []
    for length in LENGTHS:
        table = np.zeros(length, TABLE)
        table["time"] = np.arange(length) / 2000
        table["joint_angles"] = rng.standard_normal((length, 20))
        table["emg"] = rng.integers(-99, 99, (length, 16))
        tables.append(table)
    return tables


TABLES = make_tables()


def as_table(**options: Any) -> Write:
    def write(file: Any, table: NDArray[Any]) -> None:
        file.create_dataset("emg2pose/timeseries", data=table, **options)

    return write


def as_datasets(**options: Any) -> Write:
    def write(file: Any, table: NDArray[Any]) -> None:
        for name in TABLE.names or ():
            chosen = dict(options)
            if "chunks" in chosen:
                chosen["chunks"] = tuple(chosen["chunks"][: table[name].ndim])
            file.create_dataset(f"session/{name}", data=np.ascontiguousarray(table[name]), **chosen)

    return write


def as_big_endian(file: Any, table: NDArray[Any]) -> None:
    for name in TABLE.names or ():
        swapped = table[name].dtype.newbyteorder(">")
        file.create_dataset(f"session/{name}", data=table[name].astype(swapped))


def as_nested_table(file: Any, table: NDArray[Any]) -> None:
    nested = np.zeros(len(table), [("note", "S5"), ("signals", TABLE)])
    nested["signals"] = table
    file.create_dataset("timeseries", data=nested, chunks=(100,), compression="gzip")


def as_table_with_texts(file: Any, table: NDArray[Any]) -> None:
    columns = [("note", h5py.string_dtype()), *((name, TABLE[name]) for name in TABLE.names or ())]
    mixed = np.zeros(len(table), np.dtype(columns))
    mixed["note"] = "fine"
    for name in TABLE.names or ():
        mixed[name] = table[name]
    file.create_dataset("timeseries", data=mixed)


def as_growing_table(file: Any, table: NDArray[Any]) -> None:
    """The last rows were never written: their chunks do not exist."""
    dataset = file.create_dataset("timeseries", (0,), TABLE, maxshape=(None,), chunks=(64,))
    dataset.resize((len(table),))
    written = np.flatnonzero(table["time"] < 0.3)[-1] + 1
    dataset[:written] = table[:written]
    table[written:] = np.zeros((), TABLE)


DIRECT: dict[str, tuple[Write, type[Track]]] = {
    "table": (as_table(), MappedTrack),
    "table, chunked": (as_table(chunks=(128,)), ChunkedTrack),
    "table, gzip": (as_table(chunks=(128,), compression="gzip"), ChunkedTrack),
    "table, shuffled gzip": (as_table(chunks=(77,), compression="gzip", shuffle=True), ChunkedTrack),
    "table, nested": (as_nested_table, ChunkedTrack),
    "datasets": (as_datasets(), MappedTrack),
    "datasets, big-endian": (as_big_endian, MappedTrack),
    "datasets, tiled": (as_datasets(chunks=(100, 3)), ChunkedTrack),
    "datasets, tiled gzip": (as_datasets(chunks=(50, 7), compression="gzip", shuffle=True), ChunkedTrack),
    "datasets, zstd": (as_datasets(chunks=(64, 16), **hdf5plugin.Zstd()), ChunkedTrack),
    "datasets, lz4": (as_datasets(chunks=(64, 16), **hdf5plugin.LZ4()), ChunkedTrack),
    "datasets, checksummed": (as_datasets(chunks=(64, 16), fletcher32=True), HandleTrack),
    "datasets, blosc": (as_datasets(chunks=(64, 16), **hdf5plugin.Blosc()), HandleTrack),
    "table with texts": (as_table_with_texts, HandleTrack),
    "table, growing": (as_growing_table, HandleTrack),
}


def write_all(folder: Path, write: Write, userblock: int = 0) -> list[NDArray[Any]]:
    tables = [table.copy() for table in TABLES]
    for number, table in enumerate(tables):
        with h5py.File(folder / f"{number}.h5", "w", userblock_size=userblock) as file:
            write(file, table)
    return tables


def assert_windows(view: Windows, tables: list[NDArray[Any]]) -> None:
    out = {name: np.empty((len(view), *shape), dtype) for name, (dtype, shape) in view.fields.items()}
    view.read_into(np.arange(len(view)), out, seed=0, epoch=0)
    assert len(view) == sum((len(table) - 150) // 70 + 1 for table in tables)
    for number in range(len(view)):
        session, start = view.session(number)
        for name, window in view[number].items():
            expected = tables[session][name][start : start + 150]
            np.testing.assert_array_equal(window, expected)
            np.testing.assert_array_equal(out[name][number], expected)
            assert window.dtype == TABLE[name].base


@pytest.mark.parametrize("userblock", [0, 512])
@pytest.mark.parametrize("layout", DIRECT)
def test_files_of_every_layout_give_the_same_windows(layout: str, userblock: int, tmp_path: Path) -> None:
    write, kind = DIRECT[layout]
    tables = write_all(tmp_path, write, userblock)
    options: dict[str, Any] = {"length": 150, "stride": 70, "chunk_cache_bytes": 100_000}
    with windows(tmp_path, **options) as view:
        assert sorted(view.fields) == sorted(TABLE.names or ())
        assert {type(track) for track in view._reader.sessions.tracks(0).values()} == {kind}
        assert_windows(view, tables)
    with windows(tmp_path, fields=["emg"], **options) as view:
        assert_windows(view, tables)


class _Packable:
    def __init__(self, *, transposed: bool, equal: bool) -> None:
        self.transposed = transposed
        self.tables = [table[:200] for table in TABLES] if equal else TABLES

    def __len__(self) -> int:
        return len(self.tables)

    def __getitem__(self, i: int) -> dict[str, Any]:
        table = self.tables[i]
        turn = np.transpose if self.transposed else np.asarray
        fields = {name: np.ascontiguousarray(turn(table[name])) for name in TABLE.names or ()}
        return {**fields, "user": f"user-{i}", "hand": i % 2}


@pytest.mark.parametrize("equal", [True, False], ids=["one length", "many lengths"])
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("transposed", [True, False], ids=["[C, T]", "[T, C]"])
def test_stores_give_the_same_windows(
    compression: Any, transposed: bool, equal: bool, tmp_path: Path
) -> None:
    source = _Packable(transposed=transposed, equal=equal)
    store = stoker.pack(source, tmp_path / "a.stoker", compression=compression, workers=0)
    view = windows(store, length=150, stride=70, time_axis=None if transposed else 0)
    kinds = {type(track) for track in view._reader.sessions.tracks(0).values()}
    assert (FlatTrack in kinds) == (compression != "none")
    if transposed:
        assert view.fields["emg"] == (np.dtype("f4"), (16, 150))
        out = {name: np.empty((len(view), *shape), dtype) for name, (dtype, shape) in view.fields.items()}
        view.read_into(np.arange(len(view)), out, seed=0, epoch=0)
        for number in range(len(view)):
            session, start = view.session(number)
            for name, window in view[number].items():
                expected = source.tables[session][name][start : start + 150].T
                np.testing.assert_array_equal(window, expected)
                np.testing.assert_array_equal(out[name][number], expected)
    else:
        assert_windows(view, source.tables)
        turned = windows(store, length=150, stride=70, time_axis=0, channels_first=True)
        np.testing.assert_array_equal(turned[2]["emg"], view[2]["emg"].T)
    assert view.attributes(1) == {"user": "user-1", "hand": 1}
    assert view.session_key(2) == store.key(2)


def test_a_large_compressed_field_of_one_shape_is_read_chunk_by_chunk(tmp_path: Path) -> None:
    sessions = np.random.default_rng(0).standard_normal((5, 8, 3000))
    source = [{"x": session} for session in sessions]
    store = stoker.pack(source, tmp_path / "a.stoker", compression="zstd", workers=0)
    view = windows(store.select([4, 2]), length=1000)
    assert isinstance(view._reader.sessions.tracks(0)["x"], FlatTrack)
    np.testing.assert_array_equal(view[5]["x"], sessions[2, :, 2000:])
    copy = pickle.loads(pickle.dumps(view))
    np.testing.assert_array_equal(copy[1]["x"], sessions[4, :, 1000:2000])


def test_threads_share_few_cached_chunks(tmp_path: Path) -> None:
    tables = write_all(tmp_path, as_table(chunks=(50,), compression="gzip"))
    view = windows(tmp_path, length=120, stride=1, fields=["emg", "time"], chunk_cache_bytes=60_000)

    def read(seed: int) -> None:
        numbers = np.random.default_rng(seed).integers(0, len(view), 20)
        out = {name: np.empty((20, *shape), dtype) for name, (dtype, shape) in view.fields.items()}
        view.read_into(numbers, out, seed=0, epoch=0)
        for place, number in enumerate(numbers.tolist()):
            session, start = view.session(number)
            np.testing.assert_array_equal(out["emg"][place], tables[session]["emg"][start : start + 120])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(40)))
    assert 0 < view._reader.sessions._cache.num_bytes <= 60_000
    view.close()
    assert view._reader.sessions._cache.num_bytes == 0


def test_the_cache_decodes_again_only_what_it_let_go_of() -> None:
    cache, decoded = ChunkCache(250), []

    def get(key: str) -> None:
        def decode() -> NDArray[Any]:
            decoded.append(key)
            return np.zeros(100, np.uint8)

        cache.get(key, decode)

    for key in "abacab":
        get(key)
    assert "".join(decoded) == "abcb"  # c pushed b out, as a was used after it
    cache.get("large", lambda: np.zeros(1000, np.uint8))
    assert cache.num_bytes == 1000


@pytest.mark.parametrize("layout", ["table", "table, gzip", "datasets, checksummed"])
def test_a_forked_child_reads_on_though_the_parent_was_in_the_middle(layout: str, tmp_path: Path) -> None:
    write_all(tmp_path, DIRECT[layout][0])
    with windows(tmp_path, length=100, fields=["emg"]) as view:
        expected = view[4]["emg"]
        sessions = view._reader.sessions

        def read() -> None:
            np.testing.assert_array_equal(view[4]["emg"], expected)
            np.testing.assert_array_equal(view[0]["emg"], TABLES[0]["emg"][:100])
            view.close()

        with sessions.lock, sessions._cache.lock, sessions._handles.lock:  # as another thread may
            child = mp.get_context("fork").Process(target=read)
            child.start()
        child.join(200)
        assert child.exitcode == 0
        read()


def test_many_sessions_stay_below_the_limits_of_files_and_mappings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.loader._sessions._MAX_OPENED", 2)
    monkeypatch.setattr("stoker.loader._session_tracks._MAX_HANDLES", 2)
    tables = write_all(tmp_path, as_datasets(chunks=(64, 16), fletcher32=True))
    with windows([tmp_path / f"{n}.h5" for n in (0, 1, 2, 0)], length=150, stride=70) as view:
        assert_windows(view, [*tables, tables[0]])
        assert len(view._reader.sessions._opened) == 2
        assert len(view._reader.sessions._handles._handles) == 2


# ------------------------------------------------------------------------- finding files and fields


def test_a_path_a_list_a_pattern_and_a_folder_name_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    write_all(tmp_path / "deep", as_table())
    (tmp_path / "deep" / "2.h5").rename(tmp_path / "last.hdf5")
    (tmp_path / "notes.txt").write_text("")
    paths = [tmp_path / "deep" / "0.h5", tmp_path / "deep" / "1.h5", tmp_path / "last.hdf5"]
    listed = windows(paths, length=150)
    assert [listed.session_key(s) for s in range(3)] == [str(path) for path in paths]
    folder = windows(str(tmp_path), length=150)
    assert [folder.session_key(s) for s in range(3)] == ["deep/0.h5", "deep/1.h5", "last.hdf5"]
    pattern = windows(f"{tmp_path}/deep/*.h5", length=150)
    assert [pattern.session_key(s) for s in range(2)] == ["0.h5", "1.h5"]
    single = windows(paths[2], length=150)
    assert [single.session_key(s) for s in range(single.num_sessions)] == ["last.hdf5"]
    np.testing.assert_array_equal(listed[-1]["emg"], single[0]["emg"])


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    write_all(tmp_path, as_table())
    with pytest.raises(SourceError, match=r"there is no file '.*/0\.hdf'; did you mean '0\.h5'\?"):
        windows(tmp_path / "0.hdf", length=5)
    with pytest.raises(SourceError, match=r"at least one HDF5 file, '.*/x\*\.h5' has none"):
        windows(f"{tmp_path}/x*.h5", length=5)
    with pytest.raises(SourceError, match="there must be at least one session, got none"):
        windows([], length=5)
    (tmp_path / "bad.h5").write_text("nothing of the kind")
    with pytest.raises(SourceError, match=r"bad\.h5' is not a readable HDF5 file"):
        windows(tmp_path, length=5)
    with pytest.raises(SourceError, match="there is no field 'emh'; did you mean 'emg'"):
        windows(tmp_path / "0.h5", length=5, fields=["emh"])
    with pytest.raises(SourceError, match="there is no group 'emg2posse'; did you mean 'emg2pose'"):
        windows(tmp_path / "0.h5", length=5, group="emg2posse")
    with pytest.raises(SourceError, match="no dataset of numbers 'timeserie'; did you mean 'timeseries'"):
        windows(tmp_path / "0.h5", length=5, dataset="timeserie")


def test_fields_are_named_by_as_much_of_their_path_as_is_needed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for side in ("left", "right"):
            file[f"{side}/table"] = TABLES[0]
        file["left/note"] = "text"
        file["left/rate"] = 2000.0
    path = tmp_path / "a.h5"
    with pytest.raises(
        SourceError, match=r"'emg' could be any of left\.table\.emg, right\.table\.emg; write"
    ):
        windows(path, length=5, fields=["emg"])
    with pytest.raises(
        SourceError, match="one table, or datasets of equal length, can be found without help"
    ):
        windows(path, length=5)
    chosen = windows(path, length=5, fields=["left/table/emg", "right.table.time"])
    assert list(chosen[0]) == ["left/table/emg", "right.table.time"]
    assert list(windows(path, length=5, group="left").fields) == list(TABLE.names or ())
    assert list(windows(path, length=5, dataset="right/table", fields=["emg"]).fields) == ["emg"]
    assert list(windows(path, length=5, group="left", dataset="table").fields) == list(TABLE.names or ())


def test_time_may_be_any_axis_of_a_dataset(tmp_path: Path) -> None:
    layer = np.random.default_rng(0).standard_normal((3, 1, 500))
    with h5py.File(tmp_path / "layer.mat", "w", userblock_size=512) as file:
        file["simulation_data/x_ref"] = layer[0]
        file["simulation_data/y_ref"] = layer[1]
        file["other/stack"] = np.moveaxis(layer, 2, 1)
    path = tmp_path / "layer.mat"
    view = windows(path, length=200, stride=5, group="simulation_data", time_axis=-1)
    assert len(view) == 61
    np.testing.assert_array_equal(view[7]["y_ref"], layer[1, :, 35:235])
    by_name = windows(path, length=50, time_axis={"stack": 1, "x_ref": 1}, fields=["stack", "x_ref"])
    np.testing.assert_array_equal(by_name[2]["stack"], np.moveaxis(layer, 2, 1)[:, 100:150])
    with pytest.raises(
        SourceError, match=r"must be equally long; .* they have x_ref 1, stack 3 steps; choose"
    ):
        windows(path, length=1, fields=["x_ref", "stack"])
    for axis in (2, "1"):
        with pytest.raises(UsageError, match=f"time_axis must be one of the 2 axes of 'x_ref', got {axis!r}"):
            windows(path, length=1, fields=["x_ref"], time_axis=axis)  # type: ignore[arg-type]


def test_flags_and_complex_values_are_mapped_too(tmp_path: Path) -> None:
    flags = np.arange(40) % 3 == 0
    waves = np.exp(1j * np.arange(80.0)).reshape(40, 2)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["flags"], file["waves"] = flags, waves
    view = windows(tmp_path / "a.h5", length=10)
    assert {type(track) for track in view._reader.sessions.tracks(0).values()} == {MappedTrack}
    np.testing.assert_array_equal(view[2]["flags"], flags[20:30])
    np.testing.assert_array_equal(view[3]["waves"], waves[30:])
    assert list(view.statistics()) == ["flags"]


def test_sessions_must_be_alike(tmp_path: Path) -> None:
    write_all(tmp_path, as_datasets())
    with h5py.File(tmp_path / "3.h5", "w") as file:
        file["session/emg"] = TABLES[0]["emg"].astype("f8")
    with pytest.raises(
        SourceError, match=r"in '.*3\.h5' emg is float64 \[16\] a step.*before it was float32"
    ):
        windows(tmp_path, length=5, fields=["emg"])


def test_attributes_come_from_every_group_above_the_data(tmp_path: Path) -> None:
    write_all(tmp_path, as_table())
    with h5py.File(tmp_path / "0.h5", "a") as file:
        file.attrs["site"] = b"here"
        file["emg2pose"].attrs.update({"user": "u1", "sample_rate": 2000.0, "site": "there"})
        file["emg2pose"].attrs["names"] = ["a", "b"]
        file["emg2pose"].attrs["gains"] = np.array([1, 2])
        file["emg2pose"].attrs["nothing"] = h5py.Empty("f4")
    found = windows(tmp_path, length=5).attributes(0)
    gains = found.pop("gains")
    assert gains.tolist() == [1, 2]
    expected = {"user": "u1", "sample_rate": 2000.0, "site": "there", "names": ["a", "b"], "nothing": None}
    assert found == expected
    assert type(found["sample_rate"]) is float


def test_a_store_says_which_of_its_fields_cannot_be_cut(tmp_path: Path) -> None:
    source = [{"x": np.zeros((2, n)), "y": np.zeros(n + 1), "label": n} for n in (50, 60)]
    store = stoker.pack(source, tmp_path / "a.stoker", workers=0)
    with pytest.raises(
        SourceError, match=r"equally long; session '0+' has x \[2, 50\], y \[51\]; choose with"
    ):
        windows(store, length=5)
    with pytest.raises(SourceError, match=r"no array field 'label' \(there are: x, y\)"):
        windows(store, length=5, fields=["label"])
    with pytest.raises(SourceError, match=r"all sessions must be alike but for time; session '0+1' has x"):
        windows(store, length=1, fields=["x"], time_axis=0)
    with pytest.raises(UsageError, match="group and dataset are for HDF5 files"):
        windows(store, length=5, group="x")
    with pytest.raises(SourceError, match=r"at least one session, this view of .* has none"):
        windows(store.select([]), length=5)
    labels = stoker.pack([{"label": 1}], tmp_path / "b.stoker", workers=0)
    with pytest.raises(SourceError, match="have no arrays"):
        windows(labels, length=5)


# --------------------------------------------------------------------------- files that are not right


def test_a_truncated_file_raises_and_does_not_kill(tmp_path: Path) -> None:
    write_all(tmp_path, as_table(chunks=(128,), compression="gzip"))
    path = tmp_path / "1.h5"
    path.write_bytes(path.read_bytes()[:-20_000])
    with pytest.raises(SourceError, match=r"1\.h5' is not a readable HDF5 file"):
        windows(tmp_path, length=5)


def test_a_damaged_chunk_raises_with_its_place(tmp_path: Path) -> None:
    write_all(tmp_path, as_table(chunks=(128,), compression="gzip", shuffle=True))
    path = tmp_path / "0.h5"
    with h5py.File(path) as file:
        places: list[Any] = []
        file["emg2pose/timeseries"].id.chunk_iter(places.append)
    content = bytearray(path.read_bytes())
    content[places[0].byte_offset : places[0].byte_offset + 50] = bytes(50)
    path.write_bytes(content)
    view = windows(path, length=100)
    with pytest.raises(SourceError, match=r"0\.h5: /emg2pose/timeseries is damaged: a chunk does not decode"):
        view[0]
    np.testing.assert_array_equal(view[2]["emg"], TABLES[0]["emg"][200:300])


def test_a_chunk_that_no_filter_could_shrink_is_read_as_it_is(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (4000, 2), np.uint8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("x", noise.shape, np.uint8, chunks=(1000, 2), compression="gzip")
        for start in range(0, 4000, 1000):
            dataset.id.write_direct_chunk((start, 0), noise[start : start + 1000].tobytes(), filter_mask=1)
    view = windows(tmp_path / "a.h5", length=700)
    np.testing.assert_array_equal(view[1]["x"], noise[700:1400])
    assert view._reader.sessions._cache.num_bytes == 0


def test_a_file_that_changed_is_noticed_when_it_is_opened_again(tmp_path: Path) -> None:
    write_all(tmp_path, as_table())
    view = windows(tmp_path, length=100)
    pickled = pickle.dumps(view)
    with h5py.File(tmp_path / "0.h5", "w") as file:
        as_table()(file, TABLES[0][:-1])
    with pytest.raises(SourceError, match=r"0\.h5' was changed since its windows were counted; make"):
        pickle.loads(pickled)[0]


def test_rows_are_opaque_only_where_steps_have_no_gaps() -> None:
    table = TABLES[0]
    rows = as_rows(table["emg"], 1)
    assert rows is not None
    assert rows.dtype == np.dtype("V64")
    assert rows.strides == (TABLE.itemsize,)
    assert rows[5].tobytes() == table["emg"][5].tobytes()
    assert as_rows(table["emg"][:, ::2], 1) is None
    assert as_rows(np.zeros((5, 0)), 1) is None
