"""Running signals faster, slower or unevenly."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from stoker.augment._distributions import Draw, Uniform, distribution
from stoker.augment._draws import Params
from stoker.augment._operations import Operation, resampled
from stoker.augment._registry import register
from stoker.augment._transform import Role, Transform
from stoker.augment.signal._masks import filtered
from stoker.augment.signal._positions import ONE, interpolated, nearest, places
from stoker.augment.signal._spectrum import extended, extension, fast_length
from stoker.augment.signal._units import Numbers
from stoker.errors import UsageError

_EDGE = 0.05  # of the filter against aliasing, as a fraction of half the sample rate


@register("signal")
class Speed(Transform):
    """Play signals faster or slower by resampling: pitch changes along with tempo. T stays.

    What is longer than T is cut; what is shorter has zeros around it (`ignore` in masks). Between
    samples it is interpolated linearly. Masks [B, T] or [B, C, T] follow the same map, by the nearest.

    Args:
        rate: 2 is twice as fast, half as long; a pair, a distribution, or a number for always the same.
        align: "center" keeps the middle in its place, "start" the first sample.
        antialias: take out, before a rate above 1, what would lie above half the sample rate after.
            Worth its Fourier transforms where the rate is far above 1, or signals are rich up there.
        return_length: add the fields NAME_start and NAME_length, int64 [B]: the part of the result that
            shows the signal.
        ignore: what masks get where there was nothing.
        p: probability that a sample is changed.
    """

    roles = ("signal", "mask")
    neutral: ClassVar = {"rate": 1.0}
    looks = False  # extras ask for the length only, which those before it keep

    def __init__(
        self,
        rate: Draw = (0.9, 1.1),
        *,
        align: Literal["center", "start"] = "center",
        antialias: bool = False,
        return_length: bool = False,
        ignore: int = 255,
        p: float = 1.0,
    ) -> None:
        self.rate = distribution(rate, "rate", within=(1 / 64, 64))
        super().__init__(p=p, draws={"rate": self.rate})
        if align not in {"center", "start"}:
            raise UsageError(f"align must be 'center' or 'start', got {align!r}")
        self.align = align
        self.antialias = antialias
        self.loops = not antialias
        self.return_length = return_length
        self.ignore = ignore

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:
        """See the base class."""
        step = (params["rate"].double() * ONE).to(torch.int64)  # exact
        place = places(self._first(step, x.shape[-1]), step, x.shape[-1])
        if role == "mask":
            return nearest(x, place, self.ignore)
        if self.antialias and self.rate.bounds[1] > 1:
            x = _below(x, params["rate"])
        return interpolated(x, place)

    def operations(self, x: Tensor, params: Params, role: Role) -> Sequence[Operation]:
        """See the base class."""
        step = (params.on_host("rate") * float(ONE)).astype(np.int64)  # exact, in float32 too: a power of two
        fill = self.ignore if role == "mask" else 0
        return [resampled(self._first(step, x.shape[-1]), step, fill)]

    def extras(self, fields: Mapping[str, Tensor], params: Params) -> dict[str, Tensor]:
        """Where the signal is, if asked for."""
        if not self.return_length:
            return {}
        found: dict[str, Tensor] = {}
        for name, x in fields.items():
            last, rate = x.shape[-1] - 1, params["rate"].double().clamp(min=1)
            middle = last / 2 if self.align == "center" else 0.0
            start = torch.ceil(middle - middle / rate).to(torch.int64)
            end = torch.floor(middle + (last - middle) / rate).to(torch.int64) + 1
            found |= {f"{name}_start": start, f"{name}_length": end - start}
        return found

    def _first(self, step: Numbers, length: int) -> Numbers:
        """The place that is shown first, of each sample, where places are a step from each other."""
        still = length - 1 if self.align == "center" else 0  # twice the sample that stays where it is
        return (ONE - step) * still >> 1


@register("signal")
class TimeWarp(Transform):
    """Stretch some parts of a signal and squeeze others, smoothly; its ends stay where they are.

    The place that is shown at time t is t plus a sum of sines which vanishes at both ends and whose
    slope never exceeds the strength: so time never runs backwards. Masks follow the same map.

    Args:
        strength: greatest change of the local speed, below 1; a number n for 0 to n, a pair or a
            distribution.
        num_waves: sines in the sum; more of them vary faster.
        p: probability that a sample is changed.
    """

    roles = ("signal", "mask")
    neutral: ClassVar = {"strength": 0.0}

    def __init__(self, strength: Draw = 0.2, *, num_waves: int = 4, p: float = 1.0) -> None:
        self.strength = distribution(strength, "strength", number="up to", within=(0, 0.99))
        if num_waves < 1:
            raise UsageError(f"num_waves must be at least 1, got {num_waves}")
        super().__init__(p=p, draws={"strength": self.strength, "wave": (Uniform(-1, 1), num_waves)})
        self.num_waves = num_waves

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:
        """See the base class."""
        length = x.shape[-1]
        time = torch.arange(length, device=x.device)
        angle = time.double() * (math.pi / max(1, length - 1))
        moved = torch.zeros((), dtype=torch.float64, device=x.device)
        for number in range(self.num_waves):
            order = number + 1
            wave = torch.sin(angle * order) * (max(1, length - 1) / (math.pi * order * self.num_waves))
            moved = moved + params["wave"][:, number, None].double() * wave
        moved = moved * params["strength"][:, None].double()
        place = (time << 32) + (moved * ONE).to(torch.int64)
        place = place.clamp_(0, max(0, length - 1) << 32)
        return nearest(x, place, 0) if role == "mask" else interpolated(x, place)


def _below(x: Tensor, rate: Tensor) -> Tensor:
    """X without what a rate above 1 would fold back; the filter's edge is half a cosine."""
    length = x.shape[-1]
    pad = extension(length, _EDGE)
    total = fast_length(length + 2 * pad)
    frequency = torch.arange(total // 2 + 1, dtype=torch.float32, device=x.device) * (2 / total)
    above = (frequency - (1 / rate - _EDGE)[:, None]) / _EDGE
    gain = 0.5 + 0.5 * torch.cos(math.pi * above.clamp(0, 1))
    gain = torch.where((rate > 1)[:, None], gain, torch.ones_like(gain)).to(x.dtype)
    return filtered(extended(x, pad), gain, total)[..., pad : pad + length]
