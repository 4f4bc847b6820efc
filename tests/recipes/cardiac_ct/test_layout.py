from pathlib import Path

import numpy as np
import pytest

from stoker.errors import ConfigError, SourceError, UsageError
from stoker.recipes.cardiac_ct._layout import find_studies, join_labels, known_studies, read_table
from stoker.recipes.cardiac_ct._settings import LabelSettings, StudySettings

HEADER = "basename,folder,patient_id,lvef,AS_maybe"


def write(folder: Path, *rows: str, files: tuple[str, ...] = (), header: str = HEADER) -> Path:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    path = folder / "studies.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_missing_and_unmatched_studies_are_named(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a,1A,p1,50,0",
        "b,1B,p2,60,1",
        ",1A,p3,60,1",
        "c,1A,,60,1",
        files=("stanford_1A/a.nii.gz", "stanford_1A/c.nii.gz", "stanford_1A/left.nii"),
    )
    studies, problems = find_studies(tmp_path, read_table(path, "basename"), StudySettings())
    assert [(each.key, each.patient) for each in studies] == [("a", "p1")]
    assert problems == (
        "row 4 of studies.csv has no basename",
        "b of studies.csv has no file stanford_1B/b.nii.gz",
        "c has no patient_id in studies.csv",
        "stanford_1A/left.nii is not in studies.csv",
    )


def test_a_study_that_is_listed_twice_counts_once(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a,1A,p1,50,0",
        "a,1A,p1,50,",
        "b,1A,p2,1,1",
        "b,1B,p2,1,1",
        files=("stanford_1A/a.nii.gz",),
    )
    table = read_table(path, "basename")
    studies, problems = find_studies(tmp_path, table, StudySettings())
    assert [each.key for each in studies] == ["a"]
    assert problems == ("b has 2 rows in studies.csv of different patients or files",)
    assert join_labels(["a"], table, LabelSettings()).values.tolist() == [[50, 0]]


def test_files_can_be_found_by_name_anywhere(tmp_path: Path) -> None:
    header = "VolumeName,Patient,Cardiomegaly"
    file = "train/train_1/train_1_a/train_1_a_1.nii.gz"
    path = write(tmp_path, "train_1_a_1.nii.gz,train_1,1", files=(file,), header=header)
    settings = StudySettings(key="VolumeName", patient="Patient", path="**/{VolumeName}")
    table = read_table(path, "VolumeName")
    studies, problems = find_studies(tmp_path, table, settings)
    assert (studies[0].path, problems) == (tmp_path / file, ())
    labels = join_labels(
        [studies[0].key], table, LabelSettings(regression=(), classification=("Cardiomegaly",))
    )
    assert labels.values.tolist() == [[1]]


def test_only_the_first_studies_are_taken_where_a_limit_is_set(tmp_path: Path) -> None:
    files = ("stanford_1A/a.nii", "stanford_1A/b.nii")
    path = write(tmp_path, "a,1A,p1,50,0", "b,1A,p2,60,1", files=files)
    settings = StudySettings(limit=1, path="stanford_{folder}/{basename}.nii")
    studies, problems = find_studies(tmp_path, read_table(path, "basename"), settings)
    assert ([each.key for each in studies], problems) == (["a"], ())


def test_labels_that_cannot_be_used_are_unknown_and_never_made_up(tmp_path: Path) -> None:
    rows = ("a,1A,p,NaN,", "b,1A,p,high,2", "c,1A,p,40,1", "c,1A,p,41,1", "d,1A,p,55.5,0.0", "e,1A,p,inf,0")
    labels = join_labels(
        ["a", "b", "c", "d", "e", "nobody"],
        read_table(write(tmp_path, *rows), "basename"),
        LabelSettings(),
    )
    unknown = np.nan
    np.testing.assert_array_equal(
        labels.values,
        [[unknown] * 2, [unknown] * 2, [unknown, 1], [55.5, 0], [unknown, 0], [unknown] * 2],
    )
    assert labels.problems == (
        "lvef of b in studies.csv must be a number, got 'high'",
        "AS_maybe of b in studies.csv must be 0 or 1, got '2'",
        "c has several lvef in studies.csv: 40, 41",
        "lvef of e in studies.csv must be a number, got 'inf'",
    )
    assert labels.counts() == {"studies without lvef": 5, "studies without AS_maybe": 3}


def test_a_column_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a,1A,p1,50,0"), "basename")
    with pytest.raises(SourceError, match="must have the column 'AS_definite'; it has basename, folder"):
        join_labels(["a"], table, LabelSettings(classification=("AS_definite",)))
    with pytest.raises(SourceError, match="must have the column 'VolumeName'"):
        read_table(table.path, "VolumeName")
    for wrong in (StudySettings(path="{place}.nii"), StudySettings(patient="person")):
        with pytest.raises(SourceError, match=r"must have the column '(place|person)'.*studies.path"):
            find_studies(tmp_path, table, wrong)
    with pytest.raises(SourceError, match="must have the column 'person'"):
        known_studies(["a"], table, StudySettings(patient="person"))


def test_no_table_and_no_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"name it with studies.csv"):
        read_table(tmp_path / "studies.csv", "basename")
    table = read_table(write(tmp_path, "a,1A,p1,50,0"), "basename")
    with pytest.raises(UsageError, match="must be a folder of NIfTI volumes"):
        find_studies(tmp_path / "nothing", table, StudySettings())


@pytest.mark.parametrize(
    "settings",
    [
        {"volume": {"orientation": "RAR"}},
        {"volume": {"low": 5, "high": 5}},
        {"labels": {"regression": [], "classification": []}},
        {"labels": {"regression": ["lvef"], "classification": ["lvef"]}},
        {"splits": {"train": 0.9}},
        {"model": {"widths": []}},
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object]) -> None:
    from stoker.config import resolve
    from stoker.recipes.cardiac_ct import CardiacSettings

    with pytest.raises(ConfigError):
        resolve(CardiacSettings, settings)
