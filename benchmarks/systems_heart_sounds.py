"""Heart sounds: two augmented views of every cycle, by files and workers, and out of a store.

The naive pipeline is the original's: one npy file a cycle, read at every access; six NumPy and SciPy
transforms a sample, twice, once for each view; both views cut into quarters; PyTorch's DataLoader with
batches of 64, four workers (no more than cores), which start anew every epoch, and pinned memory where there
is a GPU to pin it for.

Ours: the same cycles in a store, `stoker.Loader`, the same six transforms with the same probabilities and
ranges on whole batches (on the CPU here), in as many threads as the naive pipeline has workers, and the
parts' mask, moved along with each view, instead of quarters. One epoch is measured, from asking for it to its
last batch. Where an accelerator is emulated, one batch is augmented while it computes.

The original's own cure makes views ahead and shows them for five epochs (`view_cache_refresh_epochs: 5`):
less work, and less variety. It is measured too, as `stoker.ViewCache`: five epochs, and the making of
their views.
"""

import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.signal
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import stoker
from feeding import Accelerator, add_fed
from measuring import Report, interleave, say
from stoker.config import usable_cores
from stoker.recipes.heart_sounds import CycleSettings, synthesize
from stoker.recipes.heart_sounds._cycles import clean
from stoker.recipes.heart_sounds.learning import pretraining_views

LENGTH, RATE, BATCH_SIZE = 4000, 5000, 64
REFRESH_EPOCHS = 5
SOURCE = "the document's 400 samples/s at three quarters of the GPU"
ACCELERATOR = {quick: Accelerator(0.12, SOURCE, 3 if quick else 40) for quick in (False, True)}

Floats = NDArray[np.float32]


def measure(report: Report, *, quick: bool) -> None:
    """Add the rows of this section."""
    num_cycles, repetitions = (256, 2) if quick else (16_384, 5)
    workload = f"{num_cycles} heart cycles of [1, {LENGTH}], two views each"
    workers = min(4, usable_cores())
    with tempfile.TemporaryDirectory() as folder:
        say(f"heart_sounds: {num_cycles} cycles as files and as a store")
        files = _write(Path(folder), num_cycles)
        naive = DataLoader(
            CycleFiles(files),
            batch_size=BATCH_SIZE,
            shuffle=True,
            num_workers=workers,
            pin_memory=torch.cuda.is_available(),
        )
        views = pretraining_views(path=None, rate=RATE, seed=0)
        store = stoker.open(Path(folder) / "cycles.stoker")
        with (
            stoker.Loader(store, BATCH_SIZE, augment=views, augment_ahead=workers) as ours,
            stoker.Loader(store, BATCH_SIZE, augment=views, augment_ahead=True) as ahead,
        ):
            runs = {
                f"npy files, NumPy transforms, {workers} workers": functools.partial(
                    _epoch, naive, num_cycles
                ),
                "Stoker: store, Loader, batched views": functools.partial(_epoch, ours, num_cycles),
                f"Stoker: views anew every {REFRESH_EPOCHS} epochs": functools.partial(
                    _view_epochs, store, views, folder
                ),
            }
            for run in runs.values():
                run()  # files into the page cache, mappings populated
            say("heart_sounds: measuring")
            found = interleave(runs, repetitions)
            loaders = dict(zip(runs, (naive, ahead), strict=False))
            fed = {name: functools.partial(iter, loader) for name, loader in loaders.items()}
            add_fed(report, workload, fed, ACCELERATOR[quick], repetitions)
    for name, values in found.items():
        report.add(workload, name, values, "samples/s")
    slow, fast, cached = found.values()
    ratios = [b / a for a, b in zip(slow, fast, strict=True)]
    report.add(workload, "Stoker / npy files and workers (budget 8)", ratios, "ratio")
    ratios = [b / a for a, b in zip(slow, cached, strict=True)]
    report.add(workload, "Stoker, views made ahead / npy files and workers (budget 8)", ratios, "ratio")


