"""Face parsing: images decoded and augmented one by one in every epoch, or packed once and in batches.

The naive pipeline is what the original's document calls "before": a Dataset opens a JPEG and a palette PNG,
resizes both, flips, rotates, scales and crops or pads them with Pillow and NumPy, changes brightness and
contrast, adds noise and gives floats; PyTorch's DataLoader makes batches of 32 of them with four workers (no
more than cores), which start anew in every epoch. Its trainer then computes the F-score of every batch in
NumPy.

Ours: the same faces in a store, `stoker.Loader`, the same augmentation with the same probabilities and ranges
on whole batches, on the CPU here as there is no GPU, and the F-score from a confusion matrix. Left and right
classes are swapped where a face is mirrored, which the naive pipeline forgets. A further row has the recipe's
own policy, which adds saturation, hue and blur.

The predictions that are measured are the masks moved by a pixel; no model takes part. One epoch is measured,
from asking for it to its last batch. Packing is measured too: it is paid once. Where an accelerator is
emulated, the next batch is augmented while it computes, as workers do in the naive pipeline.
"""

import functools
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import stoker
from feeding import Accelerator, add_fed
from measuring import Report, interleave, say, seconds_of
from stoker.config import usable_cores
from stoker.recipes.face_parsing import CLASSES, IGNORE, FaceSettings, write_faces
from stoker.recipes.face_parsing._augment import make_augment
from stoker.recipes.face_parsing._prepare import prepare
from stoker.train import segmentation_metrics

BATCH_SIZE = 32
SOURCE = "the document's 100 samples/s at nine tenths of the GPU"
ACCELERATOR = {quick: Accelerator(0.29, SOURCE, 1 if quick else 12) for quick in (False, True)}
SAME_WORK = {
    "saturation": 0,
    "hue": 0,
    "blur_probability": 0,
    "noise": (3 / 255, 8 / 255),
    "noise_probability": 0.3,
}


def measure(report: Report, *, quick: bool) -> None:
    """Add the rows of this section."""
    num_faces, size, repetitions = (64, 128, 1) if quick else (512, 512, 3)
    workload = f"{num_faces} faces of {size} x {size} with masks, batches of {BATCH_SIZE}"
    workers = min(4, usable_cores())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say(f"face_parsing: {num_faces} faces as files and as a store")
        write_faces(folder / "raw", num_train=num_faces, num_test=0, size=size)
        options: dict[str, Any] = {
            "images": {"size": size},
            "training": {"batch_size": BATCH_SIZE},
            "augment": SAME_WORK,
            "progress": False,
        }
        settings = FaceSettings.model_validate(options)
        packing = functools.partial(prepare, folder / "raw", folder / "f.stoker", settings, force=True)
        packed_s = seconds_of(packing)
        naive = DataLoader(
            FaceFiles(folder / "raw" / "train", size), BATCH_SIZE, shuffle=True, num_workers=workers
        )
        store = stoker.open(folder / "f.stoker")
        ours = functools.partial(stoker.Loader, store, BATCH_SIZE, fields=("image", "mask"))
        same, full = (make_augment(each, seed=0) for each in (settings.augment, FaceSettings().augment))
        with ours(augment=same) as loader, ours(augment=full) as full_loader:
            runs = {
                f"Pillow and NumPy, {workers} workers": functools.partial(_epoch, naive, num_faces),
                "Stoker": functools.partial(_epoch, loader, num_faces),
                "Stoker, the recipe's own policy": functools.partial(_epoch, full_loader, num_faces),
                f"Pillow and NumPy, {workers} workers, F-score": functools.partial(
                    _epoch, naive, num_faces, _NaiveScore
                ),
                "Stoker, F-score": functools.partial(_epoch, loader, num_faces, _OurScore),
            }
            for run in runs.values():
                run()  # files into the page cache, mappings populated
            say("face_parsing: measuring")
            found = interleave(runs, repetitions)
        with (
            ours(augment=same, augment_ahead=True) as loader,
            ours(augment=full, augment_ahead=True) as full_loader,
        ):
            loaders = dict(zip(runs, (naive, loader, full_loader), strict=False))
            fed = {name: functools.partial(iter, each) for name, each in loaders.items()}
            add_fed(report, workload, fed, ACCELERATOR[quick], repetitions)
    for system, values in found.items():
        report.add(workload, system, values, "samples/s")
    report.add(workload, "packing, once", [packed_s], "s")
    slow, fast, full_policy, slow_scored, fast_scored = found.values()
    for what, before, after in (
        ("input (budget 3)", slow, fast),
        ("input, the recipe's own policy", slow, full_policy),
        ("input and F-score (budget 3)", slow_scored, fast_scored),
    ):
        ratios = [b / a for a, b in zip(before, after, strict=True)]
        report.add(workload, f"Stoker / Pillow and NumPy: {what}", ratios, "ratio")


