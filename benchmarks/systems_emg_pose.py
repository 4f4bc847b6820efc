"""EMG to pose: every session in memory, or windows out of the files as they are.

The naive pipeline is what the original's document calls "before": all sessions are read into memory, their
mean and deviation are taken of all rows joined together, a Dataset cuts and standardises windows for a
DataLoader with two workers, and an epoch's predictions and targets are kept, joined and measured at the end.

Ours: `stoker.windows` over the same files, statistics sampled from them, `stoker.Loader`, errors added up
batch by batch. (Its errors are more than those of the naive pipeline: derivatives, joints, fingers and
distances too. The row "mse and mae only" measures what the naive one does.)

Each run is a process of its own, from opening the files to the epoch's errors; the model is one matrix, so
that the pipeline is what is measured. Memory and time are measured in different runs, since watching
memory takes time. Memory is anonymous memory of the process and its workers, beyond what
they had when the libraries were imported: pages of mapped files belong to the page cache and can be
dropped at any time, the naive pipeline's sessions cannot.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from measuring import Report, interleave, peak_memory, say
from stoker.recipes._windows import window_loader
from stoker.recipes.emg_pose import EmgSettings
from stoker.recipes.emg_pose._data import fit_statistics, open_collection
from stoker.recipes.emg_pose._metrics import PoseErrors
from stoker.train import regression_metrics

LENGTH, BATCH_SIZE, NUM_DISTINCT = 500, 64, 8
_ROW = np.dtype([("time", "<f8"), ("joint_angles", "<f4", (20,)), ("emg", "<f4", (16,))])


def measure(report: Report, *, quick: bool) -> None:
    """Add the rows of this section."""
    num_sessions, seconds, repetitions = (8, 5, 1) if quick else (96, 60, 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        num_bytes = _write(folder, num_sessions, seconds)
        workload = f"{num_sessions} sessions of {seconds} s, {num_bytes / 1e9:.2g} GB"
        systems = ("naive", "stoker", "stoker-plain")
        answers: dict[str, list[dict[str, float]]] = {system: [] for system in systems}
        say(f"emg_pose: {workload}, memory of {', '.join(systems)}")
        memory = {system: _run(system, folder, "memory") for system in systems}
        runs = {system: functools.partial(_timed, system, folder, answers[system]) for system in systems}
        say(f"emg_pose: {workload}, time")
        interleave(runs, repetitions)
        for system, rows in answers.items():
            answers[system] = [memory[system] | row for row in rows]
    _add(report, workload, answers)


def _add(report: Report, workload: str, answers: dict[str, list[dict[str, float]]]) -> None:
    shown = {
        "naive": "all sessions in memory, DataLoader, 2 workers",
        "stoker": "Stoker: windows, Loader, all errors online",
        "stoker-plain": "Stoker, mse and mae only",
    }
    for system, name in shown.items():
        each = answers[system]
        report.add(workload, f"{name}: peak memory", [each[0]["memory"] / 1e6], "MB")
        report.add(workload, f"{name}: memory after opening", [each[0]["open_memory"] / 1e6], "MB")
        report.add(workload, f"{name}: opening and statistics", [row["open_s"] for row in each], "s")
        report.add(
            workload, f"{name}: epoch", [row["num_windows"] / row["epoch_s"] for row in each], "windows/s"
        )
    for system in ("stoker", "stoker-plain"):
        pairs = list(zip(answers["naive"], answers[system], strict=True))
        name = shown[system]
        saved = [1 - ours["memory"] / naive["memory"] for naive, ours in pairs[:1]]
        report.add(workload, f"{name}: memory saved (budget 0.79)", saved, "ratio")
        faster = [_total(naive) / _total(ours) for naive, ours in pairs]
        report.add(workload, f"{name}: times as fast from files to errors (budget 1)", faster, "ratio")
        epoch = [naive["epoch_s"] / ours["epoch_s"] for naive, ours in pairs]
        report.add(workload, f"{name}: times as fast, epoch alone (budget 1)", epoch, "ratio")


def _total(row: dict[str, float]) -> float:
    return row["open_s"] + row["epoch_s"]


def _write(folder: Path, num_sessions: int, seconds: int) -> int:
    """Sessions in the emg2pose layout; a few distinct ones, the others are links to them."""
    rng = np.random.default_rng(0)
    rows = ["user,session,side,filename,split"]
    for number in range(num_sessions):
        path = folder / f"s{number:04d}.hdf5"
        split = "test" if number % NUM_DISTINCT == 1 else "val" if number % NUM_DISTINCT == 2 else "train"
        rows.append(f"u{number % NUM_DISTINCT},{number},left,{path.stem},{split}")
        if number >= NUM_DISTINCT:
            os.link(folder / f"s{number % NUM_DISTINCT:04d}.hdf5", path)
            continue
        table = np.zeros(seconds * 2000, _ROW)
        for name in ("joint_angles", "emg"):
            table[name] = rng.standard_normal(table[name].shape, np.float32)
        with h5py.File(path, "w") as file:
            file["emg2pose/timeseries"] = table
    (folder / "metadata.csv").write_text("\n".join(rows) + "\n")
    return sum(path.stat().st_size for path in folder.glob("*.hdf5"))


def _timed(system: str, folder: Path, answers: list[dict[str, float]]) -> float:
    """One run's times; all of them, for those who want one number."""
    answers.append(_run(system, folder, "time"))
    return _total(answers[-1])


