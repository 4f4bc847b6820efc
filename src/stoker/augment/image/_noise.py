"""Spoiling images: with noise all over, or by erasing a part."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from stoker.augment._distributions import Draw, Uniform, distribution
from stoker.augment._draws import Params
from stoker.augment._geometry import check_ignore
from stoker.augment._noise import normal_noise, with_noise
from stoker.augment._operations import Operation, noisy
from stoker.augment._registry import register
from stoker.augment._transform import Declared, Role
from stoker.augment.image._affine import ratio_distribution
from stoker.augment.image._fields import ImageTransform, as_numbers, per_channel
from stoker.errors import UsageError

_NOISE_MEAN, _NOISE_STD = 0.5, 0.25


@register("image")
class GaussianNoise(ImageTransform):
    """Add white noise, independent over channels and pixels; values may leave 0..1.

    Args:
        std: in units of the image, so 0.03 is about 8 of 255; a number for always the same, a pair or
            a distribution.
        p: probability that a sample is changed.
    """

    neutral: ClassVar = {"std": 0.0}
    loops = True

    def __init__(self, std: Draw = 0.03, *, p: float = 1.0) -> None:
        self.std = distribution(std, "std", within=(0, float("inf")))
        super().__init__(p=p, draws={"std": self.std}, num_noises=1)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return with_noise(x, params.like("std", x).to(x.dtype), params.noise_keys[:, 0])

    def operations(self, x: Tensor, params: Params, role: Role) -> Sequence[Operation]:  # noqa: ARG002
        """See the base class."""
        return [noisy(params.on_host("std"), params.noise_keys[:, 0].numpy())]


@register("image")
class Erase(ImageTransform):
    """Replace a rectangle, or several, of an image; all channels at once.

    Args:
        scale: area of a rectangle as a fraction of the image's; a number n for 0 to n, a pair or a
            distribution.
        ratio: width over height, in pixels; a pair for all ratios between alike, a distribution or a
            number. Where a rectangle would not fit, its longer side is cut.
        fill: a number, one for each channel, or "noise" for grey noise (0.5 ± 0.25).
        num_boxes: how many; they may overlap.
        ignore: if given, masks get it in the same places. Otherwise masks stay as they are.
        p: probability that a sample is changed.
    """

    neutral: ClassVar = {"scale": 0.0}

    def __init__(
        self,
        scale: Draw = (0.02, 0.33),
        *,
        ratio: Draw = (0.3, 3.3),
        fill: float | Sequence[float] | Literal["noise"] = 0.0,
        num_boxes: int = 1,
        ignore: int | None = None,
        p: float = 0.5,
    ) -> None:
        self.scale = distribution(scale, "scale", number="up to", within=(0, 1))
        self.ratio = ratio_distribution(ratio, "ratio")
        if num_boxes < 1:
            raise UsageError(f"num_boxes must be at least 1, got {num_boxes}")
        if isinstance(fill, str) and fill != "noise":
            raise UsageError(f"fill must be a number, one for each channel or 'noise', got {fill!r}")
        draws: Declared = {
            "scale": (self.scale, num_boxes),
            "ratio": (self.ratio, num_boxes),
            "across": (Uniform(0, 1), num_boxes),
            "down": (Uniform(0, 1), num_boxes),
        }
        super().__init__(p=p, draws=draws, num_noises=int(fill == "noise"))
        self._numbers = () if isinstance(fill, str) else as_numbers(fill)
        self.fill = fill if isinstance(fill, str | int | float) else self._numbers
        self.num_boxes = num_boxes
        self.ignore = ignore
        self.__dict__["writes"] = fill != "noise"
        if ignore is not None:
            self.__dict__["roles"] = ("image", "mask")  # the class leaves masks alone

    def prepare(self, x: Tensor, role: Role) -> Tensor:
        """See the base class."""
        if role == "mask" and self.ignore is not None:
            check_ignore(x, self.ignore)
        return super().prepare(x, role)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:
        """See the base class."""
        inside = self._inside(params, (x.shape[-2], x.shape[-1]))
        if x.ndim == 4:
            inside = inside[:, None]
        if role == "mask":
            assert self.ignore is not None
            return x.masked_fill(inside, self.ignore)
        if self.fill == "noise":
            grey = _noise_like(x, params).mul_(_NOISE_STD).add_(_NOISE_MEAN).clamp_(0, 1)
            return torch.where(inside, grey, x)
        return torch.where(inside, per_channel(self._numbers, x, "fill"), x)

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:
        """See the base class."""
        if out is not x:
            out.copy_(x)
        fill = self.ignore if role == "mask" else per_channel(self._numbers, x, "fill")[0].numpy()
        boxes = torch.cat(self._boxes(params, (x.shape[-2], x.shape[-1])), -1).to(torch.int64)
        for row, its_boxes in zip(out.numpy(), boxes.tolist(), strict=True):
            for top, height, left, width in its_boxes:
                row[..., top : top + height, left : left + width] = fill

    def _boxes(self, params: Params, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """First row and height, first column and width of each rectangle: float64 [B, n, 2] each."""
        height, width = size
        area = params["scale"].double() * (height * width)
        ratio = params["ratio"].double()
        rows = _stretch(torch.sqrt(area / ratio), params["down"], height)
        return rows, _stretch(torch.sqrt(area * ratio), params["across"], width)

    def _inside(self, params: Params, size: tuple[int, int]) -> Tensor:
        """Where something is erased, bool [B, H, W]."""
        rows, columns = (_places(*each) for each in zip(self._boxes(params, size), size, strict=True))
        return (rows[..., None] & columns[:, :, None]).any(1)


def _stretch(length: Tensor, start: Tensor, total: int) -> Tensor:
    """First place and length of stretches of `total` places: float64 [B, n, 2].

    Shape: length, to be rounded, and start [B, n], the latter from 0 to 1 over all places that fit.
    """
    length = torch.round(length).clamp(0, total)
    first = torch.minimum(torch.floor(start.double() * (total - length + 1)), total - length)
    return torch.stack([first, length], -1)


def _places(stretch: Tensor, total: int) -> Tensor:
    """Which of `total` places lie in them: bool [B, n, total]."""
    first, length = stretch[..., :1], stretch[..., 1:]
    place = torch.arange(total, dtype=torch.float64, device=stretch.device)
    return (place >= first) & (place < first + length)


def _noise_like(x: Tensor, params: Params) -> Tensor:
    """Normal noise for x [B, C, H, W], of its dtype, to be written to."""
    noise = normal_noise(params.noise_keys[:, 0], x.shape[1], x.shape[2] * x.shape[3])
    return noise.reshape(x.shape).to(x.dtype)
