"""NumPy and SciPy, a sample at a time, as datasets do it: vectorised within the sample."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import numpy as np
import scipy.signal
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from peers.augment_serving import Task, num_threads, serve
from peers.augment_tasks import CHANNEL_TASKS, POLICY, Arrays, Signal

R = Signal()
Floats = NDArray[np.float32]
Kind = Literal["lowpass", "highpass", "bandpass", "bandstop"]
Change = Callable[[Floats, np.random.Generator], Floats]
"""Changes a sample [C, T]."""

_LOADER_BATCHES = 4  # an epoch of the DataLoader


def prepare(arrays: Arrays) -> Mapping[str, Task]:
    """Signals only."""
    torch.set_num_threads(num_threads())
    x = arrays["signal"]
    alone = {name: partial(_batch, x, change, np.random.default_rng(0)) for name, change in _CHANGES.items()}
    if x.shape[1] == 1:
        alone = {name: task for name, task in alone.items() if name not in CHANNEL_TASKS}
    return {
        **alone,
        POLICY: partial(_batch, x, policy, np.random.default_rng(0)),
        f"{POLICY}, scipy.signal.resample": partial(_batch, x, _scipy_policy, np.random.default_rng(0)),
        f"{POLICY}, 2 workers": _Epochs(x),
    }


def _batch(x: Floats, change: Change, rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(np.stack([change(sample, rng) for sample in x]))


class _Samples(Dataset[Floats]):
    """The policy where people put it: in the dataset."""

    def __init__(self, x: Floats) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x) * _LOADER_BATCHES

    def __getitem__(self, i: int) -> Floats:
        return policy(self.x[i % len(self.x)], np.random.default_rng(i))


class _Epochs:
    """Each call is an epoch of a DataLoader whose workers stay; gives its number of batches."""

    def __init__(self, x: Floats) -> None:
        self._x = x
        self._loader: DataLoader[Floats] | None = None  # its processes start when first asked for

    def __call__(self) -> int:
        if self._loader is None:
            self._loader = DataLoader(
                _Samples(self._x), batch_size=len(self._x), num_workers=2, persistent_workers=True
            )
        return sum(1 for _ in self._loader)


def policy(x: Floats, rng: np.random.Generator) -> Floats:
    """The six transforms."""
    return _policy(x, rng, speed)


def _scipy_policy(x: Floats, rng: np.random.Generator) -> Floats:
    """With a band-limited resampling for speed, the other common choice."""
    return _policy(x, rng, _speed_by_resample)


def _policy(x: Floats, rng: np.random.Generator, play: Change) -> Floats:
    if rng.random() < R.shift_p:
        x = shift(x, rng)
    if rng.random() < R.rate_p:
        x = play(x, rng)
    if rng.random() < R.factor_p:
        x = scale(x, rng)
    if rng.random() < R.snr_p:
        x = noise(x, rng)
    if rng.random() < R.mask_p:
        x = time_mask(x, rng, num_masks=R.num_masks)
    if rng.random() < R.band_p:
        x = frequency_mask(x, rng)
    return x


def shift(x: Floats, rng: np.random.Generator) -> Floats:
    """Circular."""
    most = round(R.shift * x.shape[-1])
    return np.roll(x, int(rng.integers(-most, most + 1)), -1)


def speed(x: Floats, rng: np.random.Generator) -> Floats:
    """Linear interpolation about the middle."""
    middle = (x.shape[-1] - 1) / 2
    return _interpolated(x, (np.arange(x.shape[-1]) - middle) * rng.uniform(*R.rate) + middle)


def _speed_by_resample(x: Floats, rng: np.random.Generator) -> Floats:
    length = x.shape[-1]
    played = scipy.signal.resample(x, round(length / rng.uniform(*R.rate)), axis=-1)
    spare = played.shape[-1] - length
    if spare >= 0:
        return np.ascontiguousarray(played[:, spare // 2 : spare // 2 + length])
    return np.pad(played, ((0, 0), (-spare // 2, -spare - (-spare // 2))))


def scale(x: Floats, rng: np.random.Generator) -> Floats:
    """By a factor."""
    return x * np.float32(rng.uniform(*R.factor))


def noise(x: Floats, rng: np.random.Generator) -> Floats:
    """White."""
    sigma = np.float32(math.sqrt(float(np.mean(x * x))) * 10 ** (-rng.uniform(*R.snr_db) / 20))
    return x + sigma * rng.standard_normal(x.shape, np.float32)


def time_mask(x: Floats, rng: np.random.Generator, *, num_masks: int = 1) -> Floats:
    """Stretches of zeros."""
    x = x.copy()
    for _ in range(num_masks):
        length = int(rng.integers(0, R.mask_length + 1))
        start = int(rng.integers(0, x.shape[-1] - length + 1))
        x[:, start : start + length] = 0
    return x


def frequency_mask(x: Floats, rng: np.random.Generator) -> Floats:
    """Bins of zeros."""
    spectrum = np.fft.rfft(x)
    width = round(rng.uniform(0, R.band) * spectrum.shape[-1])
    start = int(rng.integers(0, spectrum.shape[-1] - width + 1))
    spectrum[:, start : start + width] = 0
    return np.fft.irfft(spectrum, x.shape[-1]).astype(np.float32, copy=False)  # it is already


def _warp(x: Floats, rng: np.random.Generator, *, num_waves: int = 4) -> Floats:
    last = x.shape[-1] - 1
    time, order = np.arange(last + 1), np.arange(1, num_waves + 1)
    waves = np.sin(np.outer(order, time) * (math.pi / last)) * (last / (math.pi * order * num_waves))[:, None]
    moved = rng.uniform(-1, 1, num_waves) @ waves * rng.uniform(0, R.warp)
    return _interpolated(x, np.clip(time + moved, 0, last))


def _interpolated(x: Floats, place: NDArray[np.float64]) -> Floats:
    """Linear, 0 beyond the ends. np.interp takes one channel; several are quicker by their indices."""
    length = x.shape[-1]
    if len(x) == 1:
        one: Floats = np.interp(place, np.arange(length), x[0], left=0, right=0).astype(np.float32)
        return one[None]
    before = np.clip(np.floor(place).astype(np.intp), 0, length - 2)
    share = (place - before).astype(np.float32)
    left, right = x[:, before], x[:, before + 1]
    found: Floats = left + (right - left) * share
    found[:, (place < 0) | (place > length - 1)] = 0
    return found


def _filter(kind: Kind, *ranges: tuple[float, float]) -> Change:
    def change(x: Floats, rng: np.random.Generator) -> Floats:
        cutoffs = [rng.uniform(*each) for each in ranges]
        edges = cutoffs if len(cutoffs) > 1 else cutoffs[0]
        sections = scipy.signal.butter(4, edges, kind, fs=R.sample_rate, output="sos")
        return scipy.signal.sosfiltfilt(sections, x).astype(np.float32)

    return change


def _resample(x: Floats, rng: np.random.Generator) -> Floats:
    length = x.shape[-1]
    fewer = 2 * int(rng.uniform(*R.resample) * length / 2) + 1
    return scipy.signal.resample(scipy.signal.resample(x, fewer, axis=-1), length, axis=-1)


def _wander(x: Floats, rng: np.random.Generator, *, num_sines: int = 3) -> Floats:
    drift = _sines(x.shape[-1], rng, rng.uniform(0.05, 0.5, num_sines)).sum(0)
    return _plus(x, drift, math.sqrt(2 / num_sines) * rng.uniform(0, R.wander))


def _hum(x: Floats, rng: np.random.Generator) -> Floats:
    order = np.arange(1.0, 4.0)
    hum = _sines(x.shape[-1], rng, order * rng.choice([50, 60])) / order[:, None]
    return _plus(x, hum.sum(0), math.sqrt(2) * rng.uniform(0, R.hum))


def _sines(length: int, rng: np.random.Generator, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    turns = np.outer(frequencies, np.arange(length) / R.sample_rate) + rng.random((len(frequencies), 1))
    return np.sin(2 * math.pi * turns)


def _plus(x: Floats, added: NDArray[np.float64], height: float) -> Floats:
    scaled: Floats = (added * (math.sqrt(float(np.mean(x * x))) * height)).astype(np.float32)
    return x + scaled


def _drop(x: Floats, rng: np.random.Generator) -> Floats:
    luck = rng.random(len(x))
    keep: Floats = ((luck >= R.drop) | (luck == luck.max()))[:, None].astype(np.float32)
    return x * keep


def _crop(x: Floats, rng: np.random.Generator) -> Floats:
    length = round(R.kept * x.shape[-1])
    start = int(rng.integers(0, x.shape[-1] - length + 1))
    return x[:, start : start + length]


def _standardize(x: Floats, _: np.random.Generator) -> Floats:
    standard: Floats = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + np.float32(1e-6))
    return standard


_CHANGES: dict[str, Change] = {
    "TimeShift": shift,
    "AmplitudeScale": scale,
    "GaussianNoise": noise,
    "TimeMask": time_mask,
    "FrequencyMask": frequency_mask,
    "Speed": speed,
    "TimeWarp": _warp,
    "LowPass": _filter("lowpass", R.low_pass),
    "HighPass": _filter("highpass", R.high_pass),
    "BandPass": _filter("bandpass", R.band_low, R.band_high),
    "BandStop": _filter("bandstop", R.band_low, R.band_high),
    "Resample": _resample,
    "Polarity": lambda x, _: -x,
    "BaselineWander": _wander,
    "PowerlineNoise": _hum,
    "Crop": _crop,
    "Standardize": _standardize,
    "ChannelDropout": _drop,
    "ChannelShuffle": lambda x, rng: x[rng.permutation(len(x))],
    "ChannelRoll": lambda x, rng: np.roll(x, int(rng.integers(-1, 2)), 0),
}


if __name__ == "__main__":
    serve("scipy", prepare)
