import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stoker.errors import BadSampleError, SourceError, UsageError
from stoker.store._strings import Strings
from stoker.store.sources import CsvSource

NO_FINGERPRINT = bytes(16)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for name in "abc":
        np.save(tmp_path / f"{name}.npy", np.arange(3))
    path = tmp_path / "table.csv"
    path.write_text(
        "file,label,score,name,patient,site\n"
        'a.npy,1,0.5,sick,p1,"x, y"\n'
        "b.npy,0,,healthy,p2,z\n"
        "c.npy,-3,2,sick,p1,z\n"
    )
    return path


def test_each_row_is_a_sample_named_by_its_path_column(table: Path) -> None:
    source = CsvSource(table, path_column="file")
    assert list(source.keys()) == ["a.npy", "b.npy", "c.npy"]
    assert source.key(1) == "b.npy"
    np.testing.assert_array_equal(source[2]["x"], np.arange(3))
    assert source[0].keys() == {"x"}


def test_integer_labels_stay_integers(table: Path) -> None:
    source = CsvSource(table, path_column="file", label_column="label")
    assert [source[i]["y"] for i in range(3)] == [1, 0, -3]
    assert source[0]["y"].dtype == np.int64
    assert source.classes == {}


def test_numeric_labels_become_floats_and_an_empty_one_is_a_bad_sample(table: Path) -> None:
    source = CsvSource(table, path_column="file", label_column="score")
    assert [source[i]["y"] for i in (0, 2)] == [0.5, 2]
    assert source[2]["y"].dtype == np.float64
    with pytest.raises(BadSampleError, match="it has no label"):
        source[1]


def test_other_labels_become_class_numbers_by_sorted_name(table: Path) -> None:
    source = CsvSource(table, path_column="file", label_column="name")
    assert [source[i]["y"] for i in range(3)] == [1, 0, 1]
    assert source.classes == {"y": ["healthy", "sick"]}


def test_a_row_without_a_class_is_a_bad_sample(table: Path) -> None:
    table.write_text("file,name\na.npy,sick\nb.npy,\n")
    source = CsvSource(table, path_column="file", label_column="name")
    assert source.classes == {"y": ["sick"]}
    with pytest.raises(BadSampleError, match=r"'b.npy': it has no label"):
        source[1]


def test_groups_are_strings_and_columns_have_the_type_of_their_values(table: Path) -> None:
    source = CsvSource(table, path_column="file", group_column="label", columns=["score", "site", "label"])
    sample = source[0]
    assert sample["group"] == "1"
    assert sample["score"] == 0.5
    assert sample["site"] == "x, y"
    assert sample["label"] == 1
    assert isinstance(source._columns["site"], Strings)


@pytest.mark.parametrize("value", ["1_000", "99999999999999999999", "0x10"])
def test_what_python_alone_takes_for_a_64_bit_number_is_text(table: Path, value: str) -> None:
    table.write_text(f"file,id\na.npy,{value}\n")
    assert CsvSource(table, path_column="file", columns=["id"])[0]["id"] == value


def test_a_label_column_without_any_label_is_refused(table: Path) -> None:
    table.write_text("file,name\na.npy,\nb.npy,\n")
    with pytest.raises(SourceError, match=r"column 'name' of .* must hold labels, it is empty"):
        CsvSource(table, path_column="file", label_column="name")


def test_a_missing_column_is_refused_with_the_nearest_one(table: Path) -> None:
    with pytest.raises(SourceError, match=r"no column 'Patient_id' .*did you mean 'patient'\?"):
        CsvSource(table, path_column="file", group_column="Patient_id")
    with pytest.raises(SourceError, match=r"\(columns: file, label, score, name, patient, site\)"):
        CsvSource(table, path_column="zzz")


