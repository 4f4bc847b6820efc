"""Loops that read volumes and their masks where a matrix looks; as `_kernels`, only for where numba is.

They give the bits of torch's `grid_sample`: nothing here may be contracted or put in another order. Where a
line looks is found for all of it, so that its places stay in the smallest cache; the operator is given a grid
of three numbers for every voxel, and computes each voxel's place alone.

Shapes: out [B, C, *size]; x [B, C, D, H, W], float32 or, in masks, whole numbers; matrix float32 [B, 3, 4];
places: for every axis of the output, x first, its voxels from -1 to 1, float32.
"""

from typing import Any

import numpy as np

from stoker.config import kernel
from stoker.config import kernel_part as _part

_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)


@_part
def _clamped(place: Any, least: Any, most: Any) -> Any:
    inner = least if place < least else place  # noqa: FURB136 - not a number stays what it is
    return inner if inner < most else most  # noqa: FURB136 - and becomes the most, as in torch


@_part
def _within(place: Any, length: Any) -> Any:
    """The nearest place on the line: what is beyond its edges is as what is at them."""
    return _clamped(place, _ZERO, np.float32(length - 1))


@_part
def _as_index(place: Any, length: Any) -> Any:
    """A whole number as one; whatever lies far beyond the line, infinity too, is just beyond it."""
    return np.int32(_clamped(place, -_TWO, np.float32(length + 1)))


@_part
def _unscaled(place: Any, length: Any) -> Any:
    """From -1 to 1 into voxels, as torch has it for volumes."""
    return ((place + _ONE) * np.float32(length) - _ONE) / _TWO


@_part
def _find_line(lines: Any, m: Any, across: Any, down: Any, deep: Any, size: Any, is_border: Any) -> None:
    """Where a line of the output looks: places in voxels along x, y and z, [3, n]."""
    for axis in range(3):
        beside, behind = down * m[axis, 1], deep * m[axis, 2]
        for j in range(len(across)):
            place = _unscaled((across[j] * m[axis, 0] + m[axis, 3]) + beside + behind, size[axis])
            lines[axis, j] = _within(place, size[axis]) if is_border else place


@_part
def _blend_at_edge(volume: Any, corner: Any, weights: Any) -> Any:
    """What lies between those of eight voxels that are there, of which the first is the corner."""
    depth, height, width = volume.shape
    (column, row, sheet), (west, east, north, south, front, back) = corner, weights
    total = _ZERO
    for number in range(8):
        z, y, x = sheet + number // 4, row + number // 2 % 2, column + number % 2
        if 0 <= z < depth and 0 <= y < height and 0 <= x < width:
            along_x, along_y = east if number % 2 else west, south if number // 2 % 2 else north
            total += volume[z, y, x] * (along_x * along_y * (back if number // 4 else front))
    return total


@kernel
def interpolate(out: Any, x: Any, matrix: Any, places: Any, is_border: Any) -> None:
    """Interpolate between eight voxels; beyond the edges there is 0, or the border."""
    num_samples, num_channels, num_sheets, num_rows, num_columns = out.shape
    depth, height, width = x.shape[2:]
    across, down, deep = places
    lines, corners = np.empty((3, num_columns), np.float32), np.empty((3, num_columns), np.int32)
    for sample in range(num_samples):
        for k in range(num_sheets):
            for i in range(num_rows):
                _find_line(lines, matrix[sample], across, down[i], deep[k], (width, height, depth), is_border)
                for j in range(num_columns):
                    corners[0, j] = _as_index(np.floor(lines[0, j]), width)
                    corners[1, j] = _as_index(np.floor(lines[1, j]), height)
                    corners[2, j] = _as_index(np.floor(lines[2, j]), depth)
                for channel in range(num_channels):
                    volume, line = x[sample, channel], out[sample, channel, k, i]
                    for j in range(num_columns):
                        column, row, sheet = corners[0, j], corners[1, j], corners[2, j]
                        west, east = np.float32(column + 1) - lines[0, j], lines[0, j] - np.float32(column)
                        north, south = np.float32(row + 1) - lines[1, j], lines[1, j] - np.float32(row)
                        front, back = np.float32(sheet + 1) - lines[2, j], lines[2, j] - np.float32(sheet)
                        if not (0 <= column < width - 1 and 0 <= row < height - 1 and 0 <= sheet < depth - 1):
                            weights = (west, east, north, south, front, back)
                            line[j] = _blend_at_edge(volume, (column, row, sheet), weights)
                            continue
                        upper, lower = volume[sheet, row], volume[sheet, row + 1]
                        total = _ZERO + upper[column] * (west * north * front)
                        total += upper[column + 1] * (east * north * front)
                        total += lower[column] * (west * south * front)
                        total += lower[column + 1] * (east * south * front)
                        upper, lower = volume[sheet + 1, row], volume[sheet + 1, row + 1]
                        total += upper[column] * (west * north * back)
                        total += upper[column + 1] * (east * north * back)
                        total += lower[column] * (west * south * back)
                        total += lower[column + 1] * (east * south * back)
                        line[j] = total


@kernel
def pick(out: Any, x: Any, matrix: Any, places: Any, is_border: Any, ignore: Any) -> None:
    """The nearest voxel; beyond the edges `ignore`, or the border."""
    num_samples, num_channels, num_sheets, num_rows, num_columns = out.shape
    depth, height, width = x.shape[2:]
    across, down, deep = places
    lines = np.empty((3, num_columns), np.float32)
    for sample in range(num_samples):
        for k in range(num_sheets):
            for i in range(num_rows):
                _find_line(lines, matrix[sample], across, down[i], deep[k], (width, height, depth), is_border)
                for channel in range(num_channels):
                    volume, line = x[sample, channel], out[sample, channel, k, i]
                    for j in range(num_columns):
                        column = _as_index(np.rint(lines[0, j]), width)
                        row = _as_index(np.rint(lines[1, j]), height)
                        sheet = _as_index(np.rint(lines[2, j]), depth)
                        if 0 <= column < width and 0 <= row < height and 0 <= sheet < depth:
                            line[j] = volume[sheet, row, column]
                        else:
                            line[j] = ignore
