"""Averages that one bad step does not move, and how far they can be trusted.

Shapes: values: [n], one per step in order; drawn: [draws, n], the same steps drawn again with
replacement, in blocks, because neighbouring steps are alike (a worker delivers in turn, a machine is
busy for a while).
"""

import math

import numpy as np
import numpy.typing as npt

from stoker.doctor._diagnosis import Interval

Floats = npt.NDArray[np.float64]

NUM_DRAWS = 300
_LOW, _HIGH = 5.0, 95.0  # percentiles: an interval holds nine of ten


def clipped_mean(values: Floats) -> Floats:
    """Mean over the last axis with the rarest peaks cut down to the next lower one.

    A stall that recurs counts in full, however uneven the steps are; one that happened once in forty
    steps does not.
    """
    num = values.shape[-1]
    num_clipped = max(1, num // 40) if num >= 8 else 0
    if not num_clipped:
        return np.asarray(values.mean(axis=-1))
    limit = np.partition(values, num - 1 - num_clipped, axis=-1)[..., num - 1 - num_clipped, None]
    return np.asarray(np.minimum(values, limit).mean(axis=-1))


def typical(values: Floats) -> Floats:
    """Median over the last axis; where the steps come in two kinds, the mean that counts both."""
    middle, mean = np.median(values, axis=-1), clipped_mean(values)
    return np.where(np.abs(mean - middle) <= 0.1 * middle, middle, mean)


def drawn_indices(num: int, *, block: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Indices of `NUM_DRAWS` resamplings of `num` steps in circular blocks. Same seed, same draws."""
    block = max(1, min(block, num))
    per_draw = math.ceil(num / block)
    starts = np.random.default_rng(seed).integers(0, num, (NUM_DRAWS, per_draw, 1))
    indices = (starts + np.arange(block)) % num
    return np.asarray(indices.reshape(NUM_DRAWS, -1)[:, :num])


def block_length(num: int, *, period: int) -> int:
    """Steps that belong together: at least a round of all workers, and enough to keep a slow drift."""
    return max(period, round(math.sqrt(num)))


def interval(value: float, draws: Floats) -> Interval:
    """The value with the range of its resamplings, which always includes the value itself."""
    low, high = np.percentile(draws, [_LOW, _HIGH])
    return Interval(float(value), min(float(low), float(value)), max(float(high), float(value)))


def ratio_interval(above: tuple[float, Floats], below: tuple[float, Floats]) -> Interval:
    """Quotient of two independent figures, each with its resamplings."""
    if below[0] <= 0:
        return Interval(1.0, 1.0, 1.0)
    draws = above[1] / np.maximum(below[1], 1e-12)
    return interval(above[0] / below[0], draws)
