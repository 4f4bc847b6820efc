"""Adding what a recording adds: noise, wander of the baseline, hum of the mains."""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from stoker.augment._distributions import Choice, Draw, Uniform, distribution
from stoker.augment._draws import Params
from stoker.augment._noise import with_noise
from stoker.augment._operations import Operation, noisy
from stoker.augment._registry import register
from stoker.augment._transform import Declared, Role, Transform
from stoker.augment.signal._units import root_mean_square
from stoker.errors import UsageError

_NEPER = math.log(10) / 20  # one decibel of amplitude, as the exponent of e
_STRIDE = 128  # samples from start to start: few sines, and loops over steps that are long enough


@register("signal")
class GaussianNoise(Transform):
    """Add white noise at a signal-to-noise ratio, independent over channels and time.

    The signal's power is the mean square of the sample, over all its channels. At a ratio of inf it stays as
    it is.

    Args:
        snr_db: a pair, a distribution, or a number for always the same; in decibels.
        p: probability that a sample is changed.
    """

    roles = ("signal",)
    neutral: ClassVar = {"snr_db": math.inf}
    loops = True
    looks = True  # at the power of a sample

    def __init__(self, snr_db: Draw = (20, 40), *, p: float = 1.0) -> None:
        self.snr_db = distribution(snr_db, "snr_db")
        super().__init__(p=p, draws={"snr_db": self.snr_db}, num_noises=1)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        std = root_mean_square(x) * self._ratio(x, params)
        return with_noise(x, std[:, None, None], params.noise_keys[:, 0])

    def operations(self, x: Tensor, params: Params, role: Role) -> Sequence[Operation]:  # noqa: ARG002
        """See the base class."""
        ratio = self._ratio(x, params)
        std = (root_mean_square(x) * ratio).masked_fill_(ratio == 0, 0)  # of a row that is not finite, too
        return [noisy(std.numpy(), params.noise_keys[:, 0].numpy())]

    def _ratio(self, x: Tensor, params: Params) -> Tensor:
        """Of the noise to the signal: [B]."""
        return torch.exp(params["snr_db"].double() * -_NEPER).to(x.dtype)


@register("signal")
class BaselineWander(Transform):
    """Add a slow drift, such as breathing puts under an ECG: a sum of sines of random frequencies.

    Args:
        sample_rate: of the signals, in Hz.
        amplitude: of the drift (its root mean square, about) relative to the sample's own; a number n
            for 0 to n, a pair or a distribution.
        frequency: of each sine, in Hz.
        num_sines: how many are added.
        p: probability that a sample is changed.
    """

    roles = ("signal",)

    def __init__(
        self,
        sample_rate: float,
        amplitude: Draw = 0.3,
        *,
        frequency: Draw = (0.05, 0.5),
        num_sines: int = 3,
        p: float = 1.0,
    ) -> None:
        self.sample_rate = _check_rate(sample_rate)
        self.amplitude = distribution(amplitude, "amplitude", number="up to")
        self.frequency = distribution(frequency, "frequency", within=(0, sample_rate / 2))
        self.num_sines = _check_count("num_sines", num_sines)
        draws: Declared = {
            "amplitude": self.amplitude,
            "frequency": (self.frequency, num_sines),
            "phase": (Uniform(0, 1), num_sines),
        }
        super().__init__(p=p, draws=draws)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        turns = params["frequency"].double() / self.sample_rate
        strength = torch.ones((), dtype=torch.float64, device=x.device).expand(turns.shape)
        drift = sum_of_sines(turns, params["phase"].double(), strength, x)
        height = params.like("amplitude", x) * math.sqrt(2 / self.num_sines)
        return x + drift[:, None] * (root_mean_square(x)[:, None, None] * height)


@register("signal")
class PowerlineNoise(Transform):
    """Add the hum of the mains and its harmonics, the h-th of them 1/h as strong.

    Harmonics at or above half the sample rate are left out.

    Args:
        sample_rate: of the signals, in Hz.
        amplitude: of the fundamental (its root mean square) relative to the sample's own; a number n
            for 0 to n, a pair or a distribution.
        frequency: of the mains, in Hz; by default 50 or 60.
        num_harmonics: how many besides the fundamental.
        p: probability that a sample is changed.
    """

    roles = ("signal",)

    def __init__(
        self,
        sample_rate: float,
        amplitude: Draw = 0.1,
        *,
        frequency: Draw = Choice(50, 60),  # noqa: B008 - immutable
        num_harmonics: int = 2,
        p: float = 1.0,
    ) -> None:
        self.sample_rate = _check_rate(sample_rate)
        self.amplitude = distribution(amplitude, "amplitude", number="up to")
        self.frequency = distribution(frequency, "frequency", within=(0, sample_rate / 2))
        self.num_harmonics = (
            num_harmonics if num_harmonics == 0 else _check_count("num_harmonics", num_harmonics)
        )
        draws: Declared = {
            "amplitude": self.amplitude,
            "frequency": self.frequency,
            "phase": (Uniform(0, 1), 1 + num_harmonics),
        }
        super().__init__(p=p, draws=draws)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        order = torch.arange(1, self.num_harmonics + 2, dtype=torch.float64, device=x.device)
        turns = params["frequency"].double()[:, None] * (order / self.sample_rate)
        strength = (turns < 0.5) / order
        hum = sum_of_sines(turns, params["phase"].double(), strength, x)
        height = params.like("amplitude", x) * math.sqrt(2)
        return x + hum[:, None] * (root_mean_square(x)[:, None, None] * height)


def sum_of_sines(turns: Tensor, phase: Tensor, strength: Tensor, x: Tensor) -> Tensor:
    """Sines of these frequencies (turns a sample) and phases (turns), added up: [B, T] for x [B, C, T].

    A time is a start and a step from there, and sin(start + step) = sin(start)·cos(step) +
    cos(start)·sin(step). So sines are needed of every 128th sample and of 128 steps only; in float64, where
    a phase stays exact over hours.

    Shape: all but x float64 [B, n].
    """
    length = x.shape[-1]
    starts = torch.arange(0, length, _STRIDE, dtype=torch.float64, device=x.device)
    steps = torch.arange(_STRIDE, dtype=torch.float64, device=x.device)
    alpha = (starts * turns[:, :, None] + phase[:, :, None]) * (2 * math.pi)
    beta = (steps * turns[:, :, None]) * (2 * math.pi)
    strength = strength[:, :, None]
    slow = torch.cat([torch.sin(alpha) * strength, torch.cos(alpha) * strength], 1).to(x.dtype)
    fast = torch.cat([torch.cos(beta), torch.sin(beta)], 1).to(x.dtype)
    total: Tensor | None = None
    for number in range(slow.shape[1]):  # one by one: the bits of a matrix product may depend on the batch
        part = slow[:, number, :, None] * fast[:, number, None]
        total = part if total is None else total + part
    assert total is not None
    return total.flatten(1)[:, :length]


def _check_rate(sample_rate: float) -> float:
    if not 0 < sample_rate < math.inf:
        raise UsageError(f"sample_rate must be above 0 Hz, got {sample_rate}")
    return sample_rate


def _check_count(name: str, count: int) -> int:
    if count < 1:
        raise UsageError(f"{name} must be at least 1, got {count}")
    return count
