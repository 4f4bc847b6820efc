"""Stoker: signals, images and volumes, a batch at a time."""

import itertools
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from peers import augment_tasks
from peers.augment_serving import Task, num_threads, serve
from peers.augment_tasks import CHANNEL_TASKS, POLICY, Arrays
from stoker.augment import Pipeline, Role, Transform, signal


def prepare(arrays: Arrays) -> Mapping[str, Task]:
    """Tasks for what the arrays are."""
    torch.set_num_threads(num_threads())
    if "signal" in arrays:
        return _signals(arrays)
    kind = "image" if "image" in arrays else "volume"
    if find_spec(f"stoker.augment.{kind}") is None:
        return {}  # said as missing; one that is there and cannot be imported is an error
    library: Any = import_module(f"stoker.augment.{kind}")
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    made = (_images if kind == "image" else _volumes)(library, batch[kind].shape[-1])
    tasks: dict[str, Task] = {}
    for name, transforms in made.items():
        roles: dict[str, Role] = {kind: kind}  # type: ignore[dict-item] # both are roles
        if any("mask" in transform.roles for transform in transforms):
            roles["mask"] = "mask"
        tasks[name] = Run(Pipeline(*transforms, roles=roles), batch)
    return tasks


class Run:
    """A batch augmented, in a new epoch each time."""

    def __init__(self, pipeline: Pipeline, batch: Mapping[str, Tensor]) -> None:
        self._pipeline = pipeline
        self._batch = dict(batch)
        self._index = np.arange(len(next(iter(batch.values()))))
        self._epochs = itertools.count()

    def __call__(self) -> Any:
        """One batch."""
        return self._pipeline(self._batch, index=self._index, epoch=next(self._epochs))


class CompiledRun:
    """The same, compiled as a whole: parameters are drawn inside."""

    def __init__(self, pipeline: Pipeline, batch: Mapping[str, Tensor]) -> None:
        self._call = torch.compile(pipeline, fullgraph=True, dynamic=False)
        self._batch = dict(batch)
        self._index = torch.arange(len(next(iter(batch.values()))))
        self._epochs = itertools.count()

    def __call__(self) -> Any:
        """One batch."""
        return self._call(self._batch, index=self._index, epoch=torch.tensor(next(self._epochs)))


class FinishedRun(Run):
    """On a GPU; with the time until it is done."""

    def __call__(self) -> Any:
        """One batch."""
        made = super().__call__()
        torch.cuda.synchronize()
        return made


def _signals(arrays: Arrays) -> dict[str, Task]:
    r = augment_tasks.Signal()
    rate = r.sample_rate
    batch = {"x": torch.from_numpy(arrays["signal"])}
    num_channels, length = batch["x"].shape[1:]
    transforms: dict[str, Transform] = {
        "TimeShift": signal.TimeShift(r.shift),
        "AmplitudeScale": signal.AmplitudeScale(r.factor),
        "GaussianNoise": signal.GaussianNoise(r.snr_db),
        "TimeMask": signal.TimeMask(r.mask_length),
        "FrequencyMask": signal.FrequencyMask(r.band),
        "FrequencyMask, smooth": signal.FrequencyMask(r.band, smooth=True),
        "Speed": signal.Speed(r.rate),
        "TimeWarp": signal.TimeWarp(r.warp),
        "LowPass": signal.LowPass(rate, r.low_pass),
        "HighPass": signal.HighPass(rate, r.high_pass),
        "BandPass": signal.BandPass(rate, r.band_low, r.band_high),
        "BandStop": signal.BandStop(rate, r.band_low, r.band_high),
        "Resample": signal.Resample(r.resample),
        "Polarity": signal.Polarity(p=1.0),
        "BaselineWander": signal.BaselineWander(rate, r.wander),
        "PowerlineNoise": signal.PowerlineNoise(rate, r.hum),
        "Crop": signal.Crop(round(r.kept * length)),
        "Standardize": signal.Standardize(),
        "ChannelDropout": signal.ChannelDropout(r.drop),
        "ChannelShuffle": signal.ChannelShuffle(),
        "ChannelRoll": signal.ChannelRoll(1),
    }
    roles: dict[str, Role] = {"x": "signal"}
    tasks: dict[str, Task] = {
        name: Run(Pipeline(transform, roles=roles), batch)
        for name, transform in transforms.items()
        if num_channels > 1 or name not in CHANNEL_TASKS
    }
    tasks[f"{POLICY}, eager"] = Run(_policy(static=False), batch)
    tasks[f"{POLICY}, static"] = Run(_policy(static=True), batch)
    tasks[f"{POLICY}, compiled"] = CompiledRun(_policy(static=True), batch)
    if torch.cuda.is_available():
        there = {"x": batch["x"].cuda()}
        tasks[f"{POLICY}, eager on the GPU"] = FinishedRun(_policy(static=False).cuda(), there)
    return tasks


