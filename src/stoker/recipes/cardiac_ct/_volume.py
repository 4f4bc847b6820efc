"""One orientation, one spacing, one size: what is done to a volume before anything can learn from it.

Axes are permuted and flipped so that they point where the settings say. The centre of the first voxel then
stays where it is and the next ones follow at the wanted spacing, as far as the volume goes; values between
voxels are interpolated linearly, axis by axis, which for a box of voxels is trilinear interpolation. Only
the middle part that is kept is computed. A tilted scan keeps its tilt: its own axes, not the room's, are
resampled. This is what MONAI's Orientation, Spacing, SpatialPad and CenterSpatialCrop give in a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SourceError
from stoker.recipes.cardiac_ct._settings import VolumeSettings

VERSION = 1  # raised when the same file would give other values than before


@dataclass(frozen=True)
class Places:
    """Where the voxels of one output axis lie on the input's; those outside `start` to `stop` are padding."""

    places: NDArray[np.float64]  # of those inside, in voxels of the input
    start: int
    stop: int


def prepare_volume(
    x: NDArray[np.float32], affine: NDArray[np.float64], settings: VolumeSettings
) -> NDArray[np.generic]:
    """The volume [1, *size] in HU, clipped, in the settings' type.

    Args:
        x: [X, Y, Z] in HU; a fourth axis of length 1 may follow.
        affine: [4, 4], from voxels to mm, right-anterior-superior.
        settings: what is wanted.

    Raises:
        SourceError: it is no volume of numbers, or the affine gives a voxel no size.
    """
    while x.ndim > 3 and x.shape[-1] == 1:
        x = x[..., 0]
    if x.ndim != 3 or 0 in x.shape:
        raise SourceError(f"a volume must have three axes, got the shape {list(x.shape)}")
    num_bad = int(x.size - np.isfinite(x).sum())
    if num_bad:
        raise SourceError(f"{num_bad} of {x.size} voxels are no numbers")
    x, spacing = oriented(x, affine, settings.orientation)
    wanted = settings.spacing or (None, None, None)
    axes = [axis_places(*each) for each in zip(x.shape, spacing, wanted, settings.size, strict=True)]
    # the axis that shrinks most goes first, so that the others have less to do
    for axis in sorted(range(3), key=lambda i: len(axes[i].places) / x.shape[i]):
        x = sampled(x, axis, axes[axis].places)
    x = x.clip(settings.low, settings.high)
    if settings.dtype == "int16":
        x = np.rint(x)
    out = np.full(settings.size, settings.low, settings.dtype)
    out[tuple(slice(each.start, each.stop) for each in axes)] = x
    return out[None]


def oriented(
    x: NDArray[np.float32], affine: NDArray[np.float64], axcodes: str
) -> tuple[NDArray[np.float32], tuple[float, float, float]]:
    """The same voxels with axes that point to `axcodes`, and the spacing along each in mm.

    A view. Axes that lie between two directions count as the nearest.

    Raises:
        SourceError: the affine gives a voxel no size.
    """
    from nibabel import orientations

    sizes = np.sqrt((np.asarray(affine, np.float64)[:3, :3] ** 2).sum(0))
    found = orientations.io_orientation(affine) if np.isfinite(affine).all() else np.full((3, 2), np.nan)
    if np.isnan(found).any() or not (sizes > 0).all():
        raise SourceError(f"the affine must give a voxel three sizes above 0, got {sizes.tolist()} mm")
    turn = orientations.ornt_transform(found, orientations.axcodes2ornt(axcodes))
    spacing = [0.0] * 3
    for axis, target in enumerate(turn[:, 0].astype(int)):
        spacing[target] = float(sizes[axis])
    turned: NDArray[np.float32] = orientations.apply_orientation(x, turn)
    return turned, (spacing[0], spacing[1], spacing[2])


def axis_places(length: int, spacing: float, wanted: float | None, size: int) -> Places:
    """Where `size` voxels at the `wanted` spacing lie, in the middle of an axis of `length` voxels.

    Without a wanted spacing they are spread over the whole axis, from its first voxel to its last.
    """
    if wanted is None:
        places = np.linspace(0, length - 1, size) if size > 1 else np.array([(length - 1) / 2])
        return Places(places, 0, size)
    step = wanted / spacing
    num_all = int(np.round((length - 1) / step + 1))
    first = num_all // 2 - size // 2 if num_all >= size else -((size - num_all) // 2)
    start, stop = max(0, -first), min(size, num_all - first)
    # half a voxel beyond the last one is still inside, and has its value
    places = ((first + np.arange(start, stop)) * step).clip(0, length - 1)
    return Places(places, start, stop)


def sampled(
    x: NDArray[np.float32], axis: int, places: Sequence[float] | NDArray[np.float64]
) -> NDArray[np.float32]:
    """Values at these places along an axis, by linear interpolation between neighbours."""
    where = np.asarray(places, np.float64)
    below = np.floor(where).astype(np.int64)
    share = (where - below).astype(np.float32)
    low = x.take(below, axis)
    if not share.any():
        return low
    high = x.take(np.minimum(below + 1, x.shape[axis] - 1), axis)
    high -= low
    high *= share.reshape([-1 if i == axis else 1 for i in range(3)])
    low += high
    return low