def _run(system: str, folder: Path, what: Literal["memory", "time"]) -> dict[str, float]:
    """One run in a process of its own."""
    command = [sys.executable, __file__, system, str(folder), what]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _alone(system: str, folder: Path, what: str) -> dict[str, float]:
    """Open, and measure one epoch: the peaks of memory, or the times."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    matrix = torch.randn(20, 16) / 4
    work = _Naive(folder) if system == "naive" else _Ours(folder, all_errors=system == "stoker")
    if what == "memory":
        with peak_memory() as peak:
            work.open()
            after_opening = peak["num_bytes"]
            work.epoch(matrix)
        return {
            "memory": peak["num_bytes"] - peak["start_bytes"],
            "open_memory": after_opening - peak["start_bytes"],
        }
    start = time.perf_counter()
    work.open()
    opened = time.perf_counter()
    num_windows, _ = work.epoch(matrix)
    return {
        "open_s": opened - start,
        "epoch_s": time.perf_counter() - opened,
        "num_windows": num_windows,
    }


class _Naive:
    """As the document's "before"."""

    def __init__(self, folder: Path) -> None:
        self._paths = sorted(folder.glob("*.hdf5"))

    def open(self) -> None:
        sessions = []
        for path in self._paths:
            with h5py.File(path, "r") as file:
                table = file["emg2pose/timeseries"][:]
            sessions.append(
                (np.ascontiguousarray(table["emg"].T), np.ascontiguousarray(table["joint_angles"].T))
            )
        whole = np.concatenate([emg for emg, _ in sessions], 1)
        self._data = _InMemory(sessions, whole.mean(1), whole.std(1))

    def epoch(self, matrix: Tensor) -> tuple[int, dict[str, float]]:
        predictions, targets = [], []
        for emg, angles in DataLoader(self._data, BATCH_SIZE, shuffle=True, num_workers=2):
            predictions.append((matrix @ emg).numpy())
            targets.append(angles.numpy())
        guess, truth = np.concatenate(predictions), np.concatenate(targets)
        error = guess - truth
        return len(guess), {"mse": float((error**2).mean()), "mae": float(np.abs(error).mean())}


class _InMemory(Dataset[tuple[Tensor, Tensor]]):
    """Windows of sessions that lie in memory, each a tuple in a list."""

    def __init__(self, sessions: list[tuple[Any, Any]], mean: Any, std: Any) -> None:
        self._sessions, self._mean, self._std = sessions, mean[:, None], std[:, None]
        self._places = [
            (number, start)
            for number, (emg, _) in enumerate(sessions)
            for start in range(0, emg.shape[1] - LENGTH + 1, LENGTH)
        ]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        number, start = self._places[i]
        emg, angles = (each[:, start : start + LENGTH] for each in self._sessions[number])
        return torch.from_numpy((emg - self._mean) / self._std), torch.from_numpy(angles)


class _Ours:
    """The recipe's own data, statistics and errors."""

    def __init__(self, folder: Path, *, all_errors: bool) -> None:
        self._folder, self._all_errors = folder, all_errors
        self._settings = EmgSettings.model_validate(
            {
                "windows": {"length": LENGTH},
                "training": {"batch_size": BATCH_SIZE},
                "loading": {"num_workers": 2},
            }
        )

    def open(self) -> None:
        collection = open_collection(self._folder)
        found = fit_statistics(collection, self._settings)
        self._mean, self._std = (torch.tensor(each)[:, None] for each in (found.emg_mean, found.emg_std))
        self._view, _ = collection.windows("all", self._settings.windows)

    def epoch(self, matrix: Tensor) -> tuple[int, dict[str, float]]:
        plain, whole = regression_metrics(), PoseErrors()
        with self._view, window_loader(self._view, self._settings, device="cpu", shuffle=True) as loader:
            for batch in loader:
                prediction = matrix @ ((batch["emg"] - self._mean) / self._std)
                target = batch["joint_angles"]
                if self._all_errors:
                    whole.update(prediction, target, (target != 0).any(1))
                else:
                    plain.update(prediction, target)
        metric = whole if self._all_errors else plain
        return len(self._view), {name: float(value) for name, value in metric.compute().items()}


if __name__ == "__main__":
    print(json.dumps(_alone(sys.argv[1], Path(sys.argv[2]), sys.argv[3])))
