"""What image transforms are given: images as floats, masks that can hold what is written into them."""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from stoker.augment._geometry import Geometric, check_ignore
from stoker.augment._transform import Role, Transform
from stoker.errors import UsageError


class ImageTransform(Transform):
    """A transform of images; bytes come to it as floats from 0 to 1."""

    roles = ("image",)

    def prepare(self, x: Tensor, role: Role) -> Tensor:
        """See the base class."""
        return as_floats(x) if role == "image" else x


class ImageGeometry(Geometric):
    """A movement of images and of the masks that lie over them."""

    roles = ("image", "mask")
    dims = 2

    def prepare(self, x: Tensor, role: Role) -> Tensor:
        """See the base class."""
        if role == "image":
            return as_floats(x)
        if self.sampling.padding == "zeros":
            check_ignore(x, self.sampling.ignore)
        return x


def as_floats(x: Tensor) -> Tensor:
    """Bytes divided by 255, as float32; floats as they are."""
    if x.is_floating_point():
        return x
    if x.dtype != torch.uint8:
        raise UsageError(
            f"an image must be uint8 or of a floating dtype to be augmented, got {x.dtype}; "
            f"convert it to floats from 0 to 1 first"
        )
    return x.to(torch.float32).div_(255)


def as_numbers(value: float | Sequence[float]) -> tuple[float, ...]:
    """One number, or one for each channel, as a tuple."""
    return tuple(map(float, value)) if isinstance(value, Sequence) else (float(value),)


def per_channel(numbers: tuple[float, ...], x: Tensor, name: str) -> Tensor:
    """One number for all channels of x [B, C, H, W], or one each: [1, 1 or C, 1, 1] on its device."""
    if len(numbers) not in {1, x.shape[1]}:
        raise UsageError(
            f"{name} must be one number, or one for each of {x.shape[1]} channels, got {len(numbers)}"
        )
    return constant(numbers, x.dtype, x.device).view(1, -1, 1, 1)


def constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor [n] of these numbers, copied to the device once."""
    if torch.compiler.is_compiling():  # a cache cannot be traced
        return torch.tensor(numbers, dtype=dtype, device=device)
    return _kept(numbers, dtype, device)


@functools.lru_cache(maxsize=64)
def _kept(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(mode=False):
        return torch.tensor(numbers, dtype=dtype, device=device)