class CycleFiles(Dataset[tuple[Tensor, Tensor, Tensor, Tensor]]):
    """The original's dataset: file, two views, quarters, all at every access."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        cycle = np.load(self._files[i])
        rng = np.random.default_rng()
        first, second = six_transforms(cycle, rng), six_transforms(cycle, rng)
        views = [torch.from_numpy(view[None]) for view in (first, second)]
        quarters = [torch.from_numpy(view.reshape(4, -1).copy()) for view in (first, second)]
        return views[0], views[1], quarters[0], quarters[1]


def six_transforms(x: Floats, rng: np.random.Generator) -> Floats:
    """Shift, stretch, gain, noise, time masks and frequency mask of x [T], each with its probability."""
    length = len(x)
    if rng.random() < 0.8:
        x = np.roll(x, rng.integers(-length // 10, length // 10 + 1))
    if rng.random() < 0.5:
        x = _fitted(scipy.signal.resample(x, int(length / rng.uniform(0.9, 1.1))), length)
    if rng.random() < 0.8:
        x = x * rng.uniform(0.8, 1.2)
    if rng.random() < 0.5:
        power = np.mean(x**2) / 10 ** (rng.uniform(20, 40) / 10)
        x = x + rng.standard_normal(length) * np.sqrt(power)
    if rng.random() < 0.5:
        x = x.copy()
        for _ in range(2):
            size = rng.integers(0, 151)
            start = rng.integers(0, length - size + 1)
            x[start : start + size] = 0
    if rng.random() < 0.3:
        spectrum = np.fft.rfft(x)
        width = int(rng.uniform(0, 0.15) * len(spectrum))
        low = rng.integers(0, len(spectrum) - width + 1)
        spectrum[low : low + width] = 0
        x = np.fft.irfft(spectrum, length).astype(np.float32)
    return x.astype(np.float32)


def _fitted(x: NDArray[np.floating], length: int) -> Floats:
    """Cut or padded in the middle."""
    if len(x) >= length:
        start = (len(x) - length) // 2
        return x[start : start + length].astype(np.float32)
    before = (length - len(x)) // 2
    return np.pad(x, (before, length - len(x) - before)).astype(np.float32)


def _epoch(loader: DataLoader[tuple[Tensor, ...]] | stoker.Loader, num_cycles: int) -> float:
    """Samples a second of one epoch."""
    start = time.perf_counter()
    count = sum(1 for _ in loader)
    assert count == -(-num_cycles // BATCH_SIZE)
    return num_cycles / (time.perf_counter() - start)


def _view_epochs(store: stoker.Store, augment: Callable[..., Any], folder: str) -> float:
    """Samples a second of the epochs that a generation of views lasts, its making included."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        start = time.perf_counter()
        cache = stoker.ViewCache(store, augment, made, copies=1, refresh_epochs=REFRESH_EPOCHS, ahead=False)
        with cache, stoker.Loader(cache, BATCH_SIZE) as loader:
            count = sum(len(batch["index"]) for _ in range(REFRESH_EPOCHS) for batch in loader)
        assert count == REFRESH_EPOCHS * len(store)
        return count / (time.perf_counter() - start)


def _write(folder: Path, num_cycles: int) -> list[Path]:
    """The same cycles as subject_X/rec_Y/cycle_0000.npy and as a store."""
    rng = np.random.default_rng(0)
    recording = synthesize("normal", seconds=60.0, rng=rng, rate=RATE, beats_per_minute=80)
    settings = CycleSettings(rate=RATE, length=LENGTH)
    signal = clean(recording.signal.astype(np.float64), RATE, settings)
    bounds = np.array([0, 550, 1300, 1700, 3700], np.int32)
    files, samples = [], []
    for number in range(num_cycles):
        x = np.zeros(LENGTH, np.float32)
        start = int(rng.integers(0, len(signal) - LENGTH))
        x[: bounds[-1]] = signal[start : start + int(bounds[-1])]
        path = folder / f"subject_{number // 64}" / f"rec_{number // 16 % 4}" / f"cycle_{number % 16:04d}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, x)
        files.append(path)
        samples.append({"x": x[None], "bounds": bounds, "recording_id": np.int64(number // 16)})
    stoker.pack(samples, folder / "cycles.stoker", workers=0, progress=False)
    return files
