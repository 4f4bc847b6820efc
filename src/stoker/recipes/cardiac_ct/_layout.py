"""The system's raw files: a table of studies, and a NIfTI volume for each of them.

studies.csv               basename, folder, patient_id, lvef, AS_maybe, …: a row a study
stanford_FOLDER/BASENAME.nii.gz

The columns, the file names' pattern and a table of labels of its own are settings. Studies are joined to
labels by their key alone: two scans of one patient have labels of their own.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SourceError, UsageError
from stoker.recipes.cardiac_ct._settings import LabelSettings, StudySettings

SUFFIXES = (".nii", ".nii.gz")

_MISSING = {"", "nan", "na", "n/a", "none", "null"}
_ANYWHERE = "**/"


@dataclass(frozen=True)
class Study:
    """One row of the table, and its file."""

    key: str
    path: Path
    patient: str
    split: str = ""  # as the table says, if it does


@dataclass(frozen=True)
class Labels:
    """What is known of the studies: values [N, labels] in float32, NaN where nothing is."""

    names: tuple[str, ...]  # regressions first
    values: NDArray[np.float32]
    problems: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """How many studies lack each label."""
        return {
            f"studies without {name}": int(np.isnan(self.values[:, i]).sum())
            for i, name in enumerate(self.names)
        }


@dataclass(frozen=True)
class Table:
    """Rows by the study's key, in the table's order; `problems` are rows that cannot be used."""

    path: Path
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[Mapping[str, str], ...]]  # a key may have several
    problems: tuple[str, ...]


def read_table(path: Path, key: str) -> Table:
    """Read a table of studies or labels; rows without a key are left out and listed.

    Raises:
        UsageError: there is no such file.
        SourceError: it has no column of that name.
    """
    if not path.is_file():
        raise UsageError(
            f"the table of studies must be a CSV file, and {path} is none; name it with studies.csv"
        )
    rows: dict[str, list[Mapping[str, str]]] = {}
    problems = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, restval="")
        columns = tuple(reader.fieldnames or ())
        need_columns(path, columns, (key,))
        for number, row in enumerate(reader, 2):
            name = row[key].strip()
            if name.lower() in _MISSING:
                problems.append(f"row {number} of {path.name} has no {key}")
            else:
                rows.setdefault(name, []).append(row)
    return Table(path, columns, {name: tuple(each) for name, each in rows.items()}, tuple(problems))


def studies_path(data: Path, settings: StudySettings) -> Path:
    """Where the table is."""
    return settings.csv or data / "studies.csv"


def find_studies(
    data: Path, table: Table, settings: StudySettings, *, split_column: str | None = None
) -> tuple[tuple[Study, ...], tuple[str, ...]]:
    """The studies that have a file, and what is wrong: rows without a file, files without a row.

    A study that the table has several times counts once; its rows must name one patient and one file.

    Raises:
        UsageError: there is no such folder.
        SourceError: no study has a file, or the table lacks a column that a setting names.
    """
    if not data.is_dir():
        raise UsageError(f"the data must be a folder of NIfTI volumes, and {data} is none")
    files = sorted(path for path in data.rglob("*.nii*") if path.name.endswith(SUFFIXES))
    by_name = {path.name: path for path in files}
    studies = []
    named = set()  # by any row, usable or not
    problems = list(table.problems)
    limit = settings.limit or len(table.rows)
    for key in list(table.rows)[:limit]:
        found = {_study(key, row, data, table, settings, split_column) for row in table.rows[key]}
        named |= {each.path for each in found}
        if len(found) > 1:
            problems.append(
                f"{key} has {len(found)} rows in {table.path.name} of different patients or files"
            )
            continue
        study = found.pop()
        if settings.path.startswith(_ANYWHERE):
            study = Study(key, by_name.get(study.path.name, study.path), study.patient, study.split)
            named.add(study.path)
        if not study.patient:
            problems.append(f"{key} has no {settings.patient} in {table.path.name}")
        elif not study.path.is_file():
            problems.append(f"{key} of {table.path.name} has no file {study.path.relative_to(data)}")
        else:
            studies.append(study)
    if settings.limit is None:
        problems += [
            f"{path.relative_to(data)} is not in {table.path.name}" for path in files if path not in named
        ]
    if not studies:
        why = f"; {problems[0]}, for one" if problems else ""
        raise SourceError(f"none of {table.path}'s {len(table.rows)} studies has a volume in {data}{why}")
    return tuple(studies), tuple(problems)


def known_studies(
    keys: Sequence[str], table: Table, settings: StudySettings, *, split_column: str | None = None
) -> tuple[tuple[Study, ...], tuple[str, ...]]:
    """Studies of these keys, of a store, whose files need not be there; and keys that the table lacks."""
    need_columns(table.path, table.columns, [settings.patient, *([split_column] if split_column else [])])
    found = []
    problems = []
    for key in keys:
        patients = {row[settings.patient].strip() for row in table.rows.get(key, ())}
        if len(patients) != 1 or not all(patients):
            problems.append(f"{key} has no row with a {settings.patient} of its own in {table.path.name}")
            continue
        split = table.rows[key][0].get(split_column or "", "").strip()
        found.append(Study(key, Path(key), patients.pop(), split))
    return tuple(found), tuple(problems)


def join_labels(keys: Sequence[str], table: Table, settings: LabelSettings) -> Labels:
    """The labels of these studies. Values that are none, or contradict each other, are unknown and listed.

    Raises:
        SourceError: the table has no such column.
    """
    names = (*settings.regression, *settings.classification)
    need_columns(table.path, table.columns, names)
    values = np.full((len(keys), len(names)), np.nan, np.float32)
    problems = []
    for i, key in enumerate(keys):
        for j, name in enumerate(names):
            given = {row[name].strip() for row in table.rows.get(key, ())}
            texts = sorted(text for text in given if text.lower() not in _MISSING)
            numbers = {_number(text) for text in texts}
            if len(numbers) > 1:
                problems.append(f"{key} has several {name} in {table.path.name}: {', '.join(texts)}")
                continue
            value = numbers.pop() if numbers else np.nan
            if value is None or (j >= len(settings.regression) and value not in {0, 1} and texts):
                wanted = "a number" if j < len(settings.regression) else "0 or 1"
                problems.append(f"{name} of {key} in {table.path.name} must be {wanted}, got {texts[0]!r}")
            else:
                values[i, j] = value
    return Labels(names, values, tuple(problems))


def need_columns(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    """Raise SourceError if the table lacks one of these."""
    missing = [name for name in names if name not in columns]
    if missing:
        raise SourceError(
            f"{path} must have the column {missing[0]!r}; it has {', '.join(columns) or 'none'}"
        )


def _study(
    key: str,
    row: Mapping[str, str],
    data: Path,
    table: Table,
    settings: StudySettings,
    split_column: str | None,
) -> Study:
    try:
        split = row[split_column].strip() if split_column else ""
        name = settings.path.removeprefix(_ANYWHERE).format_map({k: v.strip() for k, v in row.items() if k})
        return Study(key, data / name, row[settings.patient].strip(), split)
    except KeyError as error:
        raise SourceError(
            f"{table.path} must have the column {error}; it has {', '.join(table.columns)}. "
            f"Columns and file names are set by studies.path, studies.patient and splits.column"
        ) from error


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None
