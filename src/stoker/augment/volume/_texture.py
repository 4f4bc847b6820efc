"""Making volumes grainy or smooth."""

import math
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from stoker.augment._blur import blur_radius, gaussian_blur
from stoker.augment._distributions import Draw, distribution
from stoker.augment._draws import Params
from stoker.augment._noise import with_noise
from stoker.augment._operations import Operation, noisy
from stoker.augment._registry import register
from stoker.augment._transform import Role, Transform
from stoker.augment.volume._axes import AxisDraw, as_float, declared, drawn, per_axis


@register("volume")
class GaussianNoise(Transform):
    """Add white noise, independent over channels and voxels.

    Args:
        std: its standard deviation, in the volume's own unit; a number for always the same, a pair or a
            distribution.
        p: probability that a sample is changed.
    """

    roles = ("volume",)
    neutral: ClassVar = {"std": 0.0}
    loops = True

    def __init__(self, std: Draw = (0.0, 0.1), *, p: float = 1.0) -> None:
        self.std = distribution(std, "std", within=(0, math.inf))
        super().__init__(p=p, draws={"std": self.std}, num_noises=1)

    def prepare(self, x: Tensor, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return as_float(x)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return with_noise(x, params.like("std", x).to(x.dtype), params.noise_keys[:, 0])

    def operations(self, x: Tensor, params: Params, role: Role) -> Sequence[Operation]:  # noqa: ARG002
        """See the base class."""
        return [noisy(params.on_host("std"), params.noise_keys[:, 0].numpy())]


@register("volume")
class GaussianBlur(Transform):
    """Blur volumes, as `scipy.ndimage.gaussian_filter` with ``mode="nearest"`` does.

    Its cost grows with the largest sigma that can be drawn.

    Args:
        sigma: in voxels; a number, a pair or a distribution for one width along all axes, or three of
            these for depth, height and width.
        p: probability that a sample is changed.
    """

    roles = ("volume",)

    def __init__(self, sigma: AxisDraw = (0.25, 1.5), *, p: float = 1.0) -> None:
        self.sigma = per_axis(sigma, "sigma", within=(0, 64))
        super().__init__(p=p, draws=declared("sigma", self.sigma, together=True))
        each = self.sigma if isinstance(self.sigma, tuple) else (self.sigma,) * 3
        self._radii = [blur_radius(made.bounds[1]) for made in each]

    def prepare(self, x: Tensor, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return as_float(x)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return gaussian_blur(x, drawn(params, "sigma", self.sigma), self._radii)
