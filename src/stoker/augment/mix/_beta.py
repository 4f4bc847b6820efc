"""The symmetric beta distribution, from which shares are drawn.

After Devroye (1996), "Random variate generation in one line of code": with u and v uniform and
t² = (u^(-1/a) - 1)·cos²(2πv), the number 1/2 ± 1/2·√(t² / (1 + t²)) with the sign of cos(2πv) has exactly
the distribution Beta(a, a), for every a above 0. No table, no rejection, no function that torch lacks.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from stoker.augment._distributions import Distribution
from stoker.errors import UsageError

_HALF_BITS = 1 << 26  # u and v are the upper and the lower half of the bits of one uniform number


@dataclass(frozen=True)
class Beta(Distribution):
    """From 0 to 1 around 1/2: near the ends for alpha below 1, every value alike at 1, near 1/2 above."""

    alpha: float

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise UsageError(f"alpha must be above 0 and finite, got {self.alpha}")

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value."""
        return 0.0, 1.0

    @staticmethod
    def quantile(uniform: Tensor, numbers: Tensor) -> Tensor:
        """Values from uniform numbers; unlike in other distributions they do not grow with these."""
        scaled = uniform * _HALF_BITS
        upper = torch.floor(scaled)
        angle = torch.cos(scaled.sub(upper) * (2 * math.pi))
        # expm1 and log rather than powers, which lose digits near 1 and whose bits vary with the place
        spread = torch.expm1(-torch.log((upper + 0.5) / _HALF_BITS) / numbers[0]) * angle.square()
        return 0.5 + 0.5 * torch.sign(angle) / torch.sqrt(1 + 1 / spread)
