import multiprocessing
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import pytest

from stoker.errors import BadSampleError, SourceError, UsageError
from stoker.store.sources import Hdf5Source

TABLE = np.dtype([("time", "<f8"), ("emg", "<f4", (4,))])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as file:
        file["rows/x"] = np.arange(60, dtype=np.float32).reshape(20, 3)
        file["rows/y"] = np.arange(20)
        file["rows/name"] = [f"sample {i}" for i in range(20)]
        file["rows/code"] = np.array([f"{i}".encode() for i in range(20)], "S4")
        file["rows/version"] = 3
        ragged = file.create_dataset("rows/ragged", (20,), h5py.vlen_dtype(np.int32))
        for i in range(20):
            ragged[i] = np.arange(i)
        table = np.zeros(20, TABLE)
        table["emg"] = np.arange(20)[:, np.newaxis]
        file["rows/deep/table"] = table
        for name in ["b", "a"]:
            file[f"groups/{name}/x"] = np.full(3, ord(name))
            file[f"groups/{name}/deep/y"] = ord(name)
            file[f"images/{name}"] = np.full((2, 2), ord(name), np.uint8)
    return path


@pytest.fixture
def source(path: Path) -> Iterator[Hdf5Source]:
    with Hdf5Source(path, group="rows") as source:
        yield source


def test_row_i_of_every_dataset_is_sample_i(source: Hdf5Source) -> None:
    assert len(source) == 20
    assert source.key(7) == "7"
    assert list(source.keys()) == [str(i) for i in range(20)]
    sample = source[7]
    assert sample.keys() == {
        "x",
        "y",
        "name",
        "code",
        "ragged",
        "deep.table.time",
        "deep.table.emg",
    }
    np.testing.assert_array_equal(sample["x"], [21, 22, 23])
    assert sample["y"] == 7
    assert sample["name"] == "sample 7"
    assert sample["code"] == "7"
    np.testing.assert_array_equal(sample["ragged"], np.arange(7))
    np.testing.assert_array_equal(sample["deep.table.emg"], np.full(4, 7))
    np.testing.assert_array_equal(source[-1]["y"], 19)


def test_fields_can_be_chosen_in_rows(path: Path) -> None:
    with Hdf5Source(path, group="rows", fields=["deep.table.emg", "y"]) as source:
        assert list(source[0]) == ["deep.table.emg", "y"]
    with pytest.raises(SourceError, match=r"'deep.table.emgs'; did you mean 'deep.table.emg'\?"):
        Hdf5Source(path, group="rows", fields=["deep.table.emgs"])
    with pytest.raises(UsageError, match="fields must be a list"):
        Hdf5Source(path, group="rows", fields="y")


def test_each_group_is_a_sample(path: Path) -> None:
    with Hdf5Source(path, layout="groups", group="groups") as source:
        assert list(source.keys()) == ["a", "b"]
        assert source.key(1) == "b"
        assert source[1].keys() == {"x", "deep.y"}
        np.testing.assert_array_equal(source[1]["x"], np.full(3, ord("b")))
    with Hdf5Source(path, layout="groups", group="groups", fields=["deep.y"]) as source:
        assert source[0] == {"deep.y": ord("a")}


def test_each_dataset_of_a_flat_group_is_a_sample_with_the_field_x(path: Path) -> None:
    with Hdf5Source(path, layout="groups", group="images") as source:
        assert len(source) == 2
        np.testing.assert_array_equal(source[0]["x"], np.full((2, 2), ord("a")))
    with pytest.raises(UsageError, match="the one field 'x'; leave fields out"):
        Hdf5Source(path, layout="groups", group="images", fields=["x"])


