"""audiomentations: NumPy arrays, a sample at a time."""

import math
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from peers.augment_serving import Task, num_threads, serve
from peers.augment_tasks import Array, Arrays, Signal

R = Signal()


def prepare(arrays: Arrays) -> Mapping[str, Task]:
    """What has the same effect as Stoker's; nothing else changes the speed without keeping the pitch."""
    torch.set_num_threads(num_threads())
    library: Any = import_module("audiomentations")
    x = arrays["signal"]
    decibels = [20 * math.log10(factor) for factor in R.factor]
    # 48 dB an octave with zero phase is order 4 forwards and backwards, by sosfiltfilt
    filtering = {"min_rolloff": 48, "max_rolloff": 48, "zero_phase": True, "p": 1.0}
    # a band is drawn by its centre and its width as a part of that
    band = {"min_center_freq": 100, "max_center_freq": 200, **filtering}
    band |= {"min_bandwidth_fraction": 1.2, "max_bandwidth_fraction": 1.5}
    transforms = {
        "TimeShift": library.Shift(-R.shift, R.shift, rollover=True, fade_duration=0.0, p=1.0),
        "AmplitudeScale": library.Gain(*decibels, p=1.0),
        "GaussianNoise": library.AddGaussianSNR(*R.snr_db, p=1.0),
        "TimeMask": library.TimeMask(0.0, R.mask_length / x.shape[-1], fade_duration=0.0, p=1.0),
        "LowPass": library.LowPassFilter(*R.low_pass, **filtering),
        "HighPass": library.HighPassFilter(*R.high_pass, **filtering),
        "BandPass": library.BandPassFilter(**band),
        "BandStop": library.BandStopFilter(**band),
        "Polarity": library.PolarityInversion(p=1.0),
    }
    return {name: partial(_batch, x, transform) for name, transform in transforms.items()}


def _batch(x: Array, transform: Any) -> Tensor:
    return torch.from_numpy(np.stack([transform(samples=sample, sample_rate=R.sample_rate) for sample in x]))


if __name__ == "__main__":
    serve("audiomentations", prepare)
