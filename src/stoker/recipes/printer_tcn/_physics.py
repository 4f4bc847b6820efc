"""Residuals of what is known of the printer: the dynamics of its axes and the laws of quality.

Both are in physical units and zero, up to rounding, on trajectories that obey them. Nothing branches on a
tensor's values: it compiles as one graph and never waits for the device.

Shapes: states [B, T, 2] in mm, drive [B, T, 2] in mm/s², quality [B, 5], series [B, T, 22] in physical units.
"""

import torch
from torch import Tensor

from stoker.recipes.printer_tcn._axis import Axis
from stoker.recipes.printer_tcn._laws import Conditions, Quality, lawful
from stoker.recipes.printer_tcn._layout import COLUMNS, DRIVE


class Dynamics:
    """The equations of motion of both axes at a sample rate; see _axis.py."""

    def __init__(self, axes: tuple[Axis, Axis], rate: float) -> None:
        self._recurrences = [axis.recurrence(rate) for axis in axes]

    def residual(self, states: Tensor, drive: Tensor) -> Tensor:
        """[B, T - 2, 2] in mm/s²: the acceleration that is missing for the next state to be right."""
        found = []
        for axis, each in enumerate(self._recurrences):
            error, pull = states[..., axis], drive[..., axis]
            expected = each.trace * error[:, 1:-1] - each.determinant * error[:, :-2]
            for lag, weight in enumerate(each.weights):
                expected = expected + weight * pull[:, 2 - lag : pull.shape[1] - lag]
            found.append((error[:, 2:] - expected) / each.gain)
        return torch.stack(found, -1)


def law_residual(quality: Tensor, series: Tensor) -> Tensor:
    """[B, 5] in the targets' units: how far each value is from what the laws say at the series' last step."""
    given = Quality(*quality.unbind(1))
    return quality - torch.stack(lawful(torch, conditions(series[:, -1]), given), 1)


def conditions(rows: Tensor) -> Conditions:
    """Those of rows [B, 22]."""

    def column(name: str) -> Tensor:
        return rows[..., COLUMNS.index(name)]

    speed = torch.stack([column(f"v{axis}_ref") for axis in "xyz"], -1)
    pull = torch.stack([column(name) for name in DRIVE], -1)
    lengths = (torch.linalg.vector_norm(each, dim=-1) for each in (speed, pull))
    return Conditions(column("T_interface"), column("cooling_rate"), *lengths)
