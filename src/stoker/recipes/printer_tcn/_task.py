"""What is minimised and measured: states at every step, quality at the horizon, and physics.

Shapes: series [B, length + horizon, 22] standardised; see _model.py for predictions.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stoker.recipes.printer_tcn._layout import COLUMNS, DRIVE, FEATURES, KNOWN, STATES, TARGETS
from stoker.recipes.printer_tcn._metrics import PrinterErrors
from stoker.recipes.printer_tcn._physics import Dynamics, law_residual
from stoker.recipes.printer_tcn._scaler import Scaler
from stoker.recipes.printer_tcn._settings import LossSettings
from stoker.train import Task


class Truth(NamedTuple):
    """What a batch says, in physical units."""

    series: Tensor  # [B, length + horizon, 22]
    states: Tensor  # [B, length - settled, 2]
    drive: Tensor  # [B, length - settled, 2]
    quality: Tensor  # [B, 5], at the last step
    known: Tensor  # [B], 1 where quality is


class Parts(NamedTuple):
    """The loss by part; each the mean over samples, without units."""

    quality: Tensor  # [5]
    states: Tensor
    dynamics: Tensor
    laws: Tensor


class PrinterTask(Task):
    """States of a window's steps, quality `horizon` steps later.

    Args:
        loss: the parts' weights.
        scaler: of the training layers; errors are weighed in its deviations, so that no unit dominates.
        dynamics: of the axes.
        length: steps that the model sees; those after are its future.
        settled: first step whose estimate rests on a whole receptive field; earlier ones do not count.
    """

    def __init__(
        self, loss: LossSettings, scaler: Scaler, dynamics: Dynamics, *, length: int, settled: int
    ) -> None:
        self._weights = loss
        self._scaler = scaler
        self._dynamics = dynamics
        self._length, self._settled = length, settled
        self._moments: tuple[Tensor, Tensor] | None = None

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted sum of the parts, and what the model gave."""
        prediction = self.predict(model, batch)
        parts = self.parts(prediction, self.truth(batch["series"]))
        errors = torch.cat([parts.quality, parts.states[None]])
        if "log_variance" in prediction:  # Kendall, Gal and Cipolla's e^{-s} L + s
            variance = prediction["log_variance"].float()
            errors = torch.exp(-variance) * errors + variance
        data = self._weights.quality * errors[:-1].mean() + self._weights.states * errors[-1]
        return data + self._weights.physics * (parts.dynamics + parts.laws), prediction

    def predict(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        """States and quality; needs the features alone."""
        found: dict[str, Tensor] = model(batch["series"][:, : self._length, : len(FEATURES)])
        return found

    def metrics(self) -> PrinterErrors:
        """See the class."""
        return PrinterErrors(self._scaler.of(TARGETS).mean)

    def measured(self, prediction: Any, batch: Any) -> tuple[Any, ...]:
        """Both groups with their truths, and the residual of the dynamics."""
        truth = self.truth(batch["series"])
        states = prediction["states"][:, self._settled :]
        residual = self._dynamics.residual(states, truth.drive)
        return prediction["quality"], truth.quality, truth.known, states, truth.states, residual

    def truth(self, series: Tensor) -> Truth:
        """The batch, back in physical units."""
        mean, scale = self._on(series)
        whole = series.float() * scale + mean
        seen = whole[:, self._settled : self._length]
        last = whole[:, -1]
        return Truth(
            whole, seen[..., _part(STATES)], seen[..., _part(DRIVE)], last[:, _part(TARGETS)], last[:, -1]
        )

    def parts(self, prediction: dict[str, Tensor], truth: Truth) -> Parts:
        """Squared errors and residuals in units of the training layers' deviations."""
        _, scale = self._on(truth.series)
        states = prediction["states"].float()[:, self._settled :]
        quality = prediction["quality"].float()
        of_states, of_drive, of_quality = (scale[_part(names)] for names in (STATES, DRIVE, TARGETS))
        known = truth.known[:, None]
        laws = law_residual(quality, truth.series) / of_quality
        return Parts(
            (known * ((quality - truth.quality) / of_quality).square()).mean(0),
            ((states - truth.states) / of_states).square().mean(),
            (self._dynamics.residual(states, truth.drive) / of_drive).square().mean(),
            (known * laws.square()).mean(),
        )

    def _on(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and scale [22] on the device, copied to it once."""
        if self._moments is None or self._moments[0].device != like.device:
            mean, scale = (
                torch.tensor(each, dtype=torch.float32, device=like.device)
                for each in (self._scaler.mean, self._scaler.scale)
            )
            self._moments = mean, scale
        return self._moments


def _part(names: tuple[str, ...]) -> slice:
    """Where neighbouring columns are."""
    first = COLUMNS.index(names[0])
    return slice(first, first + len(names))


assert COLUMNS[-1] == KNOWN
