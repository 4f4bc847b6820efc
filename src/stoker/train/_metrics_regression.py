"""Errors of regression: mean squared, mean absolute, its root, and the coefficient of determination.

State: moments [C, 5] in float64, for each channel the number of values, the targets' mean and sum of
squared deviations from it, and the sums of squared and absolute errors. Two such states are merged
by the update of Chan, Golub and LeVeque, which unlike sum(t²) - sum(t)²/n loses nothing when the
mean is far larger than the spread:

    mean = a.mean + δ b.n / n,    m2 = a.m2 + b.m2 + δ² a.n b.n / n,    δ = b.mean - a.mean
"""

import functools

import torch
from torch import Tensor

from stoker.errors import UsageError
from stoker.train._metrics_state import Accumulator, Values, WholeArrays, named


class RegressionMetrics(Accumulator):
    """``mse``, ``mae``, ``rmse`` and ``r2``, of everything or of each channel too; 40 bytes a channel."""

    moments: Tensor

    def __init__(self, names: tuple[str, ...] | None) -> None:
        super().__init__()
        self.names = names
        zeros = torch.zeros(len(names or "1"), 5, dtype=torch.float64)
        self.add_state("moments", zeros, dist_reduce_fx=_merge_all, persistent=True)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Take a batch: both [B] or [B, ...], or [B, C, ...] if there are channels."""
        guess, truth = by_channel(prediction, target, self.names)
        if truth.numel():
            self.moments = merge(self.moments, batch_moments(guess, truth))

    def compute(self) -> Values:
        """The values over all batches."""
        return regression_values(self.moments, self.names or ())


class WholeRegression(WholeArrays):
    """The same of whole arrays, in two passes."""

    def __init__(self, names: tuple[str, ...] | None) -> None:
        super().__init__()
        self.names = names

    def rows(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Both as [n, C]."""
        guess, truth = by_channel(prediction, target, self.names)
        return guess.T, truth.T

    def no_rows(self) -> tuple[Tensor, Tensor]:
        """The rows of an empty batch."""
        empty = torch.empty(0, len(self.names or "1"), dtype=torch.float64)
        return empty, empty

    def values(self, predictions: Tensor, targets: Tensor) -> Values:
        """The values of all rows."""
        if len(targets) == 0:
            moments = torch.zeros(targets.shape[1], 5, dtype=torch.float64, device=targets.device)
        else:
            moments = batch_moments(predictions.T, targets.T)
        return regression_values(moments, self.names or ())


def by_channel(prediction: Tensor, target: Tensor, names: tuple[str, ...] | None) -> tuple[Tensor, Tensor]:
    """Both as [C, n] in float64, C = 1 without channels."""
    if prediction.shape != target.shape:
        raise UsageError(
            f"prediction and target must have one shape, got {list(prediction.shape)} and "
            f"{list(target.shape)}; they are not broadcast, since that hides mistakes"
        )
    if names is None:
        return prediction.detach().double().reshape(1, -1), target.detach().double().reshape(1, -1)
    if prediction.ndim < 2 or prediction.shape[1] != len(names):
        raise UsageError(
            f"prediction must be [B, {len(names)}, ...] for {len(names)} channels, "
            f"got {list(prediction.shape)}"
        )
    shape = (len(names), prediction.numel() // len(names))
    guess, truth = (each.detach().double().movedim(1, 0).reshape(shape) for each in (prediction, target))
    return guess, truth


def batch_moments(guess: Tensor, truth: Tensor) -> Tensor:
    """The state of one batch; both [C, n] with n > 0."""
    mean = truth.mean(1)
    m2 = (truth - mean[:, None]).square().sum(1)
    error = guess - truth
    count = torch.full_like(mean, truth.shape[1])
    return torch.stack([count, mean, m2, error.square().sum(1), error.abs().sum(1)], dim=1)


def merge(a: Tensor, b: Tensor) -> Tensor:
    """The state of two sets of data, [C, 5] each; either may be of no data."""
    count = a[:, 0] + b[:, 0]
    share = b[:, 0] / count.clamp(min=1)
    delta = b[:, 1] - a[:, 1]
    mean = a[:, 1] + delta * share
    m2 = a[:, 2] + b[:, 2] + delta.square() * a[:, 0] * share
    return torch.stack([count, mean, m2, a[:, 3] + b[:, 3], a[:, 4] + b[:, 4]], dim=1)


def _merge_all(states: Tensor) -> Tensor:
    """The same of many, [R, C, 5]."""
    return functools.reduce(merge, states.unbind())


def regression_values(moments: Tensor, names: tuple[str, ...]) -> Values:
    """All values. Overall errors are of all elements, overall r2 is the mean of the channels'."""
    count, mean, m2, squared, absolute = moments.unbind(1)
    total = count.sum()
    mse, mae = squared / count, absolute / count
    r2 = _r2(count, mean, m2, squared)
    return {
        **named("mse", squared.sum() / total, mse, names),
        **named("mae", absolute.sum() / total, mae, names),
        **named("rmse", (squared.sum() / total).sqrt(), mse.sqrt(), names),
        **named("r2", r2.mean(), r2, names),
    }


def _r2(count: Tensor, mean: Tensor, m2: Tensor, squared: Tensor) -> Tensor:
    """As scikit-learn: of targets that never vary 1 if all are met and 0 if not; NaN below 2 values."""
    noise = count * (4 * torch.finfo(torch.float64).eps * mean).square()  # what rounding makes of constants
    varies = ~(m2 <= noise)  # NaN stays NaN
    of_constants = (squared <= noise).double()
    r2 = torch.where(varies, 1 - squared / m2, of_constants)
    return torch.where(count < 2, torch.nan, r2)
