"""Turning, zooming, shearing and moving volumes.

Derivation. Let p be a place relative to the volume's centre along (depth, height, width), in units of
`spacing`. The content at p goes to A·p + t with A = R·U·S: S zooms, U = [[1, a, b], [0, 1, c], [0, 0, 1]]
shears, R = R_depth·R_height·R_width turns. By the QR decomposition every linear map is of this form. The
output at q therefore shows the input at A⁻¹·(q - t) = S⁻¹·U⁻¹·Rᵀ·(q - t). With h the half sizes of the
volume, q = h·u in the coordinates u of `Geometric`, which makes the matrix h⁻¹·A⁻¹·h, offset -h⁻¹·A⁻¹·t.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from stoker.augment._draws import Params
from stoker.augment._geometry import Geometric, Sampling, check_ignore
from stoker.augment._registry import register
from stoker.augment._transform import Role
from stoker.augment.volume._axes import (
    AxisDraw,
    as_float,
    check_layout,
    check_one_of,
    declared,
    drawn,
    neutral_axes,
    per_axis,
)
from stoker.errors import UsageError


@register("volume")
class Affine3D(Geometric):
    """Zoom, shear, turn and move volumes about their centre, in this order. Masks move along.

    Each setting is a number, a pair or a distribution for all axes, or three of these for depth,
    height and width. Volumes are read by linear interpolation, masks by the nearest voxel. Beside a Crop
    or another Affine3D (of equal `interpolation`, `padding` and `ignore`) both are one sampling.

    Args:
        rotate: degrees about each axis; a number n for -n to n. Drawn for each axis by itself, and done
            about width first, then height, then depth. A positive angle turns about depth from height
            to width, about height from width to depth, about width from depth to height. So a slice
            along depth, shown with height downwards, turns counter-clockwise.
        scale: factor of size, above 1 for larger. One setting makes one factor for all axes.
        translate: fraction of the volume's size; a number n for -n to n. Positive moves the content
            towards higher indices. Drawn for each axis by itself.
        shear: factors a, b and c: depth moves by a·height + b·width, height by c·width; a number n for
            -n to n. Drawn each by itself.
        spacing: size of a voxel along depth, height and width, in any unit: 3 mm between slices of
            1.5 mm pixels is (3, 1.5, 1.5). Without it a turned volume would be sheared.
        interpolation: of volumes.
        padding: what lies beyond the edge: "zeros" (`ignore` in masks), the "border" voxels repeated, or
            a "reflection".
        ignore: what masks get where there is nothing.
        p: probability that a sample is changed.
    """

    roles = ("volume", "mask")
    neutral: ClassVar = neutral_axes(rotate=0.0, scale=1.0, translate=0.0, shear=0.0)
    dims = 3

    def __init__(
        self,
        rotate: AxisDraw = 0,
        *,
        scale: AxisDraw = 1,
        translate: AxisDraw = 0,
        shear: AxisDraw = 0,
        spacing: Sequence[float] = (1.0, 1.0, 1.0),
        interpolation: Literal["bilinear", "nearest"] = "bilinear",
        padding: Literal["zeros", "border", "reflection"] = "zeros",
        ignore: int = 255,
        p: float = 1.0,
    ) -> None:
        self.rotate = per_axis(rotate, "rotate", number="symmetric")
        self.scale = per_axis(scale, "scale", within=(1e-3, 1e3))
        self.translate = per_axis(translate, "translate", number="symmetric")
        self.shear = per_axis(shear, "shear", number="symmetric")
        draws = {
            **declared("rotate", self.rotate, together=False),
            **declared("scale", self.scale, together=True),
            **declared("translate", self.translate, together=False),
            **declared("shear", self.shear, together=False),
        }
        super().__init__(p=p, draws=draws)
        if len(spacing) != 3 or not all(0 < each < math.inf for each in spacing):
            raise UsageError(f"spacing must be three sizes above 0, got {spacing!r}")
        self.spacing = tuple(spacing)
        self.interpolation = check_one_of("interpolation", interpolation, ("bilinear", "nearest"))
        self.padding = check_one_of("padding", padding, ("zeros", "border", "reflection"))
        self.ignore = ignore
        self.sampling = Sampling(interpolation, padding, ignore)

    def prepare(self, x: Tensor, role: Role) -> Tensor:
        """See the base class."""
        check_layout(x, role)
        if role == "mask" and self.padding == "zeros":
            check_ignore(x, self.ignore)
        return x if role == "mask" else as_float(x)

    def matrix(self, params: Params, size: tuple[int, ...]) -> Tensor:
        """See the base class; in float64 up to the end, whose bits no other order of samples changes."""
        inverse = _unturned([torch.deg2rad(angle) for angle in drawn(params, "rotate", self.rotate)])
        inverse = _product(_unsheared(*drawn(params, "shear", self.shear)), inverse)
        inverse = inverse / torch.stack(drawn(params, "scale", self.scale), -1)[:, :, None]
        half = [length * unit for length, unit in zip(size, self.spacing, strict=True)]
        moved = drawn(params, "translate", self.translate)
        rows = []
        for row in (2, 1, 0):  # a point is (x, y, z)
            linear = {column: inverse[:, row, column] * (half[column] / half[row]) for column in (2, 1, 0)}
            shifted = linear[0] * moved[0] + linear[1] * moved[1] + linear[2] * moved[2]
            rows.append(torch.stack([*linear.values(), -2 * shifted], -1))
        return torch.stack(rows, 1).to(torch.float32)


def _unturned(angles: list[Tensor]) -> Tensor:
    """R transposed, [B, 3, 3]; angles [B] about each axis."""
    total: Tensor | None = None
    for axis, angle in enumerate(angles):
        cos, sin = torch.cos(angle), torch.sin(angle)
        one, zero = torch.ones_like(cos), torch.zeros_like(cos)
        first, second = (axis + 1) % 3, (axis + 2) % 3  # content turns from the first to the second
        entries = {(axis, axis): one, (first, first): cos, (second, second): cos}
        entries |= {(first, second): sin, (second, first): -sin}
        turn = torch.stack([entries.get((i, j), zero) for i in range(3) for j in range(3)], -1).view(-1, 3, 3)
        total = turn if total is None else _product(turn, total)
    assert total is not None
    return total


def _unsheared(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The inverse of U, [B, 3, 3]."""
    one, zero = torch.ones_like(a), torch.zeros_like(a)
    return torch.stack([one, -a, a * c - b, zero, one, -c, zero, zero, one], -1).view(-1, 3, 3)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Matrix products [B, 3, 3], summed one by one: those of a library may depend on the batch."""
    first, second, third = (left[:, :, :, None] * right[:, None]).unbind(2)
    return first + second + third
