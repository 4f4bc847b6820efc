"""What is minimised and measured.

Shapes: x [B, 1, X, Y, Z], targets [B, labels] with NaN where unknown, predictions [B, labels].
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stoker.recipes.cardiac_ct._metrics import KnownDecision, KnownRegression
from stoker.recipes.cardiac_ct._model import Statistics
from stoker.recipes.cardiac_ct._settings import LabelSettings, LossSettings
from stoker.train import Task


class CardiacTask(Task):
    """Numbers and decisions at once; a label that nobody knows counts for nothing.

    Args:
        labels: which are which.
        weights: of the two kinds in the loss.
        statistics: of the training labels: errors are measured in standard deviations, so that no kind of
            label outweighs the others by its unit.
    """

    def __init__(self, labels: LabelSettings, weights: LossSettings, statistics: Statistics) -> None:
        self._labels = labels
        self._weights = weights
        self._statistics = statistics

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """The mean over samples of what their known labels give, and the predictions."""
        prediction = model(batch["x"]).float()
        return label_loss(prediction, batch["targets"], self._weights, self._statistics), prediction

    def predict(self, model: nn.Module, batch: Any) -> Tensor:
        """Numbers in their unit and probabilities; needs no labels."""
        prediction: Tensor = model(batch["x"]).float()
        count = len(self._labels.regression)
        return torch.cat([prediction[:, :count], prediction[:, count:].sigmoid()], 1)

    def metrics(self) -> Any:
        """By the label's name."""
        count = len(self._labels.regression)
        numbers = {name: KnownRegression(i) for i, name in enumerate(self._labels.regression)}
        decisions = {name: KnownDecision(count + i) for i, name in enumerate(self._labels.classification)}
        return {**numbers, **decisions}

    def measured(self, prediction: Any, batch: Any) -> tuple[Any, ...]:
        """Prediction and target."""
        return prediction, batch["targets"]


def label_loss(prediction: Tensor, target: Tensor, weights: LossSettings, statistics: Statistics) -> Tensor:
    """The mean over samples; each kind is the sum over its labels. Unknown labels give 0 and no gradient."""
    count = len(statistics.mean)
    known = ~target.isnan()
    truth = torch.where(known, target, 0)
    total = prediction.new_zeros(len(prediction))
    if count and weights.regression:
        error = (prediction[:, :count] - truth[:, :count]) / _like(statistics.std, prediction)
        total = total + weights.regression * (error.square() * known[:, :count]).sum(1)
    if count < prediction.shape[1] and weights.classification:
        each = functional.binary_cross_entropy_with_logits(
            prediction[:, count:],
            truth[:, count:],
            pos_weight=_like(statistics.positive_weight, prediction),
            reduction="none",
        )
        total = total + weights.classification * (each * known[:, count:]).sum(1)
    return total.mean()


def _like(values: Sequence[float], prediction: Tensor) -> Tensor:
    return prediction.new_tensor(values)
