"""The losses of an epoch, kept on the device until they are read, each batch weighted by its samples."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stoker.train._distributed import Ranks

_CHUNK = 256


class LossSum:
    """Adding keeps a loss as it is and costs next to nothing; reading waits for the device, once.

    They are added up one after the other in float64, so that the sum does not depend on when it was
    read, or on a checkpoint in between.
    """

    def __init__(self) -> None:
        self._total: float  # of this rank, of the losses that were read
        self._num_samples: int  # of all
        self._read: list[float]  # total and samples of all ranks when an interval was read last
        self._losses: list[Tensor]  # not read yet
        self._chunks: list[Tensor]  # likewise, before them; many in one
        self._weights: list[int]  # samples of all that were not read
        self.reset()

    def add(self, loss: Tensor, num_samples: int) -> None:
        """Take in a batch's mean loss, which has no gradient and will not be written to."""
        self._losses.append(loss)
        self._weights.append(num_samples)
        self._num_samples += num_samples
        if len(self._losses) == _CHUNK:
            self._chunks.append(torch.stack(self._losses))
            self._losses.clear()

    def reset(self) -> None:
        """Begin an epoch."""
        self._total, self._num_samples, self._read = 0.0, 0, [0.0, 0.0]
        self._losses, self._chunks, self._weights = [], [], []

    def mean(self, ranks: Ranks) -> float:
        """Of all samples of all ranks since the epoch began; every rank must ask."""
        total, num_samples = self._sums(ranks)
        return total / num_samples if num_samples else float("nan")

    def interval_mean(self, ranks: Ranks) -> float:
        """Of those since this was last asked."""
        now = self._sums(ranks)
        total, num_samples = (new - old for new, old in zip(now, self._read, strict=True))
        self._read = now
        return total / num_samples if num_samples else float("nan")

    def state(self) -> dict[str, Any]:
        """Plain numbers."""
        return {"total": self._own_total(), "num_samples": self._num_samples, "read": self._read}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.reset()
        self._total, self._num_samples = state["total"], state["num_samples"]
        self._read = list(state["read"])

    def _sums(self, ranks: Ranks) -> list[float]:
        return ranks.added_floats(self._own_total(), float(self._num_samples))

    def _own_total(self) -> float:
        if self._losses:
            self._chunks.append(torch.stack(self._losses))
        losses = torch.cat(self._chunks).tolist() if self._chunks else []
        for loss, weight in zip(losses, self._weights, strict=True):
            self._total += loss * weight
        self._losses, self._chunks, self._weights = [], [], []
        return self._total
