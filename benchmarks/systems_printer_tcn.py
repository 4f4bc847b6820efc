"""The printer's hidden states: a scaler in the data set, or rows that were standardised once.

The naive pipeline is what the original's guide calls "original": every window is an entry of a list, and a
DataLoader with two workers calls the fitted scaler and makes tensors for each of them. The guide's own cure
standardises beforehand and keeps all windows as tensors, each row in 40 of them.

Ours is the recipe's: layers are packed, every row is standardised once into a second store, and
`stoker.windows` cuts windows out of that. Ours also brings accelerations and the mask of known targets, which
its loss needs; neither of the others has them.

Each run is a process of its own and reads the same .mat files. The model is one matrix, so that the pipeline
is what is measured: the epoch's figure is that of its second epoch, opening is from files to the first batch
of the first. Order and number of windows are those of each pipeline's own shuffling over the same windows.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import stoker
from measuring import Report, interleave, say
from peers.serving import starved_share
from stoker.recipes._windows import window_loader
from stoker.recipes.printer_tcn import FEATURES, TARGETS, PrinterSettings, write_parts
from stoker.recipes.printer_tcn._data import Layers, make_store, normalize, open_layers

LENGTH, HORIZON, STRIDE, BATCH_SIZE = 200, 50, 5, 512
STEP_S, SOURCE, NUM_STEPS = 0.11, "the guide's 4,000 samples/s at 85 % of the GPU", 15
SYSTEMS = {
    "naive": "scaler in the data set, DataLoader, 2 workers",
    "guide": "its guide's cure: windows kept as tensors, DataLoader, 2 workers",
    "stoker": "Stoker: windows of a standardised store, Loader",
}


def measure(report: Report, *, quick: bool) -> None:
    """Add the rows of this section."""
    num_parts, num_layers, repetitions = (3, 3, 1) if quick else (4, 30, 5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        num_files = write_parts(
            folder / "raw", num_parts=num_parts, layers_per_part=num_layers, points_per_layer=1500
        )
        workload = f"{num_files} layers of about 1,500 steps, windows of {LENGTH} + {HORIZON} every {STRIDE}"
        answers: dict[str, list[dict[str, float]]] = {system: [] for system in SYSTEMS}
        say(f"printer_tcn: {workload}")
        interleave(
            {system: functools.partial(_timed, system, folder, answers[system]) for system in SYSTEMS},
            repetitions,
        )
    _add(report, workload, answers)


def _add(report: Report, workload: str, answers: dict[str, list[dict[str, float]]]) -> None:
    for system, name in SYSTEMS.items():
        each = answers[system]
        report.add(workload, f"{name}: opening, to the first batch", [row["open_s"] for row in each], "s")
        speed = [row["num_windows"] / row["epoch_s"] for row in each]
        report.add(workload, f"{name}: epoch", speed, "windows/s")
        waiting = f"share of time that an accelerator with steps of {1000 * STEP_S:.0f} ms ({SOURCE}) waits"
        report.add(workload, f"{name}: {waiting}", [row["starved"] for row in each], "share")
    for system, budget in (("naive", " (budget 8)"), ("guide", "")):
        pairs = zip(answers[system], answers["stoker"], strict=True)
        ratios = [theirs["epoch_s"] / ours["epoch_s"] for theirs, ours in pairs]
        report.add(workload, f"Stoker: times as fast as {SYSTEMS[system]}{budget}", ratios, "ratio")


def _timed(system: str, folder: Path, answers: list[dict[str, float]]) -> float:
    """One run's times, in a process of its own; the epoch's, for those who want one number."""
    command = [sys.executable, __file__, system, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answers.append(json.loads(done.stdout.splitlines()[-1]))
    return answers[-1]["epoch_s"]


def _alone(system: str, folder: Path) -> dict[str, float]:
    """Open, and time the second of two epochs."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    matrix = torch.randn(len(FEATURES), len(TARGETS)) / 4
    batches = _stoker(folder) if system == "stoker" else _loader(folder / "raw", kept=system == "guide")
    start = time.perf_counter()
    opened = 0.0
    num_windows, epoch_s = 0, 0.0
    for _ in range(2):
        num_windows, began = 0, time.perf_counter()
        for inputs, targets in next(batches):
            opened = opened or time.perf_counter()
            num_windows += len(inputs)
            (inputs[:, -1] @ matrix - targets).square().mean()
        epoch_s = time.perf_counter() - began
    starved = starved_share(lambda: next(batches), STEP_S, min(NUM_STEPS, num_windows // BATCH_SIZE - 1))
    batches.close()
    return {"open_s": opened - start, "epoch_s": epoch_s, "num_windows": num_windows, "starved": starved}


def _loader(folder: Path, *, kept: bool) -> Any:
    """Epochs of the naive pipeline, or of its optimised form."""
    data = _Windows(sorted(folder.glob("*/*.mat")), kept=kept)
    loader = DataLoader(data, BATCH_SIZE, shuffle=True, num_workers=2, persistent_workers=True)
    while True:
        yield ((batch["input_features"], batch["targets"]) for batch in loader)


class _Windows(Dataset[dict[str, Any]]):
    """A dict a window in a list, as the original has them."""

    def __init__(self, paths: list[Path], *, kept: bool) -> None:
        self._windows: list[dict[str, Any]] = []
        self._kept = kept
        layers = [_read(path) for path in paths]
        self._scaler = StandardScaler().fit(np.concatenate([features for features, _, _ in layers]))
        for number, (features, targets, errors) in enumerate(layers):
            seen = self._scaler.transform(features).astype(np.float32) if kept else features
            for start in range(0, len(seen) - LENGTH - HORIZON + 1, STRIDE):
                end = start + LENGTH
                last = end + HORIZON
                window = {
                    "input_features": seen[start:end],
                    "targets": targets[last - 1],
                    "errors": errors[end:last],
                }
                if kept:
                    window = {name: torch.tensor(each, dtype=torch.float32) for name, each in window.items()}
                self._windows.append({**window, "data_idx": number, "start_idx": start})

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, i: int) -> dict[str, Any]:
        window = self._windows[i]
        if self._kept:
            return {name: each.clone() if isinstance(each, Tensor) else each for name, each in window.items()}
        return {
            **window,
            "input_features": torch.FloatTensor(self._scaler.transform(window["input_features"])),
            "targets": torch.FloatTensor(window["targets"]),
            "errors": torch.FloatTensor(window["errors"]),
        }


def _read(path: Path) -> tuple[Any, Any, Any]:
    """Features [T, 12], targets [T, 5] and errors [T, 2] of a layer."""
    with h5py.File(path) as file:
        fields = file["simulation_data"]
        features, targets, errors = (
            np.stack([fields[name][0] for name in names], 1)
            for names in (FEATURES, TARGETS, ("error_x", "error_y"))
        )
    return features, targets, errors


def _stoker(folder: Path) -> Any:
    """Epochs of the recipe's pipeline."""
    settings = PrinterSettings.model_validate(
        {
            "out": folder / f"run-{os.getpid()}",
            "progress": False,
            "windows": {"length": LENGTH, "horizon": HORIZON, "stride": STRIDE, "jitter": 0},
            "training": {"batch_size": BATCH_SIZE},
            "loading": {"num_workers": 2},
        }
    )
    store, _ = make_store(folder / "raw", settings)
    layers = open_layers(store, settings.splits)
    path = settings.out / "normalized.stoker"
    normalize(layers, layers.scaler(), path)
    data = Layers(stoker.open(path), layers.splits, layers.rate)
    first = len(FEATURES) + 4
    with (
        data.windows("all", settings.windows) as view,
        window_loader(view, settings, device="cpu", shuffle=True) as loader,
    ):
        while True:
            yield (
                (series[:, :LENGTH, : len(FEATURES)], series[:, -1, first : first + len(TARGETS)])
                for series in (batch["series"] for batch in loader)
            )


if __name__ == "__main__":
    print(json.dumps(_alone(sys.argv[1], Path(sys.argv[2]))))