class FaceFiles(Dataset[tuple[Tensor, Tensor]]):
    """The original's dataset: decoded, resized and augmented at every access."""

    def __init__(self, folder: Path, size: int) -> None:
        self._images = sorted((folder / "images").iterdir())
        self._masks = folder / "masks"
        self._size = size

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        path = self._images[i]
        shape = (self._size, self._size)
        image = np.array(Image.open(path).convert("RGB").resize(shape))
        mask = np.array(
            Image.open(self._masks / f"{path.stem}.png").resize(shape, resample=Image.Resampling.NEAREST)
        )
        image, mask = five_changes(image, mask)
        floats = image.astype(np.float32) / 255.0
        return torch.from_numpy(floats).permute(2, 0, 1), torch.from_numpy(mask).long()


def five_changes(image: NDArray[Any], mask: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Flip, rotation, scale, brightness with contrast, noise, each with its probability."""
    draw, uniform = random.random, random.uniform  # as the original draws
    if draw() < 0.5:
        image, mask = np.fliplr(image).copy(), np.fliplr(mask).copy()
    if draw() < 0.6:
        angle = uniform(-20, 20)
        image = np.array(Image.fromarray(image).rotate(angle, resample=Image.Resampling.BILINEAR))
        mask = np.array(Image.fromarray(mask).rotate(angle, resample=Image.Resampling.NEAREST))
    if draw() < 0.6:
        scale = uniform(0.8, 1.2)
        image = _scaled(image, scale, Image.Resampling.BILINEAR)
        mask = _scaled(mask, scale, Image.Resampling.NEAREST)
    if draw() < 0.5:
        image = np.clip(image * uniform(0.7, 1.3), 0, 255).astype(np.uint8)
        if draw() < 0.5:
            mean = image.mean()
            image = np.clip((image - mean) * uniform(0.8, 1.2) + mean, 0, 255).astype(np.uint8)
    if draw() < 0.3:
        noise = np.random.default_rng().normal(0, uniform(3, 8), image.shape)
        image = np.clip(image + noise, 0, 255).astype(np.uint8)
    return image, mask


def _scaled(array: NDArray[Any], scale: float, how: Image.Resampling) -> NDArray[Any]:
    """Resized, then cropped or padded in the middle."""
    size = len(array)
    new = int(size * scale)
    moved = np.array(Image.fromarray(array).resize((new, new), how))
    if new >= size:
        start = (new - size) // 2
        return moved[start : start + size, start : start + size]
    start = (size - new) // 2
    padded = np.zeros_like(array)
    padded[start : start + new, start : start + new] = moved
    return padded


class _NaiveScore:
    """The mean F-score of the classes that are there, of each batch, in NumPy."""

    def __init__(self) -> None:
        self._scores: list[float] = []

    def update(self, guess: Tensor, truth: Tensor) -> None:
        guesses, truths = guess.cpu().numpy().flatten(), truth.cpu().numpy().flatten()
        scores = []
        for number in np.unique(truths):
            hit = np.sum((guesses == number) & (truths == number))
            wrong = np.sum((guesses == number) & (truths != number))
            missed = np.sum((guesses != number) & (truths == number))
            scores.append(2 * hit / (2 * hit + wrong + missed + 1e-7))
        self._scores.append(float(np.mean(scores)))

    def compute(self) -> float:
        return float(np.mean(self._scores))


class _OurScore:
    """The mean F-score over all batches, of one confusion matrix."""

    def __init__(self) -> None:
        self._metric = segmentation_metrics(len(CLASSES), ignore=IGNORE, per_class=False)

    def update(self, guess: Tensor, truth: Tensor) -> None:
        self._metric.update(guess, truth)

    def compute(self) -> float:
        return float(self._metric.compute()["f_score"])


def _epoch(
    loader: Iterable[Any], num_faces: int, make_score: Callable[[], _NaiveScore | _OurScore] | None = None
) -> float:
    """Samples a second of one epoch."""
    score = None if make_score is None else make_score()
    num_seen = 0
    start = time.perf_counter()
    for batch in loader:
        image, mask = batch if isinstance(batch, list) else (batch["image"], batch["mask"])
        num_seen += len(image)
        if score is not None:
            score.update(mask.roll(1, -1).clamp(max=len(CLASSES) - 1), mask)
    if score is not None:
        value = score.compute()
        assert 0.5 < value <= 1, value
    assert num_seen == num_faces
    return num_faces / (time.perf_counter() - start)
