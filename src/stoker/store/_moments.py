"""Exact streaming statistics: count, mean, deviation, extremes of a field, by channel.

Every value is visited once, in double precision; parts are merged by the pairwise update of Chan,
Golub and LeVeque (1979), which does not lose digits as sums of squares do. Values that are not
finite are counted apart and left out of the rest.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.store._samples import Array

_BLOCK_ELEMENTS = 1 << 17  # 1 MiB of float64: stays in the processor's cache
_MAX_CHANNELS = 64  # a longer "channel" axis is time or space; it gets one row of statistics


@dataclass(frozen=True)
class Moments:
    """Running statistics of one field; every array has one entry a channel."""

    count: NDArray[np.int64]
    num_nonfinite: NDArray[np.int64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]  # sum of squared distances from the mean
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]

    @classmethod
    def of(cls, samples: Array, channel_axis: int | None) -> "Moments":
        """Statistics of ``samples`` [N, ...]; ``channel_axis`` counts within a sample."""
        if channel_axis is None or not 1 <= samples.shape[channel_axis + 1] <= _MAX_CHANNELS:
            moved = samples[:, None]
        else:
            moved = np.moveaxis(samples, channel_axis + 1, 1)
        by_channel = moved.reshape(*moved.shape[:2], math.prod(moved.shape[2:]))
        room = np.empty(min(by_channel.size, _BLOCK_ELEMENTS))
        return merge([_of_block(block, room) for block in _blocks(by_channel)])

    @classmethod
    def from_dict(cls, entries: dict[str, list[float]]) -> "Moments":
        """The statistics that ``to_dict`` wrote."""
        return cls(
            count=np.array(entries["count"], np.int64),
            num_nonfinite=np.array(entries["num_nonfinite"], np.int64),
            **{name: np.array(entries[name], np.float64) for name in _FLOATS},
        )

    def to_dict(self) -> dict[str, list[Any]]:
        """Plain lists, one entry a channel."""
        lists: dict[str, list[Any]] = {
            "count": self.count.tolist(),
            "num_nonfinite": self.num_nonfinite.tolist(),
        }
        for name in _FLOATS:
            lists[name] = getattr(self, name).tolist()
        return lists

    @property
    def std(self) -> NDArray[np.float64]:
        """Population standard deviation, as ``numpy.std``."""
        deviation: NDArray[np.float64] = np.sqrt(self.squares / np.maximum(self.count, 1))
        return deviation


_FLOATS = ("mean", "squares", "minimum", "maximum")


@np.errstate(over="ignore", invalid="ignore")  # squares beyond 1e308 are infinite, as they are
def merge(parts: list[Moments]) -> Moments:
    """The statistics of all parts together; unequal numbers of channels become one channel."""
    if len({len(part.count) for part in parts}) > 1:
        parts = [_collapse(part) for part in parts]
    count = np.stack([part.count for part in parts])
    total = count.sum(axis=0)
    share = count / np.maximum(total, 1)
    means = np.stack([part.mean for part in parts])
    mean = (share * means).sum(axis=0)
    squares = np.stack([part.squares for part in parts]) + count * (means - mean) ** 2
    filled = count > 0
    lowest = np.stack([part.minimum for part in parts])
    highest = np.stack([part.maximum for part in parts])
    return Moments(
        count=total,
        num_nonfinite=np.stack([part.num_nonfinite for part in parts]).sum(axis=0),
        mean=mean,
        squares=squares.sum(axis=0),
        minimum=_or_zero(np.where(filled, lowest, np.inf).min(axis=0)),
        maximum=_or_zero(np.where(filled, highest, -np.inf).max(axis=0)),
    )


def _blocks(values: Array) -> Iterator[Array]:
    """[N, C, M] values cut along N, and along M where one sample is too large to be copied."""
    num_samples, num_channels, size = values.shape
    wide = max(1, _BLOCK_ELEMENTS // max(1, num_channels))
    step = max(1, _BLOCK_ELEMENTS // max(1, num_channels * size))
    if num_samples == 0 or size == 0:
        yield values
    for i in range(0, num_samples, step):
        for j in range(0, size, wide):
            yield values[i : i + step, :, j : j + wide]


def _collapse(part: Moments) -> Moments:
    channels = [
        Moments(**{name: getattr(part, name)[c : c + 1] for name in ("count", "num_nonfinite", *_FLOATS)})
        for c in range(len(part.count))
    ]
    return merge(channels)


@np.errstate(over="ignore", invalid="ignore")
def _of_block(block: Array, room: NDArray[np.float64]) -> Moments:
    """Statistics of [N, C, M] values that fit into ``room``, which is overwritten.

    The sums are NumPy's own, not BLAS': a shard's bytes must not depend on a number of threads.
    """
    values = _double(block, room)
    total = values.shape[0] * values.shape[2]
    count = np.full(values.shape[1], total)
    if total and _all_finite(extremes := _extremes(block)):
        minimum, maximum = extremes
        mean = values.mean(axis=(0, 2))
        values -= mean[None, :, None]
    else:
        finite = np.isfinite(values)
        count = finite.sum(axis=(0, 2))
        kept = np.where(finite, values, 0.0)
        mean = kept.sum(axis=(0, 2)) / np.maximum(count, 1)
        minimum = _or_zero(np.min(values, axis=(0, 2), where=finite, initial=np.inf))
        maximum = _or_zero(np.max(values, axis=(0, 2), where=finite, initial=-np.inf))
        values = np.where(finite, kept - mean[None, :, None], 0.0)
    return Moments(
        count=count,
        num_nonfinite=total - count,
        mean=mean,
        squares=np.square(values, out=values).sum(axis=(0, 2)),
        minimum=minimum,
        maximum=maximum,
    )


def _double(block: Array, room: NDArray[np.float64]) -> NDArray[np.float64]:
    """``block.astype(float64)``, laid out as that lays it out, so that sums have the same bits.

    In room that is used again: fresh memory costs more than all sums, where what is freed goes back at once.
    """
    slowest_first = sorted(range(block.ndim), key=lambda axis: -abs(block.strides[axis]))
    laid_out = room[: block.size].reshape([block.shape[axis] for axis in slowest_first])
    values = laid_out.transpose(np.argsort(slowest_first))
    values[...] = block
    return values


def _extremes(block: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least and greatest of each channel, found in the values' own type: half the bytes of a copy."""
    return block.min(axis=(0, 2)).astype(np.float64), block.max(axis=(0, 2)).astype(np.float64)


def _all_finite(extremes: tuple[NDArray[np.float64], NDArray[np.float64]]) -> bool:
    """Whether all values are: one that is not makes an extreme that is not."""
    return bool(np.isfinite(extremes).all())


def _or_zero(extreme: NDArray[np.float64]) -> NDArray[np.float64]:
    """Zero where there was no finite value at all (``count`` is zero there too)."""
    return np.where(np.isfinite(extreme), extreme, 0.0)
