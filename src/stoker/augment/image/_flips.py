"""Mirroring images and masks: alone by reading backwards, beside other geometry as part of its sampling."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from stoker.augment._distributions import Uniform
from stoker.augment._draws import Params
from stoker.augment._geometry import Sampling
from stoker.augment._registry import register
from stoker.augment._transform import Role
from stoker.augment.image._fields import ImageGeometry, constant
from stoker.errors import UsageError


class _Flip(ImageGeometry):
    """Mirror along one axis of the tensor, the last or the one before."""

    sampling = Sampling(interpolation=None, padding=None)
    neutral: ClassVar = {"flip": 0.0}
    axis: ClassVar[int]
    writes = True

    def __init__(self, *, p: float) -> None:
        super().__init__(p=p, draws={"flip": Uniform(1, 1)})

    def matrix(self, params: Params, size: tuple[int, ...]) -> Tensor:  # noqa: ARG002
        """See the base class."""
        sign = 1 - 2 * params["flip"]
        one, zero = torch.ones_like(sign), torch.zeros_like(sign)
        across, down = (sign, one) if self.axis == -1 else (one, sign)
        return torch.stack([across, zero, zero, zero, down, zero], -1).view(-1, 2, 3)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:
        """Mirror exactly; see the base class."""
        flipped = x.flip(self.axis)
        return self.relabel(flipped, params) if role == "mask" else flipped

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:
        """See the base class."""
        for row, mirrored in enumerate(params["flip"].tolist()):
            here = slice(row, row + 1)
            if mirrored:
                out[here] = self.change(x[here], params.part(here), role)
            elif out is not x:
                out[here] = x[here]


@register("image")
class HorizontalFlip(_Flip):
    """Swap left and right.

    A mask in which left and right have classes of their own needs these swapped too, or a mirrored
    left eye, which looks like a right one, would be called left.

    Args:
        swap_classes: pairs of classes that change places in the masks of mirrored samples, such as
            ``{4: 5, 6: 7}``; each pair needs to be given once.
        p: probability that a sample is changed.
    """

    axis = -1

    def __init__(self, *, swap_classes: Mapping[int, int] | None = None, p: float = 0.5) -> None:
        super().__init__(p=p)
        pairs = (swap_classes or {}).items()
        self.swap_classes = {int(first): int(second) for first, second in pairs}  # JSON has texts for keys
        self._swapped = _both_ways(self.swap_classes)

    def relabel(self, mask: Tensor, params: Params) -> Tensor:
        """Swap the classes where mirrored: a table of what is added to each class, 0 beyond its ends."""
        if not self.swap_classes:
            return mask
        last = max(self._swapped) + 1
        steps = tuple(self._swapped.get(number, number) - number for number in range(-1, last + 1))
        added = constant(steps, torch.int64, mask.device)
        tables = added * params["flip"].to(torch.int64)[:, None]
        place = mask.to(torch.int64).clamp(-1, last).add_(1)
        change = tables.gather(1, place.flatten(1)).view(mask.shape)
        return mask + change.to(mask.dtype)


@register("image")
class VerticalFlip(_Flip):
    """Swap top and bottom.

    Args:
        p: probability that a sample is changed.
    """

    axis = -2

    def __init__(self, *, p: float = 0.5) -> None:
        super().__init__(p=p)


def _both_ways(pairs: Mapping[int, int]) -> dict[int, int]:
    swapped: dict[int, int] = {}
    for pair in pairs.items():
        if min(pair) < 0 or max(pair) >= 1 << 16:
            raise UsageError(f"swap_classes must be classes from 0 to 65535, got {pair[0]}: {pair[1]}")
        for one, other in (pair, pair[::-1]):
            if swapped.setdefault(one, other) != other:
                raise UsageError(
                    f"a class must be swapped with one other, got {one} with {swapped[one]} and {other}"
                )
    return swapped