def test_a_suffix_is_appended_and_a_base_path_put_before(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    other = tmp_path / "elsewhere" / "table.csv"
    other.parent.mkdir()
    other.write_text("basename\na\n")
    source = CsvSource(other, path_column="basename", base_path=tmp_path, suffix=".npy")
    assert source.key(0) == "a"
    np.testing.assert_array_equal(source[0]["x"], np.arange(3))
    assert source.fingerprint(0) != NO_FINGERPRINT


def test_absolute_paths_are_taken_as_they_are(table: Path, tmp_path: Path) -> None:
    table.write_text(f"file\n{tmp_path}/a.npy\nb.npy\n")
    source = CsvSource(table, path_column="file", base_path=tmp_path)
    assert source[0]["x"].shape == source[1]["x"].shape == (3,)
    assert (source.fingerprints() != 0).all()


def test_a_missing_file_is_a_bad_sample_with_a_fingerprint_of_zeros(table: Path) -> None:
    table.write_text("file\na.npy\ngone.npy\nzero\0byte.npy\n")
    source = CsvSource(table, path_column="file")
    with pytest.raises(BadSampleError, match="no such file") as caught:
        source[1]
    assert caught.value.key == "gone.npy"
    with pytest.raises(BadSampleError, match="cannot open"):
        source[2]
    np.testing.assert_array_equal(source.fingerprints()[1:], 0)
    assert source.fingerprint(1) == NO_FINGERPRINT
    assert source.fingerprint(0) != NO_FINGERPRINT


def test_masks_are_named_by_a_column(tmp_path: Path) -> None:
    for name in ["a", "m"]:
        Image.fromarray(np.full((3, 4), 7, np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "t.csv").write_text("image,mask\na.png,m.png\nb.png,gone.png\nm.png,\n")
    source = CsvSource(tmp_path / "t.csv", path_column="image", mask_column="mask")
    np.testing.assert_array_equal(source[0]["mask"], np.full((3, 4), 7))
    with pytest.raises(BadSampleError, match="no such file"):
        source[1]
    with pytest.raises(BadSampleError, match="no mask is named for it"):
        source[2]
    np.testing.assert_array_equal((source.fingerprints()[:2] != 0).all(axis=1), [True, False])


def test_a_byte_order_mark_and_blank_lines_do_no_harm(table: Path) -> None:
    table.write_bytes(b"\xef\xbb\xbffile,name\r\na.npy,\xc3\xa4\r\n\r\n")
    assert CsvSource(table, path_column="file", columns=["name"])[0]["name"] == "ä"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"file,label\na.npy\n", "header's 2 cells, line 2 of .* has 1"),
        (b"file,file\na.npy,b.npy\n", "different names, .* has two 'file'"),
        (b"file\n", "a header but no row"),
        (b"", "no column 'file'"),
        (b"file\n\xff\n", "not a readable UTF-8 CSV file"),
        (b'file\n"a.npy\n', "not a readable UTF-8 CSV file"),
        (b"file\na.npy\nb.npy\na.npy\n", "'a.npy' is in rows 1 and 3"),
        (b"file,x\n,1\n", "column 'file' is empty in row 1"),
        (b"file\na.npy\nb.wav\n", r"one kind, found 1 \.npy, 1 \.wav; write one CSV per kind"),
        (b"file\na\n", "known format .*, found 1 without suffix"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(table: Path, content: bytes, message: str) -> None:
    table.write_bytes(content)
    with pytest.raises(SourceError, match=message):
        CsvSource(table, path_column="file")


def test_a_missing_table_is_refused_with_the_nearest_name(table: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no file .*did you mean 'table.csv'\?"):
        CsvSource(table.with_name("tables.csv"), path_column="file")


def test_columns_must_be_a_list_and_no_other_field(table: Path) -> None:
    with pytest.raises(UsageError, match="must be a list of names, got the string 'site'"):
        CsvSource(table, path_column="file", columns="site")
    table.write_text("file,x\na.npy,1\n")
    with pytest.raises(UsageError, match="'x' is one already"):
        CsvSource(table, path_column="file", columns=["x"])


def test_a_csv_source_pickles(table: Path) -> None:
    source = CsvSource(table, path_column="file", label_column="name", columns=["site"])
    copy = pickle.loads(pickle.dumps(source))
    assert copy[1]["site"] == "z"
    np.testing.assert_array_equal(copy.fingerprints(), source.fingerprints())
    assert repr(copy) == f"CsvSource('{table}': 3 npy files, y one of healthy, sick)"
