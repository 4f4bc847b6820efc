"""Mirroring volumes."""

from typing import ClassVar

import torch
from torch import Tensor

from stoker.augment._distributions import Uniform
from stoker.augment._draws import Params
from stoker.augment._registry import register
from stoker.augment._transform import Role, Transform
from stoker.augment.volume._axes import AXES, check_layout
from stoker.errors import UsageError


@register("volume")
class Flip(Transform):
    """Mirror volumes along each axis with a probability of its own. Masks are mirrored along.

    Classes of a left and a right side are not swapped. Voxels are moved, not sampled: every bit is kept.

    Args:
        depth: probability that a sample is mirrored along its depth.
        height: likewise.
        width: likewise.
        p: probability that a sample is considered at all.
    """

    # Not among the transforms that share a sampling: to move voxels costs a tenth of sampling them,
    # and only samples that something else turns need to be sampled.
    roles = ("volume", "mask")
    neutral: ClassVar = dict.fromkeys(AXES, 2.0)
    every_row = True
    writes = True

    def __init__(
        self, depth: float = 0.5, height: float = 0.5, width: float = 0.5, *, p: float = 1.0
    ) -> None:
        super().__init__(p=p, draws=dict.fromkeys(AXES, Uniform(0, 1)))
        self.depth, self.height, self.width = depth, height, width
        for axis in AXES:
            if not 0 <= getattr(self, axis) <= 1:
                raise UsageError(f"{axis} must be a probability from 0 to 1, got {getattr(self, axis)}")

    def prepare(self, x: Tensor, role: Role) -> Tensor:
        """See the base class."""
        return check_layout(x, role)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        if self.depth or self.height:
            x = self._turned_lines(x, params)
        if self.width:
            turned = self._turned("width", params).view(-1, *[1] * (x.ndim - 1))
            x = torch.where(turned, x.flip(-1), x)
        return x

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:  # noqa: ARG002
        """See the base class."""
        turned = torch.stack([self._turned(axis, params) for axis in AXES], 1)
        for row, each in enumerate(turned.tolist()):
            axes = [axis for axis, mirrored in zip((-3, -2, -1), each, strict=True) if mirrored]
            if axes or out is not x:
                out[row] = x[row].flip(axes) if axes else x[row]

    def _turned_lines(self, x: Tensor, params: Params) -> Tensor:
        """Mirror depth and height: whole lines along the width are fetched from their mirrored places."""
        *outer, depth, height, width = x.shape
        place = torch.arange(outer[0], device=x.device).view(-1, 1, 1, 1)
        if len(outer) > 1:
            place = place * outer[1] + torch.arange(outer[1], device=x.device).view(-1, 1, 1)
        place = place * depth + self._places("depth", params, depth)[:, None, :, None]
        place = place * height + self._places("height", params, height)[:, None, None, :]
        return x.reshape(-1, width).index_select(0, place.flatten()).view(x.shape)

    def _turned(self, axis: str, params: Params) -> Tensor:
        """Which samples are mirrored, bool [B]."""
        probability = getattr(self, axis)
        # a number just below 1 may have been rounded to it
        return params[axis] < (1.5 if probability == 1 else probability)

    def _places(self, axis: str, params: Params, length: int) -> Tensor:
        """Where each place along the axis comes from, int64 [B, n]."""
        place = torch.arange(length, device=params[axis].device)
        return torch.where(self._turned(axis, params)[:, None], place.flip(0), place)
