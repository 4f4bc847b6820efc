"""The network: a 3-D residual encoder, a shared layer, and an output for each label.

All stages are looked at: a lump of lime is seen at a fine one, a large chamber at a coarse one. Batches are
normalised, not samples: how much there is of something must not be divided away.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from stoker.recipes.cardiac_ct._settings import ModelSettings

_MOST_WEIGHT = 20.0  # of a positive: a rare label must not drown the others


@dataclass(frozen=True)
class Statistics:
    """What the model must know of its training labels."""

    mean: tuple[float, ...]  # of each regression
    std: tuple[float, ...]  # 1 where values never vary
    positive_weight: tuple[float, ...]  # of each decision, for the loss


def fit_statistics(values: NDArray[np.float32], *, num_regressions: int, balance: bool) -> Statistics:
    """Of the training studies' labels [N, labels], where they are known."""
    means, stds, weights = [], [], []
    for place, column in enumerate(values.T):
        known = column[~np.isnan(column)].astype(np.float64)
        if place < num_regressions:
            means.append(float(known.mean()) if len(known) else 0.0)
            spread = float(known.std()) if len(known) else 0.0
            stds.append(spread if spread > 0 else 1.0)
            continue
        positive = float((known == 1).sum())
        even = (len(known) - positive) / positive if balance and positive else 1.0
        weights.append(min(max(even, 1 / _MOST_WEIGHT), _MOST_WEIGHT))
    return Statistics(tuple(means), tuple(stds), tuple(weights))


class CardiacNet(nn.Module):
    """Volumes [B, 1, X, Y, Z] from 0 to 1 become [B, labels]: regressions in their own unit, then logits.

    A new one predicts about the training labels' mean.

    Args:
        settings: sizes.
        num_regressions: how many labels are numbers.
        num_decisions: how many are yes or no.
        statistics: of the training labels; without them for a state that brings its own.
    """

    target_mean: Tensor
    target_std: Tensor
    positive_weight: Tensor

    def __init__(
        self,
        settings: ModelSettings,
        *,
        num_regressions: int,
        num_decisions: int,
        statistics: Statistics | None = None,
    ) -> None:
        super().__init__()
        found = statistics or Statistics(
            (0.0,) * num_regressions, (1.0,) * num_regressions, (1.0,) * num_decisions
        )
        self.num_regressions = num_regressions
        self.register_buffer("target_mean", torch.tensor(found.mean, dtype=torch.float32))
        self.register_buffer("target_std", torch.tensor(found.std, dtype=torch.float32))
        self.register_buffer("positive_weight", torch.tensor(found.positive_weight, dtype=torch.float32))
        self.windows = settings.windows
        self.window_norm = nn.BatchNorm3d(
            len(settings.windows), affine=False
        )  # lime is rare, and must stand out
        self.stem = nn.Conv3d(len(settings.windows), settings.widths[0], 3, stride=2, padding=1, bias=False)
        self.stages = nn.ModuleList()
        self.norms = nn.ModuleList(nn.BatchNorm3d(width) for width in settings.widths)
        before = settings.widths[0]
        for number, width in enumerate(settings.widths):
            blocks = [_Block(before, width, 2 if number else 1)]
            blocks += [_Block(width, width, 1) for _ in range(settings.blocks - 1)]
            self.stages.append(nn.Sequential(*blocks))
            before = width
        self.shared = nn.Sequential(
            nn.Linear(2 * sum(settings.widths), settings.hidden), nn.ReLU(), nn.Dropout(settings.dropout)
        )
        self.output = nn.Linear(settings.hidden, num_regressions + num_decisions)
        nn.init.normal_(self.output.weight, std=0.01)
        nn.init.zeros_(self.output.bias)

    @property
    def statistics(self) -> Statistics:
        """Those that are part of the state."""
        mean, std, weight = (
            tuple(float(value) for value in each)
            for each in (self.target_mean, self.target_std, self.positive_weight)
        )
        return Statistics(mean, std, weight)

    def forward(self, x: Tensor) -> Tensor:
        """Predictions of a batch."""
        x = torch.cat([((x - low) / (high - low)).clamp(0, 1) for low, high in self.windows], 1)
        x = self.stem(self.window_norm(x))
        features = []
        for stage, norm in zip(self.stages, self.norms, strict=True):
            x = stage(x)
            maps = functional.relu(norm(x))
            # the mean says how much there is of something, the greatest value whether there is any
            features += [maps.mean((2, 3, 4)), maps.amax((2, 3, 4))]
        out: Tensor = self.output(self.shared(torch.cat(features, 1))).float()
        numbers = out[:, : self.num_regressions] * self.target_std + self.target_mean
        return torch.cat([numbers, out[:, self.num_regressions :]], 1)


class _Block(nn.Module):
    """Two convolutions beside a short cut, normalised before each."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first_norm = nn.BatchNorm3d(before)
        self.first = nn.Conv3d(before, width, 3, stride=stride, padding=1, bias=False)
        self.second_norm = nn.BatchNorm3d(width)
        self.second = nn.Conv3d(width, width, 3, padding=1, bias=False)
        self.short_cut = (
            nn.Identity()
            if stride == 1 and before == width
            else nn.Conv3d(before, width, 1, stride=stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        changed = functional.relu(self.first_norm(x))
        beside = self.short_cut(changed if not isinstance(self.short_cut, nn.Identity) else x)
        changed = self.second(functional.relu(self.second_norm(self.first(changed))))
        total: Tensor = beside + changed
        return total
