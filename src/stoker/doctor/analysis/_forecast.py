"""Predicted speed-ups with the range that they may lie in."""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from stoker.doctor._diagnosis import Interval
from stoker.doctor.analysis._model import Model, Setting
from stoker.doctor.analysis._stages import Timing

_MODEL_DOUBT = 0.03  # of any prediction: what the queue leaves out
_FIRST_WORKER_DOUBT = 0.04  # and more where no worker was ever seen at work
_DRAG_DOUBT = 0.4  # and how much a loop suffers from them is then a guess


@dataclass(frozen=True)
class Forecast:
    """A model, and by how much its two ingredients may be wrong."""

    model: Model
    loop_doubt: float
    job_doubt: float

    def speedup(self, setting: Setting) -> Interval:
        """Against the present settings: as predicted, and for a loop and batches that cost less or more."""
        value = self.model.speedup(setting)
        corners, doubt = [value], _MODEL_DOUBT
        if setting.num_workers and not self.model.present.num_workers:
            doubt += _FIRST_WORKER_DOUBT
            corners += [self._dragged(1 + more).speedup(setting) for more in (-_DRAG_DOUBT, _DRAG_DOUBT)]
        for loop, job in itertools.product((-1, 1), (-1, 1)):
            other = replace(
                self.model,
                loop_scale=1 + loop * self.loop_doubt,
                job_scale=self.model.job_scale * (1 + job * self.job_doubt),
            )
            corners.append(other.speedup(setting))
        return Interval(value, min(corners) * (1 - doubt), max(corners) * (1 + doubt))

    def _dragged(self, factor: float) -> Model:
        loop = self.model.loop
        return replace(self.model, loop=replace(loop, drag=loop.drag * factor))


def forecast(model: Model, timing: Timing) -> Forecast:
    """Doubts from the spread of what was measured."""
    walls = np.array([sum(job) for job in model.jobs])
    spread = float(walls.std() / max(walls.mean(), 1e-12) / math.sqrt(len(walls)))
    loop = timing.host_s or timing.step_s
    width = (loop.high - loop.low) / 2 / max(loop.value, 1e-12)
    return Forecast(model, loop_doubt=min(0.02 + width, 0.3), job_doubt=min(0.02 + 1.65 * spread, 0.3))


def without(share: float, *, least: float, likely: float, most: float = 1.0) -> Interval:
    """Speed-up if a share of the time falls away in part: between `least` and `most` of it."""
    share = min(max(share, 0.0), 0.98)
    return Interval(*(1 / (1 - share * part) for part in (likely, least, most)))
