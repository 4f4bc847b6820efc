"""Augmentation on the device: batched, keyed by the sample, without a word back to the host.

signal/            transforms of signals       image/         transforms of images and their masks
volume/            volumes and their masks     mix/           mixing samples with each other
_transform.py      what a transform declares   _blur.py       Gaussian blur of each sample
_pipeline.py       transforms in a row         _stages.py     running them, on some rows or on all
_distributions.py  what is drawn from          _layout.py     which random number is whose
_draws.py          what was drawn              _keys.py       random bits from numbers
_geometry.py       movements as matrices       _noise.py      noise for every element
_registry.py       transforms by name          _config.py     pipelines as plain data
_presets.py        ready policies              preview/       pictures of what a pipeline does
_parts.py          large batches in parts      _memory.py     memory that is used again
_operations.py     transforms as operations    _kernels.py    the loop over them, compiled by numba
_sampling.py       reading where a matrix looks, with compiled loops of its own (_sampling_kernels.py)
"""

from stoker.augment import image, mix, signal, volume
from stoker.augment._distributions import (
    Choice,
    Distribution,
    Draw,
    Integers,
    LogUniform,
    Normal,
    Uniform,
    distribution,
)
from stoker.augment._draws import Draws, Params
from stoker.augment._geometry import Geometric, Sampling
from stoker.augment._noise import normal_noise, uniform_noise
from stoker.augment._pipeline import Pipeline
from stoker.augment._presets import preset
from stoker.augment._registry import register, registered
from stoker.augment._transform import Mixing, Role, Transform

__all__ = [
    "Choice",
    "Distribution",
    "Draw",
    "Draws",
    "Geometric",
    "Integers",
    "LogUniform",
    "Mixing",
    "Normal",
    "Params",
    "Pipeline",
    "Role",
    "Sampling",
    "Transform",
    "Uniform",
    "distribution",
    "image",
    "mix",
    "normal_noise",
    "preset",
    "register",
    "registered",
    "signal",
    "uniform_noise",
    "volume",
]
