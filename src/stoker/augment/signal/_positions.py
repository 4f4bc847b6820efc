"""Reading signals between their samples, at places that are exact at any length.

A place is an int64 in 32.32 fixed point: float32 would be off by 0.015 samples at T = 160,000, and
at a rate of exactly 1 every place is a whole number. Beyond its ends a signal is 0, and the first and
last samples are interpolated towards that. Measured on two cores for [64, 1, 4000]: 0.8 ms, against
0.95 ms for `grid_sample` in float32 and 1.8 ms in float64.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

ONE = 1 << 32


def places(first: Tensor, step: Tensor, length: int) -> Tensor:
    """The first place and every step from there: int64 [B] each, [B, T]."""
    return first[:, None] + torch.arange(length, device=step.device) * step[:, None]


def interpolated(x: Tensor, place: Tensor) -> Tensor:
    """X at these places, linearly: the same for all channels. `place` is overwritten.

    Shape: x [B, C, S]; place int64 [B, T] in fixed point; gives [B, C, T].
    """
    place = place.clamp_(-ONE, x.shape[-1] << 32)  # one beyond either end, where there are zeros only
    share = (place & (ONE - 1)).to(x.dtype).mul_(1 / ONE)
    before = _over_channels(place.bitwise_right_shift_(32).add_(1), x)
    padded = F.pad(x, (1, 2))
    left = padded.gather(-1, before)
    right = padded[..., 1:].gather(-1, before)
    if x.requires_grad:
        return left + (right - left) * share[:, None]
    return right.sub_(left).mul_(share[:, None]).add_(left)  # the same bits, in memory that is there


def nearest(mask: Tensor, place: Tensor, ignore: int) -> Tensor:
    """A mask [B, S] or [B, C, S] at these places, by the nearest sample; `ignore` beyond its ends."""
    whole = ((place + ONE // 2) >> 32).clamp_(-1, mask.shape[-1]).add_(1)
    padded = F.pad(mask, (1, 1), value=ignore)
    return padded.gather(-1, whole if mask.ndim == 2 else _over_channels(whole, mask))


def _over_channels(place: Tensor, x: Tensor) -> Tensor:
    return place[:, None].expand(-1, x.shape[1], -1)
