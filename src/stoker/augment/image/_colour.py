"""Brightness, contrast, saturation and hue of images.

The first three, in this order, are PIL's ImageEnhance: x becomes b·x, then mean + c·(x - mean) with
the mean of the image's grey, then grey + s·(x - grey). Grey is 0.299 R + 0.587 G + 0.114 B of what the
step is given. Together they are one step over the image:

    s·c·b · x  +  (1 - s)·c·b · grey(x)  +  (1 - c)·b · mean(grey(x))

clipped to 0..1 once, where PIL clips after each; the turn of the hue follows.
"""

from typing import ClassVar

from torch import Tensor

from stoker.augment._distributions import Distribution, Draw, Uniform, distribution
from stoker.augment._draws import Params
from stoker.augment._registry import register
from stoker.augment._transform import Role
from stoker.augment.image._fields import ImageTransform
from stoker.augment.image._hue import turn_hue
from stoker.augment.signal._units import row_mean
from stoker.errors import UsageError

_RED, _GREEN, _BLUE = 0.299, 0.587, 0.114


@register("image")
class ColorJitter(ImageTransform):
    """Change brightness, contrast, saturation and hue, always in this order.

    Takes colour images (3 channels, RGB) and grey ones (1 channel, which have no saturation or hue),
    from 0 to 1. As PIL's ImageEnhance on images that do not clip, to within its rounding to bytes; the
    hue as in colorsys' HSV to 1e-5. Hue costs twice as much as the rest together, and nothing if 0.

    Args:
        brightness: factor, 1 changes nothing; a number n for 1-n to 1+n, a pair or a distribution.
        contrast: likewise; 0 is all grey.
        saturation: likewise; 0 is without colour.
        hue: turn of the colour circle, 0.5 is the opposite colour; a number n for -n to n, a pair or
            a distribution, within ±0.5.
        p: probability that a sample is changed.
    """

    neutral: ClassVar = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}

    def __init__(
        self,
        brightness: Draw = 0,
        contrast: Draw = 0,
        saturation: Draw = 0,
        hue: Draw = 0,
        *,
        p: float = 1.0,
    ) -> None:
        self.brightness = _factor(brightness, "brightness")
        self.contrast = _factor(contrast, "contrast")
        self.saturation = _factor(saturation, "saturation")
        self.hue = distribution(hue, "hue", number="symmetric", within=(-0.5, 0.5))
        draws = {name: getattr(self, name) for name in self.neutral}
        super().__init__(p=p, draws=draws)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        if x.shape[1] not in {1, 3}:
            raise UsageError(
                f"ColorJitter must get images of 3 channels or of 1, got {x.shape[1]}; "
                f"make the others fields of their own"
            )
        coloured = x.shape[1] == 3
        levels = self._levels(x, params, coloured=coloured)
        if coloured and self._varies("hue"):
            return turn_hue(levels, params["hue"].to(x.dtype))
        return levels

    def _levels(self, x: Tensor, params: Params, *, coloured: bool) -> Tensor:
        """All but the hue."""
        saturated = coloured and self._varies("saturation")
        contrasted = self._varies("contrast")
        if not (saturated or contrasted or self._varies("brightness")):
            return x
        brightness, contrast, saturation = (
            params.like(name, x).double() for name in ("brightness", "contrast", "saturation")
        )
        gain = brightness * contrast
        changed = x * (gain * saturation if saturated else gain).to(x.dtype)
        if saturated or contrasted:
            grey = _grey(x) if coloured else x
            if contrasted:
                mean = row_mean(grey.flatten(1))[:, :, None, None]
                changed = changed.add_(mean * ((1 - contrast) * brightness).to(x.dtype))
            if saturated:
                changed = changed.addcmul_(grey, ((1 - saturation) * gain).to(x.dtype))
        return changed.clamp_(0, 1)

    def _varies(self, name: str) -> bool:
        neutral = self.neutral[name]
        return bool(getattr(self, name).bounds != (neutral, neutral))


def _grey(x: Tensor) -> Tensor:
    """[B, 3, H, W] to [B, 1, H, W]."""
    red, green, blue = x.unbind(1)
    return (red * _RED).add_(green * _GREEN).add_(blue * _BLUE)[:, None]


def _factor(value: Draw, name: str) -> Distribution:
    """A number n for 1-n to 1+n, or what `distribution` takes."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0:
            raise UsageError(f"{name} must be at least 0, got {value}; a pair gives the factors themselves")
        return Uniform(max(0.0, 1 - value), 1 + value)
    return distribution(value, name, within=(0, float("inf")))
