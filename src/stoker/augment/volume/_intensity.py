"""Changing the values of volumes by a curve of each sample."""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from stoker.augment._distributions import Draw, distribution
from stoker.augment._draws import Params
from stoker.augment._registry import register
from stoker.augment._transform import Role, Transform
from stoker.augment.volume._axes import as_float, check_one_of
from stoker.errors import UsageError


@register("volume")
class IntensityScale(Transform):
    """Multiply each sample by a factor.

    Args:
        factor: a pair, a distribution, or a number for always the same.
        p: probability that a sample is changed.
    """

    roles = ("volume",)
    neutral: ClassVar = {"factor": 1.0}
    every_row = True
    writes = True

    def __init__(self, factor: Draw = (0.9, 1.1), *, p: float = 1.0) -> None:
        self.factor = distribution(factor, "factor")
        super().__init__(p=p, draws={"factor": self.factor})

    def prepare(self, x: Tensor, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return as_float(x)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return x * params.like("factor", x)

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:  # noqa: ARG002
        """See the base class."""
        torch.mul(x, params.like("factor", x), out=out)


@register("volume")
class IntensityShift(Transform):
    """Add an offset to each sample.

    Args:
        offset: in the volume's own unit; a number n for -n to n, a pair or a distribution.
        p: probability that a sample is changed.
    """

    roles = ("volume",)
    neutral: ClassVar = {"offset": -0.0}  # which, unlike 0.0, leaves -0.0 as it is
    every_row = True
    writes = True

    def __init__(self, offset: Draw = 0.1, *, p: float = 1.0) -> None:
        self.offset = distribution(offset, "offset", number="symmetric")
        super().__init__(p=p, draws={"offset": self.offset})

    def prepare(self, x: Tensor, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return as_float(x)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return x + params.like("offset", x)

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:  # noqa: ARG002
        """See the base class."""
        torch.add(x, params.like("offset", x), out=out)


@register("volume")
class Gamma(Transform):
    """Bend the values between a sample's least and greatest, which stay where they are.

    With low and high the sample's own: low + (high - low)·((x - low) / (high - low))^gamma. So values may
    be negative, and a constant volume stays as it is. Gradients take low and high for constants.

    Args:
        gamma: above 0; above 1 darkens, below 1 lightens what lies between. A pair, a distribution, or a
            number for always the same.
        per: range of each "sample" with all its channels together, or of each "channel".
        p: probability that a sample is changed.
    """

    roles = ("volume",)

    def __init__(
        self, gamma: Draw = (0.7, 1.5), *, per: Literal["sample", "channel"] = "sample", p: float = 1.0
    ) -> None:
        self.gamma = distribution(gamma, "gamma", within=(0, math.inf))
        super().__init__(p=p, draws={"gamma": self.gamma})
        if self.gamma.bounds[0] == 0:
            raise UsageError(f"gamma must be above 0, got {self.gamma!r}")
        self.per = check_one_of("per", per, ("sample", "channel"))

    def prepare(self, x: Tensor, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return as_float(x)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        axes = (1, 2, 3, 4) if self.per == "sample" else (2, 3, 4)
        low, high = (edge(x.detach(), axes, keepdim=True) for edge in (torch.amin, torch.amax))
        span = high - low
        width = torch.where(span > 0, span, 1)
        gamma = params.like("gamma", x)
        # exp and log, because the bits of pow depend on the place in memory
        if x.requires_grad:
            share = (x - low) / width
            inside = share > 0
            bent = torch.exp(torch.log(torch.where(inside, share, 1)) * gamma)
            return torch.where(inside, bent, 0) * span + low
        return (x - low).div_(width).log_().mul_(gamma).exp_().mul_(span).add_(low)
