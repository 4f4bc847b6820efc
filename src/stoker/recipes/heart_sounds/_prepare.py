"""Packing: recordings of a collection become a store of cycles, split by patient.

Which cycles a recording has is found first, in parallel, and remembered beside the store, so that an
unchanged recording is neither read nor segmented again.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

import stoker
from stoker.errors import SourceError
from stoker.recipes._raw import in_processes
from stoker.recipes._recipe import Prepared
from stoker.recipes.heart_sounds._cycles import CycleSettings, cut, read_cycles, read_signal
from stoker.recipes.heart_sounds._layouts import Collection, Entry, read_collection
from stoker.recipes.heart_sounds._settings import HeartSoundSettings


@dataclass(frozen=True)
class _Found:
    """The cycles of one recording, or why it could not be read."""

    starts: list[list[int]]
    num_found: int
    refused: dict[str, int]
    error: str | None = None


class CycleSource:
    """A sample a cycle: x [1, length], bounds [5], labels, patient, recording, recording_id, cycle.

    recording_id is a number from 0 on that stands for the recording's key, whatever else is in the store.
    """

    def __init__(self, collection: Collection, found: Sequence[_Found], settings: CycleSettings) -> None:
        self.classes = collection.classes
        self.channel_axis = {"x": 0}
        self._settings = settings
        self._identity = settings.model_dump_json()
        self._samples = [
            (entry, np.array(start, np.int64), number)
            for entry, each in zip(collection.entries, found, strict=True)
            for number, start in enumerate(each.starts)
        ]
        self._last: tuple[Path, NDArray[np.float32]] | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def key(self, i: int) -> str:
        """The recording's and the cycle's number in it."""
        entry, _, number = self._samples[i]
        return f"{entry.key}/{number:04d}"

    def fingerprint(self, i: int) -> bytes:
        """Changes with the file, its segmentation, its labels and the settings."""
        entry, start, _ = self._samples[i]
        facts = (_stamp(entry), start.tolist(), dict(entry.labels), entry.patient, self._identity)
        return xxhash.xxh3_128_digest(json.dumps(facts).encode())

    def __getitem__(self, i: int) -> dict[str, Any]:
        entry, start, number = self._samples[i]
        labels = {name: np.int64(value) for name, value in entry.labels.items()}
        sample = cut(self._signal(entry), start, self._settings.length)
        return {
            **sample,
            **labels,
            "patient": entry.patient,
            "recording": entry.key,
            "recording_id": np.int64(xxhash.xxh3_64_intdigest(entry.key.encode()) >> 1),
            "cycle": np.int32(number),
        }

    def _signal(self, entry: Entry) -> NDArray[np.float32]:
        """The recording, cleaned; cycles of one come one after the other, so the last one is kept."""
        if self._last is None or self._last[0] != entry.path:
            self._last = entry.path, read_signal(entry.path, self._settings)
        return self._last[1]


def prepare(
    data: Path,
    store: Path,
    settings: HeartSoundSettings,
    *,
    force: bool = False,
    workers: int | None = None,
    validate_only: bool = False,
) -> Prepared:
    """Pack the cycles of a collection.

    Recordings that cannot be read, and those without a usable cycle, are left out and listed.

    Raises:
        SourceError: no recording has a usable cycle.
    """
    collection = read_collection(data, settings.layout)
    good = tuple(entry for entry in collection.entries if entry.is_good or not settings.only_good)
    remembered = store.with_name(f"{store.name}.cycles.json")
    found = _find_cycles(good, settings.cycles, remembered, workers, keep=not validate_only)
    counts = _counts(collection, good, found)
    problems = (*collection.problems, *_problems(good, found))
    source = CycleSource(Collection(collection.layout, good, collection.classes, ()), found, settings.cycles)
    if not len(source):
        raise SourceError(
            f"none of the {len(good)} recordings in {data} has a usable cycle; "
            f"{problems[0] if problems else counts}"
        )
    if not validate_only:
        stoker.pack(
            source,
            store,
            splits=settings.splits.model_dump(),
            stratify=next(iter(collection.classes)),
            group="patient",
            force=force,
            workers=workers,
            progress=settings.progress,
        )
    return Prepared(store, len(source), counts, problems)


def _find_cycles(
    entries: Sequence[Entry],
    settings: CycleSettings,
    remembered: Path,
    workers: int | None,
    *,
    keep: bool,
) -> list[_Found]:
    """The cycles of every recording; those of unchanged ones are remembered."""
    known = _read_memory(remembered, settings)
    stamps = [json.dumps(_stamp(entry)) for entry in entries]
    left = [i for i, stamp in enumerate(stamps) if stamp not in known]
    new = in_processes(partial(_look, settings=settings), [entries[i] for i in left], workers=workers)
    known |= {stamps[i]: each for i, each in zip(left, new, strict=True)}
    if keep and left:
        _write_memory(remembered, settings, {stamp: known[stamp] for stamp in stamps})
    return [known[stamp] for stamp in stamps]


def _look(entry: Entry, *, settings: CycleSettings) -> _Found:
    try:
        judged = read_cycles(entry.path, entry.states, settings)
    except (OSError, ValueError, RuntimeError) as error:
        return _Found([], 0, {}, f"{type(error).__name__}: {error}")
    return _Found(judged.starts.tolist(), judged.num_found, judged.refused)


def _stamp(entry: Entry) -> list[Any]:
    """What changes when the recording or its segmentation does."""
    found: list[Any] = [entry.key]
    for path in (entry.path, entry.states):
        if path is not None:
            state = path.stat()
            found += [path.name, state.st_size, state.st_mtime_ns]
    return found


def _read_memory(path: Path, settings: CycleSettings) -> dict[str, _Found]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if data.get("settings") != settings.model_dump(mode="json"):
        return {}
    return {stamp: _Found(**each) for stamp, each in data["found"].items()}


def _write_memory(path: Path, settings: CycleSettings, found: Mapping[str, _Found]) -> None:
    data = {
        "settings": settings.model_dump(mode="json"),
        "found": {stamp: vars(each) for stamp, each in found.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".writing-{os.getpid()}-{path.name}")
    temporary.write_text(json.dumps(data))
    temporary.replace(path)


def _counts(collection: Collection, good: Sequence[Entry], found: Sequence[_Found]) -> dict[str, Any]:
    refused = sum((Counter(each.refused) for each in found), Counter())
    return {
        "layout": collection.layout,
        "recordings": len(collection.entries),
        "patients": len({entry.patient for entry in collection.entries}),
        "recordings of bad quality": len(collection.entries) - len(good),
        "cycles found": sum(each.num_found for each in found),
        "cycles kept": sum(len(each.starts) for each in found),
        "cycles refused": dict(refused),
        **({"note": "; ".join(collection.notes)} if collection.notes else {}),
    }


def _problems(entries: Sequence[Entry], found: Sequence[_Found]) -> list[str]:
    lines = []
    for entry, each in zip(entries, found, strict=True):
        if each.error is not None:
            lines.append(f"{entry.key} cannot be read: {each.error}")
        elif not each.starts:
            lines.append(f"{entry.key} has no usable cycle ({each.num_found} found, {each.refused})")
    return lines
