from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from stoker.errors import SourceError
from stoker.recipes.cardiac_ct._layout import Labels, Study
from stoker.recipes.cardiac_ct._settings import LabelSettings, SplitSettings
from stoker.recipes.cardiac_ct._splits import deal, members, read_kept, write_kept


def make(num_patients: int, *, start: int = 0) -> tuple[list[Study], Labels]:
    """Two studies a patient, every fourth with a stenosis."""
    names = [f"p{number:04d}" for number in range(start, start + num_patients)]
    studies = [Study(f"{name}-{scan}", Path(name), name) for name in names for scan in "ab"]
    values = [[50.0 + i % 7, float(int(each.patient[1:]) % 4 == 0)] for i, each in enumerate(studies)]
    return studies, Labels(("lvef", "AS_maybe"), np.array(values, np.float32))


def test_no_patient_is_in_two_splits_and_every_label_is_dealt_in_proportion() -> None:
    studies, labels = make(400)
    splits = deal(studies, labels, LabelSettings(), SplitSettings(), {})
    of_patient: dict[str, set[str]] = {}
    for study, split in zip(studies, splits, strict=True):
        of_patient.setdefault(study.patient, set()).add(split)
    assert all(len(found) == 1 for found in of_patient.values())
    for label in (0, 1):
        counts = Counter(
            split for split, value in zip(splits, labels.values[:, 1], strict=True) if value == label
        )
        total = sum(counts.values())
        for name, share in (("train", 0.7), ("val", 0.15), ("test", 0.15)):
            assert abs(counts[name] - share * total) <= 2


def test_without_a_decision_the_strata_are_quarters_of_a_number() -> None:
    studies, labels = make(200)
    columns = LabelSettings(classification=())
    only = Labels(("lvef",), labels.values[:, :1])
    splits = np.array(deal(studies, only, columns, SplitSettings(), {}))
    assert abs(only.values[splits == "train"].mean() - only.values[splits == "test"].mean()) < 0.4


def test_patients_keep_their_split_when_others_come_and_labels_change(tmp_path: Path) -> None:
    studies, labels = make(60)
    before = deal(studies, labels, LabelSettings(), SplitSettings(), {})
    path = tmp_path / "run" / "splits.json"
    write_kept(path, studies, before, {})
    more, more_labels = make(90)
    more_labels.values[:, 1] = np.nan
    after = deal(more, more_labels, LabelSettings(), SplitSettings(), read_kept(path))
    assert after[: len(before)] == before
    assert {"train", "val", "test"} == set(after[len(before) :])
    others, other_labels = make(30, start=500)
    write_kept(
        path, others, deal(others, other_labels, LabelSettings(), SplitSettings(), {}), read_kept(path)
    )
    assert len(read_kept(path)) == 90
    assert read_kept(tmp_path / "nothing.json") == {}


def test_another_seed_deals_otherwise_and_the_rest_is_in_no_split() -> None:
    studies, labels = make(100)
    first, second = (
        deal(studies, labels, LabelSettings(), SplitSettings(seed=seed, test=0.05), {}) for seed in (0, 1)
    )
    assert first != second
    assert 10 <= Counter(first)[""] <= 30


def test_the_table_may_say_it() -> None:
    studies = [
        Study("a", Path("a"), "p", "train"),
        Study("b", Path("b"), "q", "valid"),
        Study("c", Path("c"), "r"),
    ]
    labels = Labels(("lvef",), np.zeros((3, 1), np.float32))
    settings = SplitSettings(column="split")
    assert deal(studies, labels, LabelSettings(), settings, {}) == ("train", "val", "")
    with pytest.raises(SourceError, match="patient p is in two splits, test and train"):
        deal([*studies[:1], Study("d", Path("d"), "p", "test")], labels, LabelSettings(), settings, {})
    with pytest.raises(SourceError, match="has the split 'holdout'; there are train"):
        deal([Study("a", Path("a"), "p", "holdout")], labels, LabelSettings(), settings, {})


def test_an_empty_split_is_named() -> None:
    allowed = np.array([True, True, False])
    assert members(("train", "val", "val"), "val", allowed).tolist() == [1]
    assert members(("train", "val", "val"), "all", allowed).tolist() == [0, 1]
    with pytest.raises(SourceError, match="for 'test', and there are 1 for train, 1 for val, 0 for test"):
        members(("train", "val", "val"), "test", allowed)
