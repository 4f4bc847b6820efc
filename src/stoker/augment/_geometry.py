"""Geometry as a matrix, so that neighbours in a pipeline are composed and a field is sampled once.

Coordinates are those of `torch.nn.functional.affine_grid` with ``align_corners=False``: every axis
goes from -1 to 1 between the outer edges of its first and last element, and a point is (x, y) or
(x, y, z), the last axis of the tensor first. A matrix maps a place in the output to the place in
the input that is shown there.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from stoker.augment import _sampling
from stoker.augment._draws import Params
from stoker.augment._transform import Role, Transform
from stoker.errors import UsageError


class Sampling(NamedTuple):
    """How a field is read between and beyond its elements; neighbours fuse if theirs agree.

    What a transform never does is None, and agrees with everything: a crop does not look beyond the
    edge, a flip does not look between elements either.
    """

    interpolation: Literal["bilinear", "nearest"] | None = "bilinear"  # of images and volumes
    padding: Literal["zeros", "border", "reflection"] | None = "zeros"
    ignore: int = 255  # what a mask has where "zeros" shows nothing


class Geometric(Transform):
    """A transform that only moves elements, and whose movement is affine.

    Alone it may override `change`, where something exact and cheaper than sampling exists. Beside
    others of the same `dims` and `roles` whose `sampling` agrees it is asked for its `matrix` only,
    and for how it renames a mask's classes.

    Class attributes:
        dims: 2 for images, 3 for volumes.
        neutral: must be given, and make `matrix` the identity.
    """

    dims: ClassVar[int]
    sampling: Sampling = Sampling()

    def matrix(self, params: Params, size: tuple[int, ...]) -> Tensor:
        """Where the output looks in the input: float32 [B, dims, dims + 1].

        Args:
            params: of the rows at hand.
            size: spatial size of what comes in, (H, W) or (D, H, W).
        """
        raise NotImplementedError

    def output_size(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """Spatial size of what goes out."""
        return size

    def relabel(self, mask: Tensor, params: Params) -> Tensor:  # noqa: ARG002 - for those that override it
        """Rename the classes of a mask that was moved, such as left and right; by default none."""
        return mask

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:
        """Sample x by the matrix."""
        return change_together([self], x, [params], role)


def joint_sampling(transforms: Sequence[Transform]) -> Sampling | None:
    """The sampling that neighbours can share; None if they cannot be one sampling."""
    total = Sampling(None, None)
    first = transforms[0]
    for each in transforms:
        if not (isinstance(first, Geometric) and isinstance(each, Geometric)):
            return None
        if (each.dims, each.roles) != (first.dims, first.roles):
            return None
        interpolation, padding, ignore = each.sampling
        if interpolation is not None:
            if total.interpolation not in {None, interpolation}:
                return None
            total = total._replace(interpolation=interpolation)
        if padding is not None:
            if total.padding is not None and total[1:] != (padding, ignore):
                return None
            total = total._replace(padding=padding, ignore=ignore)
    return total


def change_together(
    transforms: Sequence[Geometric], x: Tensor, params: Sequence[Params], role: Role
) -> Tensor:
    """Apply neighbours, the first of them first, in one sampling."""
    size = spatial_size(x, transforms[0].dims)
    total: Tensor | None = None
    for transform, drawn in zip(transforms, params, strict=True):
        matrix = transform.matrix(drawn, size)
        total = matrix if total is None else compose(total, matrix)
        size = transform.output_size(size)
    sampling = joint_sampling(transforms)
    assert total is not None
    assert sampling is not None
    moved = sample(x, total, size, role, sampling)
    if role == "mask":
        for transform, drawn in zip(transforms, params, strict=True):
            moved = transform.relabel(moved, drawn)
    return moved


def compose(first: Tensor, second: Tensor) -> Tensor:
    """The matrix of `first` and then `second`: the output looks through the second into the first.

    Shape: both and the result [B, d, d + 1].
    """
    linear, offset = first[:, :, :-1], first[:, :, -1:]
    # products summed one by one: a matrix product's bits may depend on the batch size
    moved = (linear[:, :, :, None] * second[:, None, :, :]).unbind(2)
    total = moved[0]
    for part in moved[1:]:
        total = total + part
    return torch.cat([total[:, :, :-1], total[:, :, -1:] + offset], -1)


def spatial_size(x: Tensor, dims: int) -> tuple[int, ...]:
    """The last axes of a field."""
    return tuple(x.shape[-dims:])


def sample(x: Tensor, matrix: Tensor, size: tuple[int, ...], role: Role, sampling: Sampling) -> Tensor:
    """Read a field where the matrix looks; masks by nearest neighbour, with `ignore` beyond the edge.

    Args:
        x: [B, C, *spatial], for a mask also [B, *spatial].
        matrix: float32 [B, d, d + 1].
        size: spatial size of the output.
        role: "mask", or what is interpolated.
        sampling: how.
    """
    places = tuple(_sampling.places_of(length, matrix.device) for length in reversed(size))
    if role != "mask":
        return _interpolated(x, matrix, places, sampling)
    if x.ndim == 1 + len(size):
        return _picked(x[:, None], matrix, places, sampling)[:, 0]
    return _picked(x, matrix, places, sampling)


def _interpolated(x: Tensor, matrix: Tensor, places: _sampling.Places, sampling: Sampling) -> Tensor:
    interpolation, padding = sampling.interpolation or "nearest", sampling.padding or "border"
    if interpolation == "bilinear" and padding != "reflection":
        look = _sampling.Look(matrix, places, is_border=padding == "border")
        if _sampling.takes(x, look):
            return _sampling.read(x, look)
    grid = _sampling.grid_of(matrix, places).to(x.dtype)
    return F.grid_sample(x, grid, mode=interpolation, padding_mode=padding, align_corners=False)


def _picked(mask: Tensor, matrix: Tensor, places: _sampling.Places, sampling: Sampling) -> Tensor:
    padding = sampling.padding or "border"
    if padding != "reflection":
        look = _sampling.Look(matrix, places, is_border=padding == "border", ignore=sampling.ignore)
        if _sampling.takes(mask, look):
            return _sampling.read(mask, look)
    shown = sampling.ignore if padding == "zeros" else 0  # so that what is outside becomes 0
    grid = _sampling.grid_of(matrix, places)
    classes = mask.to(torch.float32) - shown
    found = F.grid_sample(classes, grid, mode="nearest", padding_mode=padding, align_corners=False)
    return (found + shown).to(mask.dtype)


def check_ignore(mask: Tensor, ignore: int) -> None:
    """Raise a UsageError if the mask's dtype cannot hold the value."""
    if mask.is_floating_point():
        return
    limits = None if mask.dtype == torch.bool else torch.iinfo(mask.dtype)
    low, high = (0, 1) if limits is None else (limits.min, limits.max)
    if not low <= ignore <= high:
        raise UsageError(
            f"ignore must be a value that a mask of {mask.dtype} can hold, got {ignore}; "
            f"choose one from {low} to {high} or convert the mask"
        )
