"""What was predicted, layer by layer, in one HDF5 file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import stoker
from stoker.loader import Windows
from stoker.recipes.printer_tcn._layout import STATES, TARGETS, UNITS
from stoker.train import Trainer


def write_predictions(
    path: Path,
    trainer: Trainer,
    loader: stoker.Loader,
    view: Windows,
    *,
    settled: int,
    horizon: int,
    rate: float,
) -> Mapping[str, float]:
    """Write ``FOLDER/LAYER/states`` [T, 2] and ``…/quality`` [T, 5] for every layer; count what was written.

    A row is a time step. States are NaN where no window covers a step with a whole receptive field before
    it, quality where no window looks at it. A batch is in memory at a time. The file is written aside and
    renamed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".writing-{path.name}")
    places = [view.session(i) for i in range(len(view))]
    layers: set[int] = set()
    with h5py.File(temporary, "w") as file:
        file.attrs["sample_rate"] = rate
        for batch in loader:
            found = trainer.predict([batch])
            rows = zip(
                batch["index"].tolist(), found["states"].numpy(), found["quality"].numpy(), strict=True
            )
            for number, states, quality in rows:
                layer, start = places[number]
                layers.add(layer)
                stop = start + len(states)
                key = view.session_key(layer)
                _dataset(file, f"{key}/states", STATES, stop)[start + settled : stop] = states[settled:]
                _dataset(file, f"{key}/quality", TARGETS, stop + horizon)[stop + horizon - 1] = quality
    temporary.replace(path)
    return {"layers": float(len(layers)), "windows": float(len(view))}


def _dataset(file: Any, name: str, columns: tuple[str, ...], num_steps: int) -> Any:
    """The layer's, long enough."""
    if name not in file:
        dataset = file.create_dataset(
            name,
            shape=(0, len(columns)),
            maxshape=(None, len(columns)),
            dtype=np.float32,
            chunks=(1024, len(columns)),
            fillvalue=np.nan,
        )
        dataset.attrs.update({"columns": list(columns), "units": [UNITS[each] for each in columns]})
    dataset = file[name]
    if len(dataset) < num_steps:
        dataset.resize(num_steps, axis=0)
    return dataset