def test_datasets_of_different_length_are_refused_with_their_lengths(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["rows/short"] = np.zeros(5)
    with pytest.raises(SourceError, match=r"short \(5,\).*choose with fields="):
        Hdf5Source(path, group="rows")
    assert len(Hdf5Source(path, group="rows", fields=["short"])) == 5


def test_a_file_of_another_layout_is_refused_with_what_it_has(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["scalars/a"] = 1
        file["none/x"] = np.zeros((0, 3))
        file.create_group("empty")
        file["groups/stray"] = 1
    with pytest.raises(SourceError, match=r"must have rows, found a \(\).*layout='groups'"):
        Hdf5Source(path, group="scalars")
    with pytest.raises(SourceError, match=r"at least one row, found x \(0, 3\)"):
        Hdf5Source(path, group="none")
    with pytest.raises(SourceError, match=r"must have rows, found .*version \(\)"):
        Hdf5Source(path, group="rows", fields=["x", "version"])
    with pytest.raises(SourceError, match="it is empty"):
        Hdf5Source(path, layout="groups", group="empty")
    with pytest.raises(SourceError, match="it holds both: a, b, stray"):
        Hdf5Source(path, layout="groups", group="groups")
    with pytest.raises(SourceError, match=r"no group 'rowz'; did you mean 'rows'\?"):
        Hdf5Source(path, group="rowz")
    with pytest.raises(SourceError, match="'rows/x' is a dataset; give the group"):
        Hdf5Source(path, group="rows/x")
    with pytest.raises(UsageError, match="layout must be 'rows' or 'groups', got 'columns'"):
        Hdf5Source(path, layout="columns")  # type: ignore[arg-type]


def test_a_missing_or_broken_file_is_refused(path: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no file .*did you mean 'many.h5'\?"):
        Hdf5Source(path.with_name("mani.h5"))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(SourceError, match="is not a readable HDF5 file"):
        Hdf5Source(path)


def test_a_damaged_chunk_is_a_bad_sample_and_the_others_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "chunks.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (4, 1000), "f4", chunks=(1, 1000), fletcher32=True)
        x[:] = 1
        place = x.id.get_chunk_info(2).byte_offset
    with path.open("r+b") as raw:
        raw.seek(place + 100)
        raw.write(b"damage")
    with Hdf5Source(path) as source:
        assert source[1]["x"].sum() == 1000
        with pytest.raises(BadSampleError, match="not a readable h5 file") as caught:
            source[2]
    assert caught.value.key == "2"


def test_a_link_to_nowhere_is_told_when_the_source_is_built(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["groups/c"] = h5py.SoftLink("/nowhere")
    with pytest.raises(SourceError, match="is not a readable HDF5 file"):
        Hdf5Source(path, layout="groups", group="groups")


def open_descriptors(path: Path) -> int:
    return sum(link.resolve() == path.resolve() for link in Path("/proc/self/fd").iterdir())


def test_the_file_is_opened_by_the_first_read_and_closed_by_close(path: Path) -> None:
    source = Hdf5Source(path, group="rows")
    assert open_descriptors(path) == 0
    _ = source[0]
    assert open_descriptors(path) == 1
    source.close()
    assert open_descriptors(path) == 0
    assert source[1]["y"] == 1  # opens it again
    source.close()
    source.close()


def test_a_pickled_source_opens_its_own_file(source: Hdf5Source) -> None:
    _ = source[0]
    with pickle.loads(pickle.dumps(source)) as copy:
        assert copy._handle._file is None
        assert copy[3]["name"] == "sample 3"
        assert copy.fingerprint(3) == source.fingerprint(3)


def read_many(source: Hdf5Source, seed: int) -> bool:
    order = np.random.default_rng(seed).integers(0, len(source), 300)
    return all(
        source[int(i)]["y"] == i and (source[int(i)]["x"] == [3 * i, 3 * i + 1, 3 * i + 2]).all()
        for i in order
    )


def test_a_forked_child_reads_from_its_own_descriptor_while_the_parent_goes_on(
    source: Hdf5Source, path: Path
) -> None:
    _ = source[0]
    inherited = source._handle._file.id.id
    children = []
    for seed in range(3):
        child = os.fork()
        if child == 0:
            before = source._handle._opened_by
            fine = read_many(source, seed)
            own = source._handle._opened_by == os.getpid() != before
            os._exit(0 if fine and own and open_descriptors(path) == 1 else 1)
        children.append(child)
    assert read_many(source, 99)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert source._handle._file.id.id == inherited
    assert read_many(source, 100)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_of_either_kind_read_the_source(
    source: Hdf5Source, method: Literal["fork", "spawn"]
) -> None:
    _ = source[0]
    with multiprocessing.get_context(method).Pool(2) as pool:
        samples = pool.map(source.__getitem__, range(20), chunksize=3)
        pool.close()
        pool.join()
    assert [int(sample["y"]) for sample in samples] == list(range(20))


def test_any_change_of_the_file_changes_every_fingerprint(source: Hdf5Source, path: Path) -> None:
    before = source.fingerprints()
    os.utime(path, ns=(1, 1))
    assert (source.fingerprints() != before).all()
    path.unlink()
    np.testing.assert_array_equal(source.fingerprints(), np.zeros((20, 2)))
    assert source.fingerprint(3) == bytes(16)


def test_each_choice_of_fields_has_its_own_fingerprints(path: Path) -> None:
    all_fields = Hdf5Source(path, group="rows").fingerprints()
    assert (Hdf5Source(path, group="rows", fields=["y"]).fingerprints() != all_fields).all()


def test_an_hdf5_source_declares_no_layout_and_says_what_it_is(source: Hdf5Source, path: Path) -> None:
    assert source.channel_axis == {}
    assert source.classes == {}
    assert repr(source) == f"Hdf5Source('{path}': 20 samples)"
