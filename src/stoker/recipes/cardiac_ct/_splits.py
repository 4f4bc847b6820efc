"""Which study is for what: by patient, in proportion within each label, and kept once it was said."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SourceError
from stoker.recipes.cardiac_ct._layout import Labels, Study
from stoker.recipes.cardiac_ct._settings import LabelSettings, SplitSettings
from stoker.store._splits import assign_splits, split_rule

SPLITS = ("train", "val", "test")


def deal(
    studies: Sequence[Study],
    labels: Labels,
    columns: LabelSettings,
    settings: SplitSettings,
    kept: Mapping[str, str],
) -> tuple[str, ...]:
    """The split of each study, "" for none. No patient is in two.

    Args:
        studies: with their patients.
        labels: of these studies.
        columns: which of the labels are decisions. The first of these gives the strata; where there is none,
            quarters of the first regression's values do.
        settings: shares, or the table's column that says it all.
        kept: patients that have a split already, which they keep.

    Raises:
        SourceError: the table puts a patient into two splits, or names another split than these three.
    """
    if settings.column is not None:
        return _by_column(studies)
    rule = split_rule({name: getattr(settings, name) for name in SPLITS}, stratify="label", group="patient")
    names = list(rule.fractions)
    places = assign_splits(
        rule,
        keys=[each.key for each in studies],
        labels=_strata(labels, columns),
        groups=[f"{settings.seed} {each.patient}" for each in studies],
        previous=np.array(
            [names.index(kept[each.patient]) if each.patient in kept else -1 for each in studies], np.int16
        ),
    )
    return tuple(names[place] if place < len(names) else "" for place in places)


def read_kept(path: Path) -> dict[str, str]:
    """The split of each patient, as a run before noted it; nothing where there was none."""
    if not path.is_file():
        return {}
    found: dict[str, str] = json.loads(path.read_text())["patients"]
    return found


def write_kept(
    path: Path, studies: Sequence[Study], splits: Sequence[str], before: Mapping[str, str]
) -> None:
    """Note the split of each patient; those of before who are gone now stay noted."""
    now = {study.patient: split for study, split in zip(studies, splits, strict=True) if split}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".writing-{path.name}")
    temporary.write_text(json.dumps({"schema_version": 1, "patients": {**before, **now}}, indent=1) + "\n")
    temporary.replace(path)


def members(splits: Sequence[str], name: str, allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The numbers of the studies of a split (or of "all") that are allowed.

    Raises:
        SourceError: there is none.
    """
    found = np.flatnonzero([name in ("all", split) and ok for split, ok in zip(splits, allowed, strict=True)])
    if not len(found):
        counts = Counter(split for split, ok in zip(splits, allowed, strict=True) if ok)
        there_are = ", ".join(f"{counts[each]} for {each}" for each in SPLITS)
        raise SourceError(
            f"there must be a labelled study for {name!r}, and there are {there_are}; bring more patients, "
            f"or change splits.train, splits.val and splits.test"
        )
    return found


def _strata(labels: Labels, columns: LabelSettings) -> list[str]:
    first = labels.values[:, len(columns.regression) if columns.classification else 0]
    known = first[~np.isnan(first)]
    if not columns.classification and len(known):
        edges = np.quantile(known, [0.25, 0.5, 0.75])
        first = np.where(np.isnan(first), first, np.searchsorted(edges, first))
    return [f"{value:g}" for value in first]


def _by_column(studies: Sequence[Study]) -> tuple[str, ...]:
    names = {"valid": "val", "validation": "val", "training": "train"}
    splits = [names.get(each.split, each.split) for each in studies]
    of_patient: dict[str, str] = {}
    for study, split in zip(studies, splits, strict=True):
        if split not in {*SPLITS, ""}:
            raise SourceError(f"{study.key} has the split {split!r}; there are {', '.join(SPLITS)}")
        if split and of_patient.setdefault(study.patient, split) != split:
            raise SourceError(
                f"patient {study.patient} is in two splits, {split} and {of_patient[study.patient]}: what is "
                f"measured on one of them would be known from the other"
            )
    return tuple(splits)
