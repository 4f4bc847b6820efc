from pathlib import Path

import h5py
import numpy as np
import pytest

from stoker.errors import SourceError, UsageError
from stoker.store.sources import (
    CsvSource,
    FolderSource,
    GlobSource,
    Hdf5Source,
    open_source,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data/a.npy", np.zeros(3))
    (tmp_path / "t.csv").write_text("file\ndata/a.npy\n")
    with h5py.File(tmp_path / "many.h5", "w") as file:
        file["x"] = np.zeros((5, 2))
    return tmp_path


def test_a_path_opens_as_what_it_is(folder: Path) -> None:
    assert isinstance(open_source(folder / "data"), FolderSource)
    assert isinstance(open_source(str(folder / "data")), FolderSource)
    assert isinstance(open_source(f"{folder}/*/*.npy"), GlobSource)
    assert isinstance(open_source(folder / "t.csv", path_column="file"), CsvSource)
    assert isinstance(open_source(folder / "many.h5", fields=["x"]), Hdf5Source)


def test_a_folder_with_brackets_in_its_name_is_a_folder(folder: Path) -> None:
    (folder / "data").rename(folder / "data[1]")
    source = open_source(folder / "data[1]")
    assert isinstance(source, FolderSource)
    np.testing.assert_array_equal(source[0]["x"], np.zeros(3))


def test_an_object_with_length_and_items_is_a_source_already() -> None:
    samples = [{"x": np.zeros(3)}]
    assert open_source(samples) is samples
    with pytest.raises(UsageError, match="list is a source already; leave out labels"):
        open_source(samples, labels="folder")


def test_an_object_without_them_is_refused() -> None:
    with pytest.raises(UsageError, match="int lacks __len__ and __getitem__"):
        open_source(3)
    with pytest.raises(UsageError, match="set lacks __getitem__"):
        open_source({1, 2})


def test_a_path_that_is_not_there_is_refused_with_the_nearest_name(folder: Path) -> None:
    with pytest.raises(SourceError, match=r"no file or folder .*did you mean 'data'\?"):
        open_source(folder / "dat")
    with pytest.raises(SourceError, match=r"there is no folder .* either"):
        open_source(folder / "no" / "where")


def test_a_single_sample_is_refused_with_the_pattern_that_helps(folder: Path) -> None:
    with pytest.raises(SourceError, match=r"is one; give its folder.*data/\*\.npy"):
        open_source(folder / "data/a.npy")


def test_a_file_of_no_known_kind_is_refused(folder: Path) -> None:
    (folder / "notes.txt").touch()
    with pytest.raises(SourceError, match="is none of these"):
        open_source(folder / "notes.txt")


def test_options_are_those_of_the_source(folder: Path) -> None:
    with pytest.raises(UsageError, match="path_column must name the column"):
        open_source(folder / "t.csv")
    with pytest.raises(UsageError, match=r"no option 'field' for HDF5; did you mean 'fields'\?"):
        open_source(folder / "many.h5", field="x")
    with pytest.raises(UsageError, match=r"no option 'label_colum' .*'label_column'\?"):
        open_source(folder / "t.csv", path_column="file", label_colum="y")
