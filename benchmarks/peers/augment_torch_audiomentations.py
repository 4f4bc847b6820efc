"""torch-audiomentations: torch tensors, a batch at a time, each sample with its own parameters.

It imports torchaudio for reading files and for changing the pitch, neither of which is measured. An
empty stand-in takes its place, since there is no build of it for this torch without a GPU's libraries.
"""

import math
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from peers.augment_serving import Task, num_threads, serve
from peers.augment_tasks import Arrays, Signal

R = Signal()


def prepare(arrays: Arrays) -> Mapping[str, Task]:
    """What has the same effect as Stoker's.

    Its filters are windowed-sinc ones, not Butterworth's, so they are left out. Its noise is one second
    of white noise, repeated and the same for all channels: equal only for one channel and one second.
    """
    torch.set_num_threads(num_threads())
    sys.modules["torchaudio"] = ModuleType("torchaudio")
    sys.modules["torchaudio.transforms"] = ModuleType("torchaudio.transforms")
    sys.modules["torchaudio"].transforms = sys.modules["torchaudio.transforms"]  # type: ignore[attr-defined]
    library: Any = import_module("torch_audiomentations")
    x = torch.from_numpy(arrays["signal"])
    every = {"mode": "per_example", "p": 1.0, "sample_rate": x.shape[-1], "output_type": "dict"}
    decibels = [20 * math.log10(factor) for factor in R.factor]
    transforms = {
        "TimeShift": library.Shift(-R.shift, R.shift, rollover=True, **every),
        "AmplitudeScale": library.Gain(*decibels, **every),
        "Polarity": library.PolarityInversion(**every),
    }
    if x.shape[1] == 1:
        # a decay of 0 is white
        transforms["GaussianNoise"] = library.AddColoredNoise(*R.snr_db, 0.0, 0.0, **every)
    else:
        transforms["ChannelShuffle"] = library.ShuffleChannels(**every)
    return {name: partial(_batch, x, transform) for name, transform in transforms.items()}


def _batch(x: Tensor, transform: Any) -> Tensor:
    changed: Tensor = transform(x).samples
    return changed


if __name__ == "__main__":
    serve("torch-audiomentations", prepare)
