"""Statistics of every channel of every field, from pieces that need not be in memory together."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from stoker.loader._window_plan import Integers
from stoker.store import FieldStats
from stoker.store._moments import Moments, merge
from stoker.store._samples import Array

_CHANNELS_AT_ONCE = 64  # more would be taken for time or space by Moments


def channel_statistics(
    pieces: Iterable[Mapping[str, Array]], by_step: Callable[[str, Array], Array]
) -> dict[str, FieldStats]:
    """Over all pieces, one entry a channel; fields that are complex, or always empty, are left out.

    ``by_step`` gives a field's array as [T, channels].
    """
    totals: dict[str, list[Moments]] = {}
    for piece in pieces:
        for name, array in piece.items():
            if array.size and array.dtype.kind != "c":
                parts = _moments(by_step(name, array))
                totals[name] = _merged(totals[name], parts) if name in totals else parts
    return {name: _stats(parts) for name, parts in totals.items()}


def spread_evenly(count: int, total: int, seed: int) -> Integers:
    """``count`` of the numbers below ``total``: one drawn from each of as many equal stretches."""
    places = (np.arange(count) + np.random.default_rng(seed).random(count)) / count
    return np.minimum((places * total).astype(np.int64), total - 1)


def _moments(steps: Array) -> list[Moments]:
    """Of steps [T, channels], for as many channels at a time as Moments keeps apart."""
    starts = range(0, steps.shape[1], _CHANNELS_AT_ONCE)
    return [Moments.of(steps[:, start : start + _CHANNELS_AT_ONCE], 0) for start in starts]


def _merged(left: list[Moments], right: list[Moments]) -> list[Moments]:
    return [merge(list(pair)) for pair in zip(left, right, strict=True)]


def _stats(parts: list[Moments]) -> FieldStats:
    """Of all channels, one entry each."""

    def joined(name: str) -> tuple[Any, ...]:
        return tuple(np.concatenate([getattr(part, name) for part in parts]).tolist())

    return FieldStats(
        count=joined("count"),
        num_nonfinite=joined("num_nonfinite"),
        mean=joined("mean"),
        std=joined("std"),
        min=joined("minimum"),
        max=joined("maximum"),
    )
