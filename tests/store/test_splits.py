from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.errors import UsageError
from stoker.store._splits import assign_splits, split_rule
from support.datasets import Signals, keys

RULE = split_rule({"train": 0.7, "val": 0.2, "test": 0.1}, stratify=None, group=None)


def new(count: int) -> "np.ndarray[tuple[int], np.dtype[np.int16]]":
    return np.full(count, -1, np.int16)


def test_fractions_are_met_about() -> None:
    names = [f"file-{i}" for i in range(20_000)]
    split = assign_splits(RULE, keys=names, labels=None, groups=None, previous=new(20_000))
    shares = np.bincount(split)[:3] / 20_000
    np.testing.assert_allclose(shares, list(RULE.fractions.values()), atol=0.01)


@given(st.sets(st.text(), min_size=1, max_size=40), st.sets(st.text(), max_size=40))
def test_adding_data_never_moves_an_old_sample(old: set[str], added: set[str]) -> None:
    before = sorted(old)
    after = sorted(old | added)
    for labels in (None, "length"):

        def label(names: list[str], labels: str | None = labels) -> list[object] | None:
            return None if labels is None else [len(name) % 3 for name in names]

        first = assign_splits(RULE, keys=before, labels=label(before), groups=None, previous=new(len(before)))
        had = dict(zip(before, first.tolist(), strict=True))
        places = np.array([had.get(name, -1) for name in after], np.int16)
        second = assign_splits(RULE, keys=after, labels=label(after), groups=None, previous=places)
        now = dict(zip(after, second.tolist(), strict=True))
        assert all(now[name] == place for name, place in had.items())


def test_stratified_splits_have_each_class_in_proportion() -> None:
    names = [f"file-{i}" for i in range(1000)]
    labels = ["rare" if i % 20 == 0 else "common" for i in range(1000)]
    split = assign_splits(RULE, keys=names, labels=labels, groups=None, previous=new(1000))
    for kind, count in Counter(labels).items():
        here = split[np.array(labels) == kind]
        expected = count * np.array(list(RULE.fractions.values()))
        np.testing.assert_allclose(np.bincount(here)[:3], expected, atol=1)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.booleans())
def test_a_group_is_never_in_two_splits(groups: list[int], stratified: bool) -> None:
    names = [f"{i}" for i in range(len(groups))]
    labels = [i % 2 for i in range(len(groups))] if stratified else None
    split = assign_splits(RULE, keys=names, labels=labels, groups=groups, previous=new(len(groups)))
    places = {(group, int(place)) for group, place in zip(groups, split, strict=True)}
    assert len(places) == len(set(groups))


def test_what_no_fraction_covers_is_in_no_split_and_stays_there() -> None:
    rule = split_rule({"train": 0.5}, stratify="y", group=None)
    names = [f"{i}" for i in range(100)]
    first = assign_splits(rule, keys=names, labels=[0] * 100, groups=None, previous=new(100))
    assert np.bincount(first, minlength=256)[[0, 255]].tolist() == [50, 50]
    again = assign_splits(rule, keys=names, labels=[0] * 100, groups=None, previous=first.astype(np.int16))
    np.testing.assert_array_equal(first, again)


def test_a_store_keeps_its_splits_as_data_is_added(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    options = {"splits": {"train": 0.6, "val": 0.4}, "stratify": "y", "workers": 0}
    small = stoker.pack(Signals(keys(50)), path, **options)  # type: ignore[arg-type]
    train = {small.split("train").key(i) for i in range(len(small.split("train")))}
    large = stoker.pack(Signals(keys(90)), path, **options)  # type: ignore[arg-type]
    now = {large.split("train").key(i) for i in range(len(large.split("train")))}
    assert train == now & set(keys(50))
    y, split = large.column("y"), large.index.split
    for kind in range(3):
        assert abs((split[y == kind] == 0).mean() - 0.6) < 0.05


def test_other_splits_need_no_new_packing(tmp_path: Path) -> None:
    source = Signals(keys(30))
    stoker.pack(source, tmp_path / "a.stoker", workers=0)
    source.reads.clear()
    store = stoker.pack(source, tmp_path / "a.stoker", workers=0, splits={"a": 0.5, "b": 0.5})
    assert source.reads == []
    assert set(store.splits) == {"a", "b"}


@pytest.mark.parametrize("option", ["stratify", "group"])
def test_a_field_that_is_no_label_is_refused_by_name(option: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{option} needs a scalar or text field, got 'x'"):
        stoker.pack(
            Signals(keys(5)),
            tmp_path / "a.stoker",
            workers=0,
            splits={"train": 0.5},
            **{option: "x"},  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("stratify", [None, "y"])
def test_the_order_in_which_splits_are_named_moves_nobody(stratify: str | None, tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    first = stoker.pack(
        Signals(keys(50)), path, workers=0, splits={"train": 0.8, "val": 0.2}, stratify=stratify
    )
    val = {first.split("val").key(i) for i in range(len(first.split("val")))}
    second = stoker.pack(
        Signals(keys(51)), path, workers=0, splits={"val": 0.2, "train": 0.8}, stratify=stratify
    )
    now = {second.split("val").key(i) for i in range(len(second.split("val")))}
    assert val == now & set(keys(50))


def test_a_run_that_says_nothing_of_splits_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    stoker.pack(Signals(keys(50)), path, workers=0, splits={"train": 0.8, "val": 0.2})
    assert set(stoker.pack(Signals(keys(60)), path, workers=0).splits) == {"train", "val"}


def test_a_sample_that_changes_its_group_moves_nobody_else() -> None:
    rule = split_rule({"train": 0.5, "val": 0.5}, stratify="y", group="g")
    names = [str(i) for i in range(20)]
    groups = [i // 5 for i in range(20)]
    first = assign_splits(rule, keys=names, labels=[0] * 20, groups=groups, previous=new(20))
    moved = next(i for i in range(20) if first[i] != first[0])
    groups[moved] = 0
    second = assign_splits(rule, keys=names, labels=[0] * 20, groups=groups, previous=first.astype(np.int16))
    assert [i for i in range(20) if first[i] != second[i]] == [moved]


def test_a_field_that_is_no_label_is_refused_before_the_packing(tmp_path: Path) -> None:
    source = Signals(keys(500))
    with pytest.raises(UsageError, match="stratify needs a scalar or text field, got 'nothing'"):
        stoker.pack(source, tmp_path / "a.stoker", workers=0, splits={"a": 1.0}, stratify="nothing")
    assert len(source.reads) == 1
