"""The layouts of public heart-sound collections, read into one list of recordings.

    circor    training_data.csv + training_data/ID_LOC.{wav,hea,tsv}     murmur, outcome
    cinc      training-*/REFERENCE.csv + NAME.wav (+ REFERENCE-SQI.csv)   y: normal, abnormal
    pascal    set_a.csv, set_b.csv + set_a/, set_b/                       y: normal, murmur, extrasystole
    folders   CLASS/*.wav                                                 y: the folders' names

A label that a recording does not have is -1: it can be pre-trained on, and is not fine-tuned on.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import SourceError, UsageError

UNLABELLED = -1

MURMUR = ("Present", "Absent", "Unknown")
OUTCOME = ("Normal", "Abnormal")
NORMAL_ABNORMAL = ("normal", "abnormal")
PASCAL = ("normal", "murmur", "extrasystole")

# an extra heart sound is no extrasystole: such recordings are pre-trained on only
_PASCAL_LABELS = {"normal": 0, "murmur": 1, "extrastole": 2, "extrasystole": 2}
_AUDIO = {".wav", ".flac"}


@dataclass(frozen=True)
class Entry:
    """One recording of a collection."""

    key: str  # unique, stable
    path: Path
    patient: str  # whose recordings fall into one split together
    labels: Mapping[str, int]  # by field
    states: Path | None = None  # a segmentation made by people
    is_good: bool = True  # by the collection's own judgement of its quality


@dataclass(frozen=True)
class Collection:
    """All recordings that were found, and what stood in the way of others."""

    layout: str
    entries: tuple[Entry, ...]
    classes: Mapping[str, tuple[str, ...]]  # names behind label numbers, by field
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_collection(folder: Path, layout: str = "auto") -> Collection:
    """List the recordings of a collection; nothing is decoded.

    Raises:
        UsageError: the folder does not exist, or is laid out as none of the collections is.
        SourceError: a table lacks a column, or nothing is in the folder.
    """
    if not folder.is_dir():
        raise UsageError(f"the data must be a folder of recordings, and {folder} is none")
    chosen = _find_layout(folder) if layout == "auto" else layout
    if chosen not in _READERS:
        raise UsageError(f"layout must be auto, {', '.join(_READERS)}, got {chosen!r}")
    found = _READERS[chosen](folder)
    if not found.entries:
        why = f": {found.problems[0]}" if found.problems else ""
        raise SourceError(f"no recording could be found in {folder} (layout {chosen}){why}")
    return found


def _find_layout(folder: Path) -> str:
    if (folder / "training_data.csv").is_file():
        return "circor"
    if (folder / "REFERENCE.csv").is_file() or any(folder.glob("training-*/REFERENCE.csv")):
        return "cinc"
    if (folder / "set_a.csv").is_file() or (folder / "set_b.csv").is_file():
        return "pascal"
    if any(path.suffix.lower() in _AUDIO for path in folder.glob("*/*")):
        return "folders"
    raise UsageError(
        f"{folder} holds neither training_data.csv (CirCor), nor REFERENCE.csv (CinC 2016), nor "
        f"set_a.csv (PASCAL), nor folders of wav files"
    )


def _read_circor(folder: Path) -> Collection:
    table = folder / "training_data.csv"
    entries, problems = [], []
    rows = {row["Patient ID"]: row for row in _rows(table, ("Patient ID", "Murmur", "Outcome"))}
    persons = _persons(rows)
    for patient, row in rows.items():
        labels = {
            "murmur": _number(MURMUR, row["Murmur"]),
            "outcome": _number(OUTCOME, row["Outcome"]),
        }
        found = sorted((folder / "training_data").glob(f"{patient}_*.wav"))
        if not found:
            problems.append(f"patient {patient} of {table.name} has no recording")
        for path in found:
            states = path.with_suffix(".tsv")
            entries.append(
                Entry(path.stem, path, persons[patient], labels, states if states.is_file() else None)
            )
    listed = {entry.path for entry in entries}
    problems += [
        f"{path.name} belongs to no patient of {table.name}"
        for path in sorted((folder / "training_data").glob("*.wav"))
        if path not in listed
    ]
    return Collection("circor", tuple(entries), {"murmur": MURMUR, "outcome": OUTCOME}, tuple(problems))


def _persons(rows: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Each number's person: some came twice under two numbers, which "Additional ID" tells."""
    person = {number: number for number in rows}

    def first(number: str) -> str:
        while person[number] != number:
            number = person[number]
        return number

    for number, row in rows.items():
        other = (row.get("Additional ID") or "").partition(".")[0]  # numbers with gaps are read as 50001.0
        if other in person:
            low, high = sorted((first(number), first(other)))
            person[high] = low
    return {number: first(number) for number in rows}


