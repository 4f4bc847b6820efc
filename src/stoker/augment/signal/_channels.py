"""Losing, exchanging and turning channels."""

from typing import ClassVar

import torch
from torch import Tensor

from stoker.augment._distributions import Distribution, Draw, Integers, distribution
from stoker.augment._draws import Params
from stoker.augment._noise import uniform_noise
from stoker.augment._registry import register
from stoker.augment._transform import Role, Transform


@register("signal")
class ChannelDropout(Transform):
    """Set channels to zero, each with the same probability, but never all of them.

    Args:
        drop: probability that a channel is lost; a number for always the same, a pair or a distribution.
        p: probability that a sample is changed.
    """

    roles = ("signal",)
    neutral: ClassVar = {"drop": 0.0}
    every_row = True
    writes = True

    def __init__(self, drop: Draw = 0.1, *, p: float = 1.0) -> None:
        self.drop = distribution(drop, "drop", within=(0, 1))
        super().__init__(p=p, draws={"drop": self.drop}, num_noises=1)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return x * _kept(x, params)

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:  # noqa: ARG002
        """See the base class."""
        torch.mul(x, _kept(x, params), out=out)


@register("signal")
class ChannelShuffle(Transform):
    """Put the channels of each sample into a random order.

    Args:
        p: probability that a sample is changed.
    """

    roles = ("signal",)

    def __init__(self, *, p: float = 1.0) -> None:
        super().__init__(p=p, num_noises=1)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        order = uniform_noise(params.noise_keys[:, 0], x.shape[1]).argsort(1)
        return channels_at(x, order)


@register("signal")
class ChannelRoll(Transform):
    """Move the channels round, as when a wrist band is put on turned by an electrode.

    Args:
        shift: whole number n for -n to n, a pair, Integers or a Choice; channel c becomes c + shift.
        p: probability that a sample is changed.
    """

    roles = ("signal",)
    neutral: ClassVar = {"shift": 0.0}
    every_row = True

    def __init__(self, shift: Draw = 1, *, p: float = 1.0) -> None:
        self.shift: Distribution = distribution(shift, "shift", number="symmetric")
        if not isinstance(shift, Distribution | dict):
            self.shift = Integers(*(int(bound) for bound in self.shift.bounds))
        super().__init__(p=p, draws={"shift": self.shift})

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        num_channels = x.shape[1]
        channel = torch.arange(num_channels, device=x.device)
        source = torch.remainder(channel - params["shift"].round().to(torch.int64)[:, None], num_channels)
        return channels_at(x, source)


def _kept(x: Tensor, params: Params) -> Tensor:
    """1 for channels of x that stay, 0 for those that are lost: [B, C, 1]."""
    luck = uniform_noise(params.noise_keys[:, 0], x.shape[1])
    keep = (luck >= params["drop"][:, None]) | (luck == luck.amax(1, keepdim=True))
    return keep.to(x.dtype)[:, :, None]


def channels_at(x: Tensor, source: Tensor) -> Tensor:
    """X [B, C, T] with channel c taken from source[b, c], int64 [B, C]."""
    num_samples, num_channels, length = x.shape
    first = torch.arange(num_samples, device=x.device)[:, None] * num_channels
    rows = x.reshape(-1, length).index_select(0, (first + source).view(-1))
    return rows.view(num_samples, num_channels, length)
