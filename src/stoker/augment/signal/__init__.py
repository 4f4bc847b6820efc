"""Transforms of signals [B, C, T]; a sample's channels share its parameters unless said otherwise.

_windows.py     TimeShift, Crop                 _tempo.py       Speed, TimeWarp
_amplitude.py   scale, polarity, Standardize    _positions.py   reading between samples
_noises.py      noise, wander, mains            _filters.py     four zero-phase filters
_masks.py       TimeMask, FrequencyMask         _zero_phase.py  their derivation and kernel
_channels.py    dropout, shuffle, roll          _resample.py    a lower sample rate and back
_spectrum.py    edges and lengths               _units.py       samples and fractions, statistics
"""

from stoker.augment.signal._amplitude import AmplitudeScale, Polarity, Standardize
from stoker.augment.signal._channels import ChannelDropout, ChannelRoll, ChannelShuffle
from stoker.augment.signal._filters import BandPass, BandStop, HighPass, LowPass
from stoker.augment.signal._masks import FrequencyMask, TimeMask
from stoker.augment.signal._noises import BaselineWander, GaussianNoise, PowerlineNoise
from stoker.augment.signal._resample import Resample
from stoker.augment.signal._tempo import Speed, TimeWarp
from stoker.augment.signal._windows import Crop, TimeShift

__all__ = [
    "AmplitudeScale",
    "BandPass",
    "BandStop",
    "BaselineWander",
    "ChannelDropout",
    "ChannelRoll",
    "ChannelShuffle",
    "Crop",
    "FrequencyMask",
    "GaussianNoise",
    "HighPass",
    "LowPass",
    "Polarity",
    "PowerlineNoise",
    "Resample",
    "Speed",
    "Standardize",
    "TimeMask",
    "TimeShift",
    "TimeWarp",
]
