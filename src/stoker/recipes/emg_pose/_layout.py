"""The emg2pose layout: a folder of sessions in HDF5, and a table that says which is for what.

metadata.csv   session, user, stage, side, filename (without suffix), split, generalization, …
NAME.hdf5      group emg2pose, dataset timeseries: a row a time step
               time <f8, joint_angles <f4 or <f8 [20], emg <f4 [16]
               attributes: filename, session, stage, user, side, sample_rate, num_channels, start, end

Angles that are all zero mark steps at which inverse kinematics failed.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py

from stoker.errors import SourceError, UsageError

GROUP, DATASET = "emg2pose", "timeseries"
SAMPLE_RATE = 2000
NUM_CHANNELS, NUM_JOINTS = 16, 20
FAILED = "all_zero:joint_angles"  # what `stoker.windows` is to skip

_FINGERS = ("THUMB", "INDEX", "MIDDLE", "RING", "PINKY")
_THUMB = ("CMC_FE", "CMC_AA", "MCP_FE", "IP_FE")
_OTHERS = ("MCP_AA", "MCP_FE", "PIP_FE", "DIP_FE")
JOINTS = tuple(
    f"{finger}_{joint}" for finger in _FINGERS for joint in (_THUMB if finger == "THUMB" else _OTHERS)
)
FINGERS = {finger.lower(): tuple(range(4 * i, 4 * i + 4)) for i, finger in enumerate(_FINGERS)}
GROUPS = {
    "proximal": (0, 1, 4, 5, 8, 9, 12, 13, 16, 17),
    "mid": (2, 6, 10, 14, 18),
    "distal": (3, 7, 11, 15, 19),
}
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Session:
    """One file."""

    path: Path
    user: str
    session: str
    side: str
    split: str
    generalization: str = ""  # of held-out sessions: to a new user, a new stage or both


def read_sessions(folder: Path) -> tuple[tuple[Session, ...], tuple[str, ...]]:
    """The sessions of a folder by its table, and what is wrong with others.

    Without a table, users are dealt to splits by their names: the same user always to the same split.

    Raises:
        UsageError: there is no such folder.
        SourceError: it holds no session.
    """
    if not folder.is_dir():
        raise UsageError(f"the data must be a folder of sessions, and {folder} is none")
    table = next(
        (folder / name for name in ("metadata.csv", "emg2pose_metadata.csv") if (folder / name).is_file()),
        None,
    )
    sessions, problems = _by_table(folder, table) if table is not None else _by_attributes(folder)
    if not sessions:
        why = f": {problems[0]}" if problems else ""
        raise SourceError(f"{folder} holds no session in the emg2pose layout{why}")
    return tuple(sessions), tuple(problems)


def _by_table(folder: Path, table: Path) -> tuple[list[Session], list[str]]:
    sessions, problems = [], []
    with table.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        missing = [
            name
            for name in ("user", "session", "side", "filename", "split")
            if name not in (reader.fieldnames or ())
        ]
        if missing:
            raise SourceError(f"{table} lacks the column {missing[0]!r}; it has {reader.fieldnames}")
        for row in reader:
            path = folder / f"{row['filename'].removesuffix('.hdf5')}.hdf5"
            if not path.is_file():
                problems.append(f"{path.name} of {table.name} does not exist")
            elif row["split"] not in SPLITS:
                problems.append(f"{path.name} has the split {row['split']!r}; there are {', '.join(SPLITS)}")
            else:
                facts = (row["user"], row["session"], row["side"], row["split"])
                sessions.append(Session(path, *facts, row.get("generalization") or ""))
    listed = {session.path for session in sessions}
    problems += [
        f"{path.name} is not in {table.name}" for path in sorted(folder.glob("*.hdf5")) if path not in listed
    ]
    return sessions, problems


def _by_attributes(folder: Path) -> tuple[list[Session], list[str]]:
    found: list[tuple[Path, str, str, str]] = []
    problems = []
    for path in sorted(folder.glob("*.hdf5")):
        try:
            with h5py.File(path, "r") as file:
                facts = dict(file[GROUP].attrs)
        except (OSError, KeyError) as error:
            problems.append(f"{path.name} is no session: {error}")
            continue
        user, session, side = (str(facts.get(name, "")) for name in ("user", "session", "side"))
        found.append((path, user, session, side))
    users = sorted({user for _, user, _, _ in found})
    split_of = {user: _split(i, users) for i, user in enumerate(users)}
    return [
        Session(path, user, session, side, split_of[user]) for path, user, session, side in found
    ], problems


def _split(number: int, users: Sequence[str]) -> str:
    """70, 15 and 15 % of the users; the last ones are for the test, and each part has one if it can."""
    num_test = max(1, round(0.15 * len(users))) if len(users) > 2 else 0
    num_val = max(1, round(0.15 * len(users))) if len(users) > 1 else 0
    if number >= len(users) - num_test:
        return "test"
    return "val" if number >= len(users) - num_test - num_val else "train"