def _policy(*, static: bool) -> Pipeline:
    """The six transforms for heart sounds."""
    r = augment_tasks.Signal()
    return Pipeline(
        signal.TimeShift(r.shift, p=r.shift_p),
        signal.Speed(r.rate, p=r.rate_p),
        signal.AmplitudeScale(r.factor, p=r.factor_p),
        signal.GaussianNoise(r.snr_db, p=r.snr_p),
        signal.TimeMask(r.mask_length, num_masks=r.num_masks, p=r.mask_p),
        signal.FrequencyMask(r.band, p=r.band_p),
        roles={"x": "signal"},
        static=static,
    )


def _images(library: Any, edge: int) -> dict[str, list[Transform]]:
    r = augment_tasks.Image()
    affine = {"rotate": r.degrees, "scale": r.scale, "translate": r.translate, "shear": r.shear}
    color = {
        "brightness": r.brightness,
        "contrast": r.contrast,
        "saturation": r.saturation,
        "hue": r.hue,
    }
    return {
        "HorizontalFlip": [library.HorizontalFlip(p=1.0)],
        "VerticalFlip": [library.VerticalFlip(p=1.0)],
        "Affine": [library.Affine(**affine)],
        "RandomResizedCrop": [library.RandomResizedCrop(edge, scale=r.crop_scale, ratio=r.crop_ratio)],
        "ColorJitter": [library.ColorJitter(**color)],
        "GaussianBlur": [library.GaussianBlur(r.sigma)],
        "GaussianNoise": [library.GaussianNoise(r.noise)],
        "Erase": [library.Erase(r.erase_scale, ratio=r.erase_ratio, p=1.0)],
        "Normalize": [library.Normalize(r.mean, r.std)],
        POLICY: [
            library.HorizontalFlip(p=r.flip_p),
            library.Affine(**affine, p=r.affine_p),
            library.ColorJitter(**color, p=r.color_p),
            library.GaussianBlur(r.sigma, p=r.blur_p),
        ],
    }


def _volumes(library: Any, edge: int) -> dict[str, list[Transform]]:
    r = augment_tasks.Volume()
    affine = {"rotate": r.degrees, "scale": r.scale, "translate": r.translate}
    return {
        "Flip": [library.Flip(r.flip_p, r.flip_p, r.flip_p)],
        "Affine3D": [library.Affine3D(**affine)],
        "IntensityScale": [library.IntensityScale(r.factor)],
        "IntensityShift": [library.IntensityShift(r.offset)],
        "Gamma": [library.Gamma(r.gamma)],
        "GaussianNoise": [library.GaussianNoise(r.noise)],
        "GaussianBlur": [library.GaussianBlur(r.sigma)],
        "Crop": [library.Crop([round(r.kept * edge)] * 3)],
        POLICY: [
            library.Flip(r.flip_p, r.flip_p, r.flip_p),
            library.Affine3D(**affine, p=r.affine_p),
            library.IntensityScale(r.factor, p=r.factor_p),
            library.Gamma(r.gamma, p=r.gamma_p),
            library.GaussianNoise(r.noise, p=r.noise_p),
            library.GaussianBlur(r.sigma, p=r.blur_p),
        ],
    }


if __name__ == "__main__":
    serve("stoker", prepare)