def _read_cinc(folder: Path) -> Collection:
    parts = [folder] if (folder / "REFERENCE.csv").is_file() else sorted(folder.glob("training-*"))
    entries, problems = [], []
    subjects = _subjects(folder)
    for part in parts:
        if not (part / "REFERENCE.csv").is_file():
            problems.append(f"{part.name} has no REFERENCE.csv")
            continue
        quality = _pairs(part / "REFERENCE-SQI.csv", 2)
        for name, label in _pairs(part / "REFERENCE.csv", 1).items():
            path = part / f"{name}.wav"
            if not path.is_file():
                problems.append(f"{name} of {part.name}/REFERENCE.csv has no wav file")
                continue
            number = {"-1": 0, "1": 1}.get(label, UNLABELLED)
            entries.append(
                Entry(
                    f"{part.name}/{name}",
                    path,
                    subjects.get(name, name),
                    {"y": number},
                    is_good=quality.get(name, "1") != "0",
                )
            )
    notes = () if subjects else ("without subjects.csv (record,subject) each recording counts as a patient",)
    return Collection("cinc", tuple(entries), {"y": NORMAL_ABNORMAL}, tuple(problems), notes)


def _subjects(folder: Path) -> dict[str, str]:
    return _pairs(folder / "subjects.csv", 1)


def _read_pascal(folder: Path) -> Collection:
    entries, problems = [], []
    for table in (folder / "set_a.csv", folder / "set_b.csv"):
        if not table.is_file():
            continue
        files = {_tail(path): path for path in sorted((folder / table.stem).glob("*.wav"))}
        for row in _rows(table, ("fname", "label")):
            path = folder / row["fname"]
            if not path.is_file():  # set B's table and files agree in the end of names only
                path = files.get(_tail(path), path)
            if not path.is_file():
                problems.append(f"{row['fname']} of {table.name} does not exist")
                continue
            if row["label"] == "artifact":
                continue
            label = _PASCAL_LABELS.get(row["label"], UNLABELLED)
            person = f"{table.stem}/{_person(path)}"
            entries.append(Entry(f"{table.stem}/{path.stem}", path, person, {"y": label}))
    return Collection("pascal", tuple(entries), {"y": PASCAL}, tuple(problems))


def _tail(path: Path) -> str:
    """Person, time and place, which end the names of set B in its table and on disk alike."""
    return "_".join(path.stem.split("_")[-3:])


def _person(path: Path) -> str:
    """LABEL__PERSON_TIME_PLACE in set B; set A has LABEL__TIME, and no persons."""
    words = path.stem.split("_")
    return words[-3] if len(words) > 3 and words[-3].isdigit() else words[-1]


def _read_folders(folder: Path) -> Collection:
    classes = tuple(sorted({path.parent.name for path in _audio_files(folder)}))
    entries = tuple(
        Entry(
            f"{path.parent.name}/{path.stem}",
            path,
            f"{path.parent.name}/{path.stem}",
            {"y": classes.index(path.parent.name)},
        )
        for path in _audio_files(folder)
    )
    notes = ("each recording counts as a patient",)
    return Collection("folders", entries, {"y": classes}, (), notes)


_READERS: dict[str, Callable[[Path], Collection]] = {
    "circor": _read_circor,
    "cinc": _read_cinc,
    "pascal": _read_pascal,
    "folders": _read_folders,
}
LAYOUTS = tuple(_READERS)


def _audio_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/*") if path.suffix.lower() in _AUDIO)


def _number(names: tuple[str, ...], value: str) -> int:
    return names.index(value) if value in names else UNLABELLED


def _rows(table: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    with table.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            raise SourceError(
                f"{table} must have the columns {', '.join(columns)}; {', '.join(missing)} is missing"
            )
        yield from reader


def _pairs(table: Path, column: int) -> dict[str, str]:
    """The first column of a table without a header to another of its columns; empty without a file."""
    if not table.is_file():
        return {}
    with table.open(newline="", encoding="utf-8-sig") as file:
        return {row[0].strip(): row[column].strip() for row in csv.reader(file) if len(row) > column}
