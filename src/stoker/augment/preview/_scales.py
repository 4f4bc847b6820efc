"""What is shown on one scale: a sample and its views, unless that would make one of them flat."""

from collections.abc import Sequence

import torch
from torch import Tensor

Scale = tuple[float, float]

_NATURAL: Scale = (0.0, 1.0)
_MOST_VALUES = 1_000_000  # that are sorted to find how far most of them reach
_MOST = 4.0  # as many times wider may one be than another on the same scale


def value_range(x: Tensor, *, beyond: float = 0.0) -> Scale:
    """The least and the greatest finite value; (0, 1) where there is none.

    Args:
        x: any values.
        beyond: share of the values that may lie outside, at each end, such as single pixels of noise.
    """
    flat = x.flatten()
    flat = flat[:: -(-len(flat) // _MOST_VALUES)] if beyond else flat
    finite = flat[flat.isfinite()].to(torch.float32)
    if not len(finite):
        return 0.0, 1.0
    if not beyond:
        return float(finite.min()), float(finite.max())
    low, high = torch.quantile(finite, torch.tensor([beyond, 1 - beyond])).tolist()
    return low, high


def common_scales(original: Scale, views: Sequence[Scale]) -> list[Scale]:
    """Scales for the original and each view: one for all, or one for it and another for all views."""
    together = joined(views)
    both = joined([original, together])
    spans = [high - low for low, high in (original, together)]
    width = both[1] - both[0]
    if all(width <= _MOST * span for span in spans) or width == 0:
        return [both] * (1 + len(views))
    return [original, *[together] * len(views)]


def image_scales(original: Scale, views: Sequence[Scale]) -> list[Scale]:
    """The same for images: from 0 to 1 where values are about there, and what is beyond is cut."""
    if not any(map(_is_natural, (original, joined(views)))):
        return common_scales(original, views)
    return [_NATURAL if _is_natural(both) else both for both in (original, *[joined(views)] * len(views))]


def joined(scales: Sequence[Scale]) -> Scale:
    """The least scale that holds all of these."""
    return min(low for low, _ in scales), max(high for _, high in scales)


def _is_natural(scale: Scale) -> bool:
    return scale[0] > -0.5 and 0.05 < scale[1] < 1.5
