"""Which epoch is the best, and when there have been enough without a better one."""

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from stoker.errors import UsageError

_LOWER = {"loss", "mse", "mae", "rmse", "error"}
_HIGHER = {
    *("accuracy", "auprc", "auroc", "dice", "f1", "f_score", "iou", "macro_f1", "miou"),
    *("precision", "r2", "recall", "sensitivity", "specificity"),
}


def is_higher_better(name: str, mode: str, said: bool | None) -> bool:  # noqa: FBT001 - three answers
    """What `mode` says; with "auto" what the metric `said`, or else what its name means.

    Raises:
        UsageError: nobody knows.
    """
    if mode not in {"auto", "min", "max"}:
        raise UsageError(f"mode must be auto, min or max, got {mode!r}")
    if mode != "auto":
        return mode == "max"
    if isinstance(said, bool):
        return said
    for word in name.lower().split("/"):  # "f1/murmur" and "valve/f1" are both f1
        if word in _LOWER | _HIGHER:
            return word in _HIGHER
    near = get_close_matches(name.lower(), sorted(_LOWER | _HIGHER), n=1)
    hint = f"did you mean {near[0]!r}? Else " if near else ""
    raise UsageError(f"nobody says whether more of {name!r} is better; {hint}pass mode='min' or mode='max'")


class Judge:
    """Watches one value, an epoch at a time.

    Args:
        higher: whether more is better.
        patience: epochs without an improvement after which it is enough; None for never.
        min_delta: what counts as an improvement must be better by more than this.
    """

    def __init__(self, *, higher: bool, patience: int | None, min_delta: float) -> None:
        if patience is not None and patience < 1:
            raise UsageError(f"early_stopping must be a number of epochs of at least 1, got {patience}")
        if min_delta < 0:
            raise UsageError(f"min_delta must be at least 0, got {min_delta}")
        self.higher = higher
        self.patience = patience
        self.min_delta = min_delta
        self.best_value: float | None = None
        self.best_epoch: int | None = None
        self.num_without = 0  # epochs since the best one

    def is_improvement(self, value: float, epoch: int) -> bool:
        """Take in an epoch's value; one that is no number is never better."""
        if math.isnan(value):
            better = False
        elif self.best_value is None:
            better = True
        elif self.higher:
            better = value > self.best_value + self.min_delta
        else:
            better = value < self.best_value - self.min_delta
        if better:
            self.best_value, self.best_epoch, self.num_without = value, epoch, 0
        else:
            self.num_without += 1
        return better

    @property
    def has_enough(self) -> bool:
        """Whether training should stop."""
        return self.patience is not None and self.num_without >= self.patience

    def state(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "best_value": self.best_value,
            "best_epoch": self.best_epoch,
            "num_without": self.num_without,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.best_value = state["best_value"]
        self.best_epoch = state["best_epoch"]
        self.num_without = state["num_without"]
