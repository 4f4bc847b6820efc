"""Means and deviations of training layers: what was standardised, and back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SourceError
from stoker.recipes.printer_tcn._layout import COLUMNS, KNOWN, TARGETS

_KNOWN = COLUMNS.index(KNOWN)
_OF_QUALITY = np.array([name in TARGETS for name in COLUMNS])


@dataclass(frozen=True)
class Scaler:
    """Of every column of a layer. One that never changes is only shifted; `known` stays as it is."""

    mean: tuple[float, ...]  # [22]
    scale: tuple[float, ...]  # [22], never 0

    def transform(self, series: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows [T, 22] in units of deviations."""
        return np.asarray((series - np.array(self.mean)) / np.array(self.scale), np.float32)

    def inverse(self, series: NDArray[np.float32]) -> NDArray[np.float32]:
        """And back, in physical units."""
        return np.asarray(series * np.array(self.scale) + np.array(self.mean), np.float32)

    def of(self, names: Sequence[str]) -> "Scaler":
        """For these columns alone."""
        places = [COLUMNS.index(name) for name in names]
        return Scaler(tuple(self.mean[i] for i in places), tuple(self.scale[i] for i in places))


def fit_scaler(layers: Iterable[NDArray[np.float32]]) -> Scaler:
    """Over all rows of the layers; quality counts only where it is known. One pass, in float64.

    Raises:
        SourceError: it is known nowhere.
    """
    count = mean = squares = np.zeros(len(COLUMNS))
    for series in layers:
        rows = series.astype(np.float64)
        known = np.where(_OF_QUALITY, rows[:, _KNOWN, None], 1.0)
        own_count = known.sum(0)
        own_mean = (rows * known).sum(0) / np.maximum(own_count, 1)
        own_squares = (known * (rows - own_mean) ** 2).sum(0)
        total = count + own_count
        share, apart = own_count / np.maximum(total, 1), own_mean - mean
        squares = squares + own_squares + apart**2 * count * share
        count, mean = total, mean + apart * share
    if not (count > 0).all():
        raise SourceError(
            "there must be a training layer above the first that extrudes; nowhere else is quality known"
        )
    deviation = np.sqrt(squares / count)
    # float32 keeps 7 digits: less than that of a large mean is rounding, not signal
    varies = deviation > 1e-6 * np.abs(mean)
    scale = np.where(varies & (deviation > 0), deviation, 1.0)
    mean[_KNOWN], scale[_KNOWN] = 0.0, 1.0
    return Scaler(tuple(mean.tolist()), tuple(scale.tolist()))
