"""Confusion matrices, counted on the device without waiting for it, and what follows from them.

State: confusion [L, K, K] in int64, for each of L questions how often class i (row) was taken for
class j (column). Multiclass is one question of K classes, multilabel L questions of yes or no.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from stoker.errors import UsageError


class Stray(NamedTuple):
    """What cannot be counted, by number; a Tensor [3] in the state."""

    targets: int  # neither a class nor ignored
    undefined: int  # predictions that are NaN
    impossible: int  # predictions that cannot be what they are said to be


def is_class(target: Tensor, num_classes: int, ignore: int | None) -> Tensor:
    """Which targets are classes and not ignored."""
    inside = (target >= 0) & (target < num_classes)
    return inside if ignore is None else inside & (target != ignore)


def count_confusion(predicted: Tensor, target: Tensor, num_classes: int, ignore: int | None) -> Tensor:
    """The confusion of a batch, [L, K, K]; both [n, L] in int64, the predicted ones classes.

    A target that is none falls into a row of its own, which is left out.
    """
    num_questions = target.shape[1]
    row = torch.where(is_class(target, num_classes, ignore), target, num_classes)
    question = torch.arange(num_questions, device=target.device)
    place = (question * (num_classes + 1) + row) * num_classes + predicted
    counts = count(place, num_questions * (num_classes + 1) * num_classes)
    return counts.reshape(num_questions, num_classes + 1, num_classes)[:, :-1]


def count(place: Tensor, size: int) -> Tensor:
    """How often each number from 0 to size - 1 is in `place`, [size]; unlike bincount it never waits."""
    flat = place.reshape(-1)
    return torch.zeros(size, dtype=torch.int64, device=place.device).scatter_add_(
        0, flat, torch.ones_like(flat)
    )


def count_stray_targets(target: Tensor, num_classes: int, ignore: int | None) -> Tensor:
    """How many targets are neither a class nor ignored, a Tensor of no dimensions."""
    outside = (target < 0) | (target >= num_classes)
    return (outside if ignore is None else outside & (target != ignore)).sum()


def check_stray(stray: Tensor, *, num_classes: int, ignore: int | None, rule: str) -> bool:
    """Whether no prediction was NaN.

    Raises:
        UsageError: for targets that are no class, and predictions that break the `rule`.
    """
    found = Stray(*stray.tolist())
    if found.targets:
        remedy = "give a value to leave out as ignore=" if ignore is None else f"or {ignore}, to be ignored"
        raise UsageError(
            f"targets must be classes, 0 to {num_classes - 1}, got {found.targets} others; {remedy}"
        )
    if found.impossible:
        raise UsageError(rule.format(found.impossible))
    return found.undefined == 0


def all_nan(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same names without values: a NaN among the predictions is not hidden by all others."""
    return {name: torch.full_like(value, torch.nan) for name, value in values.items()}


class Rates(NamedTuple):
    """For each class (multiclass) or question (multilabel), [K] in float64; NaN where undefined."""

    f_score: Tensor  # undefined for a class that is neither there nor predicted
    iou: Tensor  # likewise
    sensitivity: Tensor  # undefined for a class that is not there
    specificity: Tensor  # undefined where there is nothing else


def rates(true_positive: Tensor, false_positive: Tensor, false_negative: Tensor, total: Tensor) -> Rates:
    """All rates of one-against-the-rest counts, each [K]."""
    tp, fp, fn = (each.double() for each in (true_positive, false_positive, false_negative))
    tn = total.double() - tp - fp - fn
    return Rates(2 * tp / (2 * tp + fp + fn), tp / (tp + fp + fn), tp / (tp + fn), tn / (tn + fp))


def class_rates(confusion: Tensor) -> Rates:
    """The rates of each class of one question, [K, K]."""
    hits = confusion.diagonal()
    return rates(hits, confusion.sum(0) - hits, confusion.sum(1) - hits, confusion.sum())


def question_rates(confusion: Tensor) -> Rates:
    """The rates of "yes" in each of L questions, [L, 2, 2]."""
    return rates(confusion[:, 1, 1], confusion[:, 0, 1], confusion[:, 1, 0], confusion.sum((1, 2)))


def accuracy(confusion: Tensor) -> Tensor:
    """The share of right answers, over all questions together."""
    return confusion.diagonal(dim1=1, dim2=2).sum().double() / confusion.sum()
