"""Packing: sessions become samples of a store, the EMG [16, T] and the angles [20, T] in float32."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash

from stoker.errors import BadSampleError
from stoker.recipes._raw import pack_usable
from stoker.recipes._recipe import Prepared
from stoker.recipes.emg_pose._data import FACTS, describe
from stoker.recipes.emg_pose._layout import DATASET, GROUP, NUM_CHANNELS, NUM_JOINTS, Session, read_sessions
from stoker.recipes.emg_pose._settings import EmgSettings


class SessionSource:
    """A sample a session."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.channel_axis = {"emg": 0, "joint_angles": 0}
        self._sessions = sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def key(self, i: int) -> str:
        """The file's name without suffix."""
        return self._sessions[i].path.stem

    def fingerprint(self, i: int) -> bytes:
        """Changes with the file and with what the table says of it."""
        session = self._sessions[i]
        state = session.path.stat()
        facts = (state.st_size, state.st_mtime_ns, *(getattr(session, name) for name in FACTS))
        return xxhash.xxh3_128_digest(json.dumps(facts).encode())

    def __getitem__(self, i: int) -> dict[str, Any]:
        session = self._sessions[i]
        facts = {name: getattr(session, name) for name in FACTS}
        return {**read_session(session.path), **facts}


def prepare(
    data: Path,
    store: Path,
    settings: EmgSettings,
    *,
    force: bool = False,
    workers: int | None = None,
    validate_only: bool = False,
) -> Prepared:
    """Pack the sessions of a folder; those that cannot be used are left out and listed.

    Raises:
        SourceError: none can be used.
    """
    sessions, problems = read_sessions(data)
    found, bad = pack_usable(
        SessionSource(sessions),
        None if validate_only else store,
        what=f"sessions in {data}",
        fields=("num_steps", "num_failed"),
        force=force,
        workers=workers,
        progress=settings.progress,
    )
    used = [each for each in sessions if each.path.stem in found]
    num_steps = sum(int(steps) for steps, _ in found.values())
    num_failed = sum(int(failed) for _, failed in found.values())
    share = round(num_failed / max(1, num_steps), 4)
    counts = describe(used, num_steps) | {"share of steps without a pose": share}
    return Prepared(store, len(used), counts, (*problems, *bad))


def read_session(path: Path) -> dict[str, Any]:
    """The arrays of one session, and how many steps it has, and has without a pose.

    Raises:
        BadSampleError: it is not as the layout says, or has values that are no numbers.
    """
    try:
        with h5py.File(path, "r") as file:
            table = file[GROUP][DATASET]
            columns = {
                "emg": (table.dtype["emg"].shape, NUM_CHANNELS),
                "joint_angles": (table.dtype["joint_angles"].shape, NUM_JOINTS),
            }
            for name, (shape, size) in columns.items():
                if shape != (size,):
                    raise BadSampleError(path.stem, f"{name} must have {size} values a step, got {shape}")
            rows = table[:]
    except (OSError, KeyError) as error:
        raise BadSampleError(path.stem, f"no session in the emg2pose layout: {error}") from error
    emg, angles = (np.ascontiguousarray(rows[name].T, np.float32) for name in columns)
    for name, array in (("emg", emg), ("joint_angles", angles)):
        num_bad = int((~np.isfinite(array)).any(0).sum())
        if num_bad:
            why = f"{name} is no number at {num_bad} of {array.shape[1]} steps"
            raise BadSampleError(path.stem, why)
    failed = int((angles == 0).all(0).sum())
    return {"emg": emg, "joint_angles": angles, "num_steps": len(rows), "num_failed": failed}
