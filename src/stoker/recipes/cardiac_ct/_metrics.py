"""Errors of each label over the studies where it is known, in O(1) memory and over all ranks.

Shapes: prediction and target [B, labels]; NaN in the target is a label that nobody knows.
"""

import torch
from torch import Tensor

from stoker.train._metrics_classification import ClassificationMetrics, Question
from stoker.train._metrics_regression import RegressionMetrics, merge

_UNKNOWN = -1


class KnownRegression(RegressionMetrics):
    """``mse``, ``mae``, ``rmse`` and ``r2`` of one column; nothing waits for the device."""

    def __init__(self, column: int) -> None:
        super().__init__(None)
        self.column = column

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Take a batch."""
        guess, truth = (each.detach()[:, self.column].double() for each in (prediction, target))
        known = ~truth.isnan()
        count = known.double().sum()
        truth = torch.where(known, truth, 0)
        error = torch.where(known, guess - truth, 0)
        mean = truth.sum() / count.clamp(min=1)
        spread = torch.where(known, truth - mean, 0).square().sum()
        batch = torch.stack([count, mean, spread, error.square().sum(), error.abs().sum()])
        self.moments = merge(self.moments, batch[None])


class KnownDecision(ClassificationMetrics):
    """``accuracy``, ``f1``, ``sensitivity``, ``specificity``, ``auroc``, ``auprc`` of a column of logits."""

    def __init__(self, column: int) -> None:
        super().__init__(Question("binary", 2, True, (0.5,), _UNKNOWN, ()))  # noqa: FBT003 - a record
        self.column = column

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Take a batch."""
        truth = target[:, self.column]
        super().update(prediction[:, self.column], torch.where(truth.isnan(), _UNKNOWN, truth))
