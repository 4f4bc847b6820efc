"""Blurring images, each sample with its own width."""

from typing import ClassVar

import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from stoker.augment._blur import blur_radius, gaussian_blur
from stoker.augment._distributions import Draw, distribution
from stoker.augment._draws import Params
from stoker.augment._registry import register
from stoker.augment._transform import Role
from stoker.augment.image._fields import ImageTransform
from stoker.errors import UsageError


@register("image")
class GaussianBlur(ImageTransform):
    """Blur with a Gaussian kernel, its width drawn for each sample.

    Edges are reflected without repeating the outermost pixel. As `scipy.ndimage.gaussian_filter`
    with ``mode="mirror"`` and the same radius, to 1e-5.

    Args:
        sigma: standard deviation in pixels; a pair, a distribution, or a number for always the same.
        kernel_size: that no kernel is larger than, odd; work grows with it. By default four of the
            largest sigma each way, beyond which every kernel is cut anyhow.
        p: probability that a sample is changed.
    """

    neutral: ClassVar = {"sigma": 0.0}

    def __init__(self, sigma: Draw = (0.1, 2.0), *, kernel_size: int | None = None, p: float = 1.0) -> None:
        self.sigma = distribution(sigma, "sigma", within=(0, 1e3))
        super().__init__(p=p, draws={"sigma": self.sigma})
        if kernel_size is None:
            kernel_size = 2 * blur_radius(self.sigma.bounds[1]) + 1
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise UsageError(f"kernel_size must be odd and at least 1, got {kernel_size}")
        self.kernel_size = kernel_size

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        radius = self.kernel_size // 2
        height, width = x.shape[-2:]
        if radius >= min(height, width):
            raise UsageError(
                f"an image must be larger than half the kernel to be blurred, got {height} x {width} "
                f"for kernel_size={self.kernel_size}; choose a smaller kernel"
            )
        padded = F.pad(x, (radius,) * 4, mode="reflect")
        blurred = gaussian_blur(padded, [params["sigma"]] * 2, [radius] * 2)
        return blurred.narrow(2, radius, height).narrow(3, radius, width)
