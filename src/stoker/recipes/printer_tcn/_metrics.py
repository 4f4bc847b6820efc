"""Errors of quality and states over any number of batches, in 1 kB of memory.

State: for each of seven channels the weight n, the means of truth and prediction, the sums of their squared
deviations and of the products of these, and the sums of absolute and of relative errors. Two states are
merged by the update of Chan, Golub and LeVeque, as in stoker.train's regression metrics.
"""

import functools

import torch
from torch import Tensor
from torchmetrics import Metric

from stoker.recipes.printer_tcn._layout import STATES, TARGETS

CHANNELS = (*TARGETS, *STATES)
_LEAST = 1e-6  # a truth nearer to 0 has no relative error


class PrinterErrors(Metric):
    """``rmse/…``, ``mae/…``, ``r2/…``, ``mape/…``, ``correlation/…``, ``bias/…`` of all targets and states.

    ``r2`` is the mean of the five targets', ``states_r2`` of both states'; ``fraction_of_mean`` is the mean
    over the targets of the model's RMSE divided by that of always predicting the training layers' mean;
    ``residual`` is the RMS of the dynamics' residual in mm/s². Sums are in float64 and add up over ranks;
    nothing waits for the device.
    """

    full_state_update = False
    higher_is_better = False
    moments: Tensor  # [7, 9]
    residuals: Tensor  # [2]: sum of squares, count

    def __init__(self, training_mean: tuple[float, ...]) -> None:
        super().__init__(compute_with_cache=False)
        self.training_mean = training_mean
        zeros = torch.zeros(len(CHANNELS), 9, dtype=torch.float64)
        self.add_state("moments", zeros, dist_reduce_fx=_merge_all)
        self.add_state("residuals", torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")

    @property
    def update_called(self) -> bool:
        """Always: a rank may have got no batch."""
        return True

    def update(
        self,
        quality: Tensor,
        truth: Tensor,
        known: Tensor,
        states: Tensor,
        true_states: Tensor,
        residual: Tensor,
    ) -> None:
        """Take in a batch: [B, 5] twice, [B], [B, T, 2] twice, [B, T - 2, 2]."""
        everywhere = torch.ones_like(true_states[..., 0])
        of_quality = _moments(quality, truth, known)
        of_states = _moments(states.flatten(0, 1), true_states.flatten(0, 1), everywhere.flatten())
        self.moments = merge(self.moments, torch.cat([of_quality, of_states]))
        squares = residual.detach().double().square()
        total = squares.sum()
        self.residuals = self.residuals + torch.stack([total, torch.full_like(total, squares.numel())])

    def compute(self) -> dict[str, Tensor]:
        """The values over all batches; NaN where there was nothing."""
        count, mean, guessed, of_truth, of_guess, of_both, absolute, relative, num_relative = (
            self.moments.unbind(1)
        )
        bias = guessed - mean
        squared = (of_guess - 2 * of_both + of_truth).clamp(min=0) + count * bias.square()
        r2 = 1 - squared / of_truth
        by_name = {
            "rmse": (squared / count).sqrt(),
            "mae": absolute / count,
            "r2": r2,
            "mape": 100 * relative / num_relative,
            "correlation": of_both / (of_truth * of_guess).sqrt(),
            "bias": torch.where(count > 0, bias, torch.nan),
        }
        num = len(TARGETS)
        constant = torch.tensor(self.training_mean, dtype=torch.float64, device=mean.device)
        of_constant = of_truth[:num] / count[:num] + (mean[:num] - constant).square()
        values = {
            "r2": r2[:num].mean(),
            "states_r2": r2[num:].mean(),
            "fraction_of_mean": (squared[:num] / count[:num] / of_constant).sqrt().mean(),
            "residual": (self.residuals[0] / self.residuals[1]).sqrt(),
        }
        return values | {
            f"{kind}/{name}": each[place]
            for kind, each in by_name.items()
            for place, name in enumerate(CHANNELS)
        }


def merge(a: Tensor, b: Tensor) -> Tensor:
    """The state of two sets of data, [C, 9] each; either may be of no data."""
    count = a[:, 0] + b[:, 0]
    share = b[:, 0] / count.clamp(min=1)
    apart = b[:, 1:3] - a[:, 1:3]
    between = a[:, 0] * share
    products = torch.stack([apart[:, 0] ** 2, apart[:, 1] ** 2, apart[:, 0] * apart[:, 1]], 1)
    means = a[:, 1:3] + apart * share[:, None]
    spreads = a[:, 3:6] + b[:, 3:6] + products * between[:, None]
    return torch.cat([count[:, None], means, spreads, a[:, 6:] + b[:, 6:]], 1)


def _merge_all(states: Tensor) -> Tensor:
    """The same of many, [R, C, 9]."""
    return functools.reduce(merge, states.unbind())


def _moments(prediction: Tensor, truth: Tensor, weight: Tensor) -> Tensor:
    """The state of one batch, [C, 9]; predictions and truths [n, C], weights [n] of 0 and 1."""
    guess, target, known = prediction.detach().double(), truth.detach().double(), weight.double()[:, None]
    count = known.sum(0).expand(target.shape[1])
    divisor = count.clamp(min=1)
    mean, guessed = (known * target).sum(0) / divisor, (known * guess).sum(0) / divisor
    left, right = target - mean, guess - guessed
    error = (guess - target).abs()
    has_ratio = known * (target.abs() > _LEAST)
    sums = [known * left * left, known * right * right, known * left * right, known * error]
    sums += [has_ratio * error / target.abs().clamp(min=_LEAST), has_ratio.expand_as(target)]
    return torch.stack([count, mean, guessed, *(each.sum(0) for each in sums)], 1)
