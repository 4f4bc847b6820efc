"""What every augmenter is asked to do: the tasks by name, their ranges, and the data they get.

A task is named after Stoker's transform, and always means one batch with every sample changed (p = 1),
each by its own parameters; "policy" is several transforms in a row, each with its own p. An augmenter
offers a task only where it has the same mathematical effect. Ranges are the same for all; where a
library draws on another scale (decibels, mels) its range covers the same values.

Runs in every peer's environment, so it needs NumPy only.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]

SIGNAL_TASKS = (
    "TimeShift",
    "AmplitudeScale",
    "GaussianNoise",
    "TimeMask",
    "FrequencyMask",
    "FrequencyMask, smooth",
    "Speed",
    "TimeWarp",
    "LowPass",
    "HighPass",
    "BandPass",
    "BandStop",
    "Resample",
    "Polarity",
    "BaselineWander",
    "PowerlineNoise",
    "Crop",
    "Standardize",
)
CHANNEL_TASKS = ("ChannelDropout", "ChannelShuffle", "ChannelRoll")  # where there are several
IMAGE_TASKS = (
    "HorizontalFlip",
    "VerticalFlip",
    "Affine",
    "RandomResizedCrop",
    "ColorJitter",
    "GaussianBlur",
    "GaussianNoise",
    "Erase",
    "Normalize",
)
VOLUME_TASKS = (
    "Flip",
    "Affine3D",
    "IntensityScale",
    "IntensityShift",
    "Gamma",
    "GaussianNoise",
    "GaussianBlur",
    "Crop",
)
TASKS = {
    "signal": (*SIGNAL_TASKS, *CHANNEL_TASKS),
    "image": IMAGE_TASKS,
    "volume": VOLUME_TASKS,
}
POLICY = "policy"  # a task's name may go on after it: ", compiled"


@dataclass(frozen=True)
class Signal:
    """Ranges for signals; the first six with the probabilities that the policy gives them."""

    shift: float = 0.1  # of the length, both ways, circular
    shift_p: float = 0.8
    rate: tuple[float, float] = (0.9, 1.1)  # linear interpolation, the middle stays, zeros around
    rate_p: float = 0.5
    factor: tuple[float, float] = (0.8, 1.2)
    factor_p: float = 0.8
    snr_db: tuple[float, float] = (20, 40)  # white noise against the sample's own power
    snr_p: float = 0.5
    mask_length: int = 150  # samples set to zero, from 0 to so many
    num_masks: int = 2  # in the policy; one alone
    mask_p: float = 0.5
    band: float = 0.15  # of the spectrum's bins set to zero, from 0 to so many
    band_p: float = 0.3
    sample_rate: int = 2000  # Hz, for what follows
    low_pass: tuple[float, float] = (150, 500)  # Hz; zero phase, order 4 forwards and backwards
    high_pass: tuple[float, float] = (20, 60)
    band_low: tuple[float, float] = (25, 60)
    band_high: tuple[float, float] = (150, 350)
    resample: tuple[float, float] = (0.5, 1.0)
    warp: float = 0.2
    wander: float = 0.3
    hum: float = 0.1
    drop: float = 0.1
    kept: float = 0.75  # of the length, by a crop


@dataclass(frozen=True)
class Image:
    """Ranges for images, with the policy's probabilities; masks move along, by the nearest pixel."""

    flip_p: float = 0.5
    degrees: float = 15.0
    scale: tuple[float, float] = (0.9, 1.1)
    translate: float = 0.05  # of the size, both ways
    shear: float = 5.0  # degrees, of upright edges
    affine_p: float = 0.8
    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.2
    hue: float = 0.05  # of the circle
    color_p: float = 0.8
    sigma: tuple[float, float] = (0.5, 2.0)  # pixels
    blur_p: float = 0.3
    noise: float = 0.05  # standard deviation, of values from 0 to 1
    crop_scale: tuple[float, float] = (0.3, 1.0)  # share of the area, brought back to full size
    crop_ratio: tuple[float, float] = (0.75, 4 / 3)
    erase_scale: tuple[float, float] = (0.02, 0.2)  # share of the area, set to zero
    erase_ratio: tuple[float, float] = (0.3, 1 / 0.3)
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Volume:
    """Ranges for volumes, with the policy's probabilities; masks move along, by the nearest voxel."""

    flip_p: float = 0.5  # for each of the three axes
    degrees: float = 15.0  # about each axis
    scale: tuple[float, float] = (0.9, 1.1)
    translate: float = 0.05  # of the size, both ways
    affine_p: float = 0.5
    factor: tuple[float, float] = (0.9, 1.1)
    factor_p: float = 0.5
    offset: float = 0.1
    gamma: tuple[float, float] = (0.7, 1.5)
    gamma_p: float = 0.3
    noise: float = 0.05  # standard deviation, from 0 to so much
    noise_p: float = 0.3
    sigma: tuple[float, float] = (0.5, 1.0)  # voxels
    blur_p: float = 0.2
    kept: float = 0.75  # of each edge, by a crop


def write_signals(folder: Path, shape: tuple[int, int, int]) -> None:
    """[B, C, T] float32, within ±1."""
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0).standard_normal(shape, np.float32)
    np.save(folder / "signal.npy", (0.1 * noise).clip(-1, 1))


def write_images(folder: Path, num_images: int, edge: int) -> None:
    """[B, 3, H, W] uint8 and masks [B, H, W] of 19 classes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    np.save(folder / "image.npy", rng.integers(0, 256, (num_images, 3, edge, edge), np.uint8))
    np.save(folder / "mask.npy", rng.integers(0, 19, (num_images, edge, edge), np.uint8))


def write_volumes(folder: Path, num_volumes: int, edge: int) -> None:
    """[B, 1, D, H, W] float32 from 0 to 1 and masks [B, D, H, W] of 5 classes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    np.save(folder / "volume.npy", rng.random((num_volumes, 1, edge, edge, edge), np.float32))
    np.save(folder / "mask.npy", rng.integers(0, 5, (num_volumes, edge, edge, edge), np.uint8))


def read(folder: Path) -> Arrays:
    """The arrays that were written there, in memory."""
    return {path.stem: np.load(path) for path in sorted(folder.glob("*.npy"))}
