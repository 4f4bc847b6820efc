"""Hiding parts of signals: stretches of time, bands of frequency."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from stoker.augment._distributions import Draw, Uniform, distribution
from stoker.augment._draws import Params
from stoker.augment._operations import Operation, clear, cleared
from stoker.augment._registry import register
from stoker.augment._transform import Role, Transform, on_host
from stoker.augment.signal._spectrum import extended, extension, fast_length
from stoker.augment.signal._units import Numbers, Unit, check_unit
from stoker.errors import UsageError


@register("signal")
class TimeMask(Transform):
    """Set stretches of time to zero, in all channels at once.

    Args:
        length: of a stretch; a number n for 0 to n, a pair or a distribution; rounded to whole samples.
        num_masks: how many; they may overlap.
        unit: "samples", or "fraction" of the length.
        p: probability that a sample is changed.
    """

    roles = ("signal",)
    neutral: ClassVar = {"length": 0.0}
    every_row = True
    writes = True
    loops = True

    def __init__(
        self, length: Draw = 100, *, num_masks: int = 1, unit: Unit = "samples", p: float = 1.0
    ) -> None:
        self.length = distribution(length, "length", number="up to", within=(0, float("inf")))
        draws = {"length": (self.length, num_masks), "start": (Uniform(0, 1), num_masks)}
        super().__init__(p=p, draws=draws)
        self.num_masks = _check_masks(num_masks)
        self.unit = check_unit(unit)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        cut = self._stretches(params["length"], params["start"], x.shape[-1])
        return x.masked_fill(outside_of(*cut, x.shape[-1])[:, None] == 0, 0)

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:  # noqa: ARG002
        """See the base class."""
        if out is not x:
            out.copy_(x)
        cut = self._stretches(params.on_host("length"), params.on_host("start"), x.shape[-1])
        clear(out, *cut)

    def operations(self, x: Tensor, params: Params, role: Role) -> Sequence[Operation]:  # noqa: ARG002
        """See the base class."""
        cut = self._stretches(params.on_host("length"), params.on_host("start"), x.shape[-1])
        return cleared(*cut)

    def _stretches(self, length: Numbers, start: Numbers, total: int) -> tuple[Numbers, Numbers]:
        """First place and length of each, [B, n]."""
        return stretches(length * total if self.unit == "fraction" else length, start, total)


@register("signal")
class FrequencyMask(Transform):
    """Remove bands of frequency, in all channels at once.

    Plain, as commonly done: bins of the signal's own Fourier transform are set to zero, which rings at
    the band's edges and wraps around the signal's ends. Smooth: the band's edges are cosines inside it,
    and the signal is continued beyond its ends before and cut after.

    Args:
        width: of a band, as a fraction of half the sample rate; a number n for 0 to n, a pair or a
            distribution.
        num_masks: how many; they may overlap.
        smooth: see above.
        edge: width of a smooth edge, as a fraction of half the sample rate; a narrower band is only
            weakened.
        p: probability that a sample is changed.
    """

    roles = ("signal",)

    def __init__(
        self,
        width: Draw = 0.15,
        *,
        num_masks: int = 1,
        smooth: bool = False,
        edge: float = 0.02,
        p: float = 1.0,
    ) -> None:
        self.width = distribution(width, "width", number="up to", within=(0, 1))
        draws = {"width": (self.width, num_masks), "start": (Uniform(0, 1), num_masks)}
        super().__init__(p=p, draws=draws)
        self.num_masks = _check_masks(num_masks)
        self.smooth = smooth
        if not 0 < edge <= 1:
            raise UsageError(f"edge must be above 0 and at most 1, got {edge}")
        self.edge = edge

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        length = x.shape[-1]
        if not self.smooth:
            num_bins = length // 2 + 1
            if on_host(x):
                spectrum: Tensor = torch.fft.rfft(x)
                width, start = params.on_host("width"), params.on_host("start")
                clear(spectrum, *stretches(width * num_bins, start, num_bins))
                masked: Tensor = torch.fft.irfft(spectrum, length)
                return masked
            bands = stretches(params["width"] * num_bins, params["start"], num_bins)
            return filtered(x, outside_of(*bands, num_bins).to(x.dtype), length)
        pad = extension(length, self.edge)
        total = fast_length(length + 2 * pad)
        gain = self._gain(params, total).to(x.dtype)
        return filtered(extended(x, pad), gain, total)[..., pad : pad + length]

    def _gain(self, params: Params, total: int) -> Tensor:
        """1 outside of the bands, 0 inside, half a cosine between: [B, bins]."""
        width, start = params["width"], params["start"]
        frequency = torch.arange(total // 2 + 1, dtype=torch.float32, device=width.device) * (2 / total)
        gain = torch.ones((), device=width.device)
        for number in range(self.num_masks):
            low = start[:, number, None] * (1 - width[:, number, None])
            inside = torch.minimum(frequency - low, low + width[:, number, None] - frequency)
            gain = gain * (0.5 + 0.5 * torch.cos(torch.pi * (inside / self.edge).clamp(0, 1)))
        return gain


def stretches(length: Numbers, start: Numbers, total: int) -> tuple[Numbers, Numbers]:
    """First place and whole length of stretches of `total` places: float32 [B, n] each.

    Args:
        length: [B, n]; rounded.
        start: where each begins among its possible starts, [B, n] from 0 to 1.
        total: number of places.
    """
    if isinstance(length, Tensor):
        length = torch.round(length).clamp(0, total)
        return torch.minimum(torch.floor(start * (total - length + 1)), total - length), length
    length = np.minimum(np.maximum(np.rint(length), 0), total)
    length = length.astype(np.float32)  # whole numbers would make it float64
    return np.minimum(np.floor(start * (total - length + 1)), total - length), length


def outside_of(first: Tensor, length: Tensor, total: int) -> Tensor:
    """1 outside of some stretches of `total` places, 0 inside: float32 [B, total]; all from `stretches`."""
    # |2t - centre| is at least length + 1 outside and at most length - 1 inside: no comparison needed,
    # and floats are exact here up to 2**23 places
    centre = 2 * first + length - 1
    place = torch.arange(0, 2 * total, 2, dtype=torch.float32, device=length.device)
    keep: Tensor | None = None
    for number in range(length.shape[1]):
        outside = (place - centre[:, number, None]).abs_().sub_(length[:, number, None]).clamp_(0, 1)
        keep = outside if keep is None else keep.mul_(outside)
    assert keep is not None
    return keep


def filtered(x: Tensor, gain: Tensor, total: int) -> Tensor:
    """X [B, C, n] with each bin of its spectrum of `total` points multiplied by gain [B, bins]."""
    changed: Tensor = torch.fft.irfft(torch.fft.rfft(x, total) * gain[:, None], total)
    return changed


def _check_masks(num_masks: int) -> int:
    if num_masks < 1:
        raise UsageError(f"num_masks must be at least 1, got {num_masks}")
    return num_masks
