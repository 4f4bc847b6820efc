"""What a classifier is worth: of single cycles, and of recordings judged by all of their cycles.

A threshold for the alarm is chosen on validation data, at the same level, and applied to the test's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from stoker.train import classification_metrics, threshold_at

LEVELS = ("cycle", "recording", "patient")


@dataclass(frozen=True)
class Judgement:
    """Probabilities [n, K] of cycles, their labels [n], and whose they are."""

    probabilities: Tensor
    labels: Tensor
    recording: Sequence[str]
    patient: Sequence[str]

    def at(self, level: str) -> tuple[Tensor, Tensor]:
        """Probabilities and labels of cycles, or the means of those of a recording or patient."""
        if level == "cycle":
            return self.probabilities, self.labels
        whose = self.recording if level == "recording" else self.patient
        _, first, member = np.unique(np.asarray(whose), return_index=True, return_inverse=True)
        group = torch.from_numpy(member)
        counts = torch.bincount(group).double()
        total = torch.zeros(len(first), self.probabilities.shape[1], dtype=torch.float64)
        total.index_add_(0, group, self.probabilities.double())
        return total / counts[:, None], self.labels[torch.from_numpy(first)]


def evaluate(
    test: Judgement, validation: Judgement, *, alarm: int | None, maximise: Literal["youden", "f1"]
) -> dict[str, float]:
    """All values, named LEVEL/VALUE.

    Args:
        test: what is measured.
        validation: what the thresholds are chosen on.
        alarm: the class whose probability from a threshold on is an alarm; None for no threshold.
        maximise: by what the threshold is chosen.
    """
    values: dict[str, float] = {}
    for level in LEVELS:
        if level == "patient" and list(test.patient) == list(test.recording):
            continue
        probabilities, labels = test.at(level)
        metrics = classification_metrics(probabilities.shape[1], logits=False, exact=True)
        metrics.update(probabilities, labels)
        values |= {f"{level}/{name}": float(value) for name, value in metrics.compute().items()}
        values[f"{level}/count"] = float(len(labels))
        if alarm is not None:
            values |= {
                f"{level}/{name}": value
                for name, value in _alarm(
                    probabilities, labels, validation.at(level), alarm, maximise
                ).items()
            }
    return values


def _alarm(
    probabilities: Tensor,
    labels: Tensor,
    validation: tuple[Tensor, Tensor],
    alarm: int,
    maximise: Literal["youden", "f1"],
) -> dict[str, float]:
    """Sensitivity and specificity of the alarm at the threshold; nothing if it cannot be chosen."""
    is_ill = validation[1] == alarm
    if is_ill.all() or not is_ill.any():
        return {}
    threshold = threshold_at(validation[0][:, alarm], is_ill.long(), maximise=maximise)
    raised, ill = probabilities[:, alarm].double() >= threshold, labels == alarm
    hits, quiet = (raised & ill).sum(), (~raised & ~ill).sum()
    return {
        "alarm_threshold": threshold,
        "alarm_sensitivity": float(hits / ill.sum()) if ill.any() else float("nan"),
        "alarm_specificity": float(quiet / (~ill).sum()) if not ill.all() else float("nan"),
        "alarm_accuracy": float((hits + quiet) / len(labels)),
    }
