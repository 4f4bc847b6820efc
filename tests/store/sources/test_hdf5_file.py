from pathlib import Path

import h5py
import numpy as np
import pytest

from stoker.errors import BadSampleError, UsageError
from stoker.store.sources import FolderSource

TABLE = np.dtype([("time", "<f8"), ("emg", "<f4", (16,)), ("pose", [("x", "<i4"), ("y", "<i4")])])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["signal"] = np.arange(12.0).reshape(3, 4)
        file["deep/er/rate"] = np.int16(2000)
        file["who"] = "Ada"
        table = np.zeros(7, TABLE)
        table["emg"] = np.arange(7)[:, np.newaxis]
        table["pose"]["y"] = np.arange(7)
        file["emg2pose/timeseries"] = table
    return tmp_path


def test_each_dataset_is_a_field_and_each_column_of_a_table_too(folder: Path) -> None:
    sample = FolderSource(folder)[0]
    assert sample.keys() == {
        "signal",
        "deep.er.rate",
        "who",
        "emg2pose.timeseries.time",
        "emg2pose.timeseries.emg",
        "emg2pose.timeseries.pose.x",
        "emg2pose.timeseries.pose.y",
    }
    np.testing.assert_array_equal(sample["signal"], np.arange(12.0).reshape(3, 4))
    assert sample["deep.er.rate"] == 2000
    assert sample["deep.er.rate"].dtype == np.int16
    assert sample["who"] == "Ada"
    emg = sample["emg2pose.timeseries.emg"]
    assert emg.shape == (7, 16)
    assert emg.flags.c_contiguous
    np.testing.assert_array_equal(emg[:, 0], np.arange(7))
    np.testing.assert_array_equal(sample["emg2pose.timeseries.pose.y"], np.arange(7))


def test_fields_can_be_chosen(folder: Path) -> None:
    source = FolderSource(folder, fields=["who", "emg2pose.timeseries.emg"])
    assert list(source[0]) == ["who", "emg2pose.timeseries.emg"]


def test_an_unknown_field_is_refused_with_the_nearest_one(folder: Path) -> None:
    with pytest.raises(BadSampleError, match=r"the field 'signals'; did you mean 'signal'\?"):
        FolderSource(folder, fields=["signals"])[0]


def test_fields_must_be_a_list_of_names(folder: Path) -> None:
    with pytest.raises(UsageError, match="fields must be a list of names, got 'signal'"):
        FolderSource(folder, fields="signal")
    with pytest.raises(UsageError, match="got an empty list"):
        FolderSource(folder, fields=[])


def test_what_is_neither_numbers_nor_one_text_is_refused_unless_left_out(folder: Path) -> None:
    with h5py.File(folder / "a.h5", "a") as file:
        file["names"] = ["Ada", "Alan"]
    with pytest.raises(BadSampleError, match=r"'names' holds object \[2\].*leave it out with fields"):
        FolderSource(folder)[0]
    assert FolderSource(folder, fields=["who"])[0] == {"who": "Ada"}


def test_a_dataset_without_data_is_refused(folder: Path) -> None:
    with h5py.File(folder / "a.h5", "a") as file:
        file["nothing"] = h5py.Empty("f4")
    with pytest.raises(BadSampleError, match="dataset 'nothing' holds"):
        FolderSource(folder)[0]


def test_a_file_without_datasets_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_group("empty")
    with pytest.raises(BadSampleError, match="no dataset in it"):
        FolderSource(tmp_path)[0]


def test_two_datasets_of_the_same_dotted_name_are_refused(folder: Path) -> None:
    with h5py.File(folder / "a.h5", "a") as file:
        file["deep.er.rate"] = 1
    with pytest.raises(BadSampleError, match=r"both give the field 'deep.er.rate'"):
        FolderSource(folder)[0]


def test_links_to_other_files_are_not_followed(folder: Path, tmp_path: Path) -> None:
    with h5py.File(folder / "a.h5", "a") as file:
        file["elsewhere"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/secret")
    assert "elsewhere" not in FolderSource(folder)[0]
