"""Turning, scaling, moving and slanting images with their masks; cutting a part out at another size.

In pixels from the image's centre, x to the right and y down, `Affine` moves a point p to
R·s·K·p + t: slanted by K = [[1, -k], [0, 1]], k = tan(shear), scaled by s, turned by
R = [[cos, sin], [-sin, cos]], which is counter-clockwise as y goes down, then moved by t. What is
needed is the way back: the output shows at q what was at K⁻¹·R⁻¹·(q - t) / s.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from stoker.augment._distributions import Distribution, Draw, LogUniform, Uniform, distribution
from stoker.augment._draws import Params
from stoker.augment._geometry import Sampling
from stoker.augment._registry import register
from stoker.augment.image._fields import ImageGeometry
from stoker.errors import UsageError

_MOST_SHEAR = 85.0  # degrees; at 90 nothing is left


@register("image")
class Affine(ImageGeometry):
    """Slant, scale, turn about the centre and move, in this order; images keep their size.

    Neighbours in geometry are composed and sampled once, so what one of them moved out of sight the
    next may bring back, where two samplings would show nothing.

    Args:
        rotate: in degrees, positive is counter-clockwise as in ``PIL.Image.rotate``; a number n for
            -n to n, a pair or a distribution.
        scale: above 1 enlarges; a number for always the same, a pair or a distribution.
        translate: as a fraction of width and height, to the right and down, drawn for each of them; a
            number n for -n to n, a pair or a distribution.
        shear: angle by which upright edges lean, in degrees, positive with their top to the right; a
            number n for -n to n, a pair or a distribution.
        interpolation: of images, "bilinear" or "nearest"; masks are always read nearest.
        padding: what is beyond the edge: "zeros" (`ignore` in masks), "border" for what is at the
            edge, or "reflection".
        ignore: what masks get where "zeros" shows nothing.
        p: probability that a sample is changed.
    """

    neutral: ClassVar = {"rotate": 0.0, "scale": 1.0, "translate": 0.0, "shear": 0.0}

    def __init__(
        self,
        rotate: Draw = 0,
        *,
        scale: Draw = 1,
        translate: Draw = 0,
        shear: Draw = 0,
        interpolation: Literal["bilinear", "nearest"] = "bilinear",
        padding: Literal["zeros", "border", "reflection"] = "zeros",
        ignore: int = 255,
        p: float = 1.0,
    ) -> None:
        self.rotate = distribution(rotate, "rotate", number="symmetric")
        self.scale = distribution(scale, "scale", within=(1e-3, 1e3))
        self.translate = distribution(translate, "translate", number="symmetric")
        self.shear = distribution(shear, "shear", number="symmetric", within=(-_MOST_SHEAR, _MOST_SHEAR))
        super().__init__(
            p=p,
            draws={
                "rotate": self.rotate,
                "scale": self.scale,
                "translate": (self.translate, 2),
                "shear": self.shear,
            },
        )
        self.interpolation = _one_of("interpolation", interpolation, ("bilinear", "nearest"))
        self.padding = _one_of("padding", padding, ("zeros", "border", "reflection"))
        self.ignore = ignore
        self.sampling = Sampling(interpolation, padding, ignore)

    def matrix(self, params: Params, size: tuple[int, ...]) -> Tensor:
        """See the base class; in float64, so that every way to compute it rounds to the same."""
        angle = params["rotate"].double() * (math.pi / 180)
        slant = torch.tan(params["shear"].double() * (math.pi / 180))
        zoom = 1 / params["scale"].double()
        cos, sin = torch.cos(angle) * zoom, torch.sin(angle) * zoom
        height, width = size  # axes go from -1 to 1 whatever they measure
        xx, xy = cos + slant * sin, (slant * cos - sin) * (height / width)
        yx, yy = sin * (width / height), cos
        right, down = (params["translate"].double() * 2).unbind(1)
        rows = [xx, xy, -(xx * right + xy * down), yx, yy, -(yx * right + yy * down)]
        return torch.stack(rows, -1).view(-1, 2, 3).to(torch.float32)


@register("image")
class RandomResizedCrop(ImageGeometry):
    """Cut a part out and bring it to a size.

    A part that would be wider or higher than the image is cut down to it. Places need not be whole
    pixels. A pixel is interpolated from its four neighbours, so shrinking to less than half the size
    skips pixels: blur before, or store smaller images.

    Args:
        size: (height, width) of the output, or a number for both.
        scale: area of the part as a fraction of the image's; a pair, a distribution or a number.
        ratio: width over height of the part, in pixels; a pair for all ratios between alike, a
            distribution or a number.
    """

    sampling = Sampling(padding=None)
    keeps_shape = False

    def __init__(
        self,
        size: int | Sequence[int],
        *,
        scale: Draw = (0.08, 1.0),
        ratio: Draw = (3 / 4, 4 / 3),
    ) -> None:
        self.size = _height_and_width(size)
        self.scale = distribution(scale, "scale", within=(1e-6, 1))
        self.ratio = ratio_distribution(ratio, "ratio")
        super().__init__(
            draws={"scale": self.scale, "ratio": self.ratio, "place": (Uniform(0, 1), 2)},
        )

    def output_size(self, size: tuple[int, ...]) -> tuple[int, ...]:  # noqa: ARG002
        """See the base class."""
        return self.size

    def matrix(self, params: Params, size: tuple[int, ...]) -> Tensor:
        """See the base class."""
        shape = params["ratio"].double() * (size[0] / size[1])  # as if the image were square
        area = params["scale"].double()
        width, height = torch.sqrt(area * shape).clamp(max=1), torch.sqrt(area / shape).clamp(max=1)
        right, down = (params["place"].double() * 2 - 1).unbind(1)
        zero = torch.zeros_like(width)
        rows = [width, zero, right * (1 - width), zero, height, down * (1 - height)]
        return torch.stack(rows, -1).view(-1, 2, 3).to(torch.float32)


def ratio_distribution(value: Draw, name: str) -> Distribution:
    """As `distribution`, but a pair means that its ratios are alike: 1:2 is as likely as 2:1."""
    if isinstance(value, Sequence) and len(value) == 2:
        return LogUniform(*value)
    return distribution(value, name, within=(1e-3, 1e3))


def _height_and_width(size: int | Sequence[int]) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or min(pair) < 1:
        raise UsageError(f"size must be a height and a width of at least 1 pixel, got {size!r}")
    return pair[0], pair[1]


def _one_of(name: str, value: str, options: tuple[str, ...]) -> str:
    if value not in options:
        raise UsageError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}")
    return value
