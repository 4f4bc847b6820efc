"""Signals as a device with a lower sample rate would have recorded them."""

from typing import ClassVar

import torch
from torch import Tensor

from stoker.augment._distributions import Draw, distribution
from stoker.augment._draws import Params
from stoker.augment._registry import register
from stoker.augment._transform import Role, Transform
from stoker.augment.signal._masks import filtered


@register("signal")
class Resample(Transform):
    """Bring signals to a lower sample rate and back: what the lower rate cannot hold is gone.

    The same as `scipy.signal.resample` to the next odd number of samples and back again, in one step:
    every frequency that the fewer samples can hold stays, all others are removed.

    Args:
        rate: the lower sample rate as a fraction of the signal's own, at most 1; a pair, a distribution,
            or a number for always the same.
        p: probability that a sample is changed.
    """

    roles = ("signal",)
    neutral: ClassVar = {"rate": 1.0}

    def __init__(self, rate: Draw = (0.5, 1.0), *, p: float = 1.0) -> None:
        self.rate = distribution(rate, "rate", within=(1e-3, 1))
        super().__init__(p=p, draws={"rate": self.rate})

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        length = x.shape[-1]
        # an odd number 2h + 1 of samples holds the frequencies 0 to h
        highest = torch.floor(params["rate"] * (length / 2))
        bins = torch.arange(length // 2 + 1, dtype=torch.float32, device=x.device)
        keep = (highest[:, None] - bins + 1).clamp_(0, 1)
        return filtered(x, keep.to(x.dtype), length)
