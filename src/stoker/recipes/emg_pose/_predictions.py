"""Predicted angles, session by session, in one HDF5 file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import stoker
from stoker.loader import Windows
from stoker.recipes.emg_pose._layout import JOINTS, SAMPLE_RATE, Session
from stoker.train import Trainer


def write_predictions(
    path: Path, trainer: Trainer, loader: stoker.Loader, view: Windows, sessions: Sequence[Session]
) -> Mapping[str, float]:
    """Write ``NAME/joint_angles``, float32 [T, 20] in rad, for every session; counts what was written.

    Windows lie end to end; steps that none covers (context, and a session's end) are NaN. A batch is in
    memory at a time. The file is written aside and renamed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".writing-{path.name}")
    places = [view.session(i) for i in range(len(view))]
    ends: dict[int, int] = {}
    num_steps = 0
    with h5py.File(temporary, "w") as file:
        file.attrs.update({"joints": list(JOINTS), "sample_rate": float(SAMPLE_RATE), "unit": "rad"})
        for batch in loader:
            poses = trainer.predict([batch]).numpy()  # [B, 20, T]
            for number, pose in zip(batch["index"].tolist(), poses, strict=True):
                session, start = places[number]
                stop = start + pose.shape[-1]
                dataset = _dataset(file, sessions[session], stop)
                dataset[start:stop] = pose.T
                ends[session] = max(ends.get(session, 0), stop)
                num_steps += pose.shape[-1]
    temporary.replace(path)
    return {"sessions": float(len(ends)), "steps": float(num_steps)}


def _dataset(file: Any, session: Session, num_steps: int) -> Any:
    """The session's, long enough."""
    name = f"{session.path.stem}/joint_angles"
    if name not in file:
        dataset = file.create_dataset(
            name,
            shape=(0, len(JOINTS)),
            maxshape=(None, len(JOINTS)),
            dtype=np.float32,
            chunks=(4096, len(JOINTS)),
            fillvalue=np.nan,
        )
        dataset.parent.attrs.update({"user": session.user, "session": session.session, "side": session.side})
    dataset = file[name]
    if len(dataset) < num_steps:
        dataset.resize(num_steps, axis=0)
    return dataset
