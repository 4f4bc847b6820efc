"""Ranking: areas under curves, and thresholds, from histograms of scores.

State: histogram [L, BINS, 2] in int64, how many negatives and positives have a score in each bin.
Bins are of equal width in asinh(logit of the probability): fine around 1/2, where thresholds lie,
and fine in the far ends too, where a well-trained model puts nearly everything and where bins of
equal width in the probability would see no difference. Logits up to ± 1.6 million have a bin.

Scores in one bin count as equal, so the binned areas differ from the exact ones by less than the
share of pairs (positive, negative) that fall into one bin; tests/train/test_metrics.py has the figures.
"""

from typing import Literal

import torch
from torch import Tensor

from stoker.errors import UsageError
from stoker.train._metrics_counts import count

BINS = 4096
_REACH = 15.0  # asinh of the largest logit that is told from larger ones

Criterion = Literal["youden", "f1"]


def count_scores(score: Tensor, positive: Tensor, counted: Tensor) -> Tensor:
    """The histogram of a batch, [L, BINS, 2].

    Args:
        score: [n, L], logits; NaN is not counted.
        positive: [n, L], whether it should be high.
        counted: [n, L], False for what is to be left out.
    """
    num_labels = score.shape[1]
    bins = ((score.asinh() + _REACH) * (BINS / (2 * _REACH))).nan_to_num(0.0).clamp(0, BINS - 1).long()
    label = torch.arange(num_labels, device=score.device)
    place = (label * BINS + bins) * 2 + positive
    size = num_labels * BINS * 2
    place = torch.where(counted & ~score.isnan(), place, size)
    return count(place, size + 1)[:-1].reshape(num_labels, BINS, 2)


def area_under_roc(histogram: Tensor) -> Tensor:
    """For each label, [L]: how often a positive has the higher score; NaN without both kinds."""
    negative, positive = histogram.double().unbind(-1)
    below = negative.cumsum(-1) - negative
    won = (positive * (below + negative / 2)).sum(-1)
    return won / (positive.sum(-1) * negative.sum(-1))


def average_precision(histogram: Tensor) -> Tensor:
    """For each label, [L]: precision averaged over the steps of recall; NaN without positives."""
    negative, positive = histogram.double().unbind(-1)
    hits, alarms = _at_least(positive), _at_least(negative)
    precision = hits / (hits + alarms).clamp(min=1)
    return (precision * positive).sum(-1) / positive.sum(-1)


def bin_edges() -> Tensor:
    """The lowest probability of each bin, [BINS]."""
    edges = torch.arange(BINS, dtype=torch.float64) * (2 * _REACH / BINS) - _REACH
    probabilities = edges.sinh().sigmoid()
    probabilities[0] = 0
    return probabilities


def threshold_at(
    scores: Tensor,
    target: Tensor,
    *,
    sensitivity: float | None = None,
    specificity: float | None = None,
    maximise: Criterion | None = None,
) -> float:
    """Choose the threshold of a yes-or-no decision, score >= threshold, on validation data.

    Args:
        scores: [n], of any kind.
        target: [n], 0 or 1.
        sensitivity: at least this; of the thresholds that reach it the one of most specificity.
        specificity: at least this; likewise.
        maximise: "youden" (sensitivity + specificity - 1) or "f1".

    Returns:
        One of the scores, or infinity where the answer must always be no.

    Raises:
        UsageError: not exactly one wish, or data without both kinds.
    """
    if scores.shape != target.shape or scores.ndim != 1:
        raise UsageError(f"scores and target must be [n], got {list(scores.shape)} and {list(target.shape)}")
    distinct, place = torch.unique(scores.detach().double(), return_inverse=True)
    histogram = count(place * 2 + target.long(), len(distinct) * 2).reshape(-1, 2)
    return choose_threshold(
        distinct, histogram, sensitivity=sensitivity, specificity=specificity, maximise=maximise
    )


def choose_threshold(
    edges: Tensor,
    histogram: Tensor,
    *,
    sensitivity: float | None,
    specificity: float | None,
    maximise: Criterion | None,
) -> float:
    """The threshold among `edges` [T], ascending, and infinity; histogram [T, 2] counts from each on."""
    _check_wish(sensitivity, specificity, maximise)
    negative, positive = histogram.double().cpu().unbind(-1)
    if not positive.sum() or not negative.sum():
        raise UsageError("a threshold can be chosen on data with both positives and negatives only")
    none = torch.zeros(1, dtype=torch.float64)
    hits, alarms = (torch.cat([_at_least(each), none]) for each in (positive, negative))
    sensitive, specific = hits / positive.sum(), 1 - alarms / negative.sum()
    candidates: list[float] = [*edges.tolist(), torch.inf]
    if sensitivity is not None:
        return candidates[int((sensitive >= sensitivity).nonzero().max())]
    if specificity is not None:
        return candidates[int((specific >= specificity).nonzero().min())]
    f1 = 2 * hits / (hits + alarms + positive.sum())
    merit = f1 if maximise == "f1" else sensitive + specific
    return candidates[int(merit.argmax())]


def _check_wish(sensitivity: float | None, specificity: float | None, maximise: Criterion | None) -> None:
    wishes = {"sensitivity": sensitivity, "specificity": specificity, "maximise": maximise}
    given = {name: value for name, value in wishes.items() if value is not None}
    if len(given) != 1:
        raise UsageError(f"exactly one of {', '.join(wishes)} must be given, got {given or 'none'}")
    if maximise is not None and maximise not in {"youden", "f1"}:
        raise UsageError(f"maximise must be 'youden' or 'f1', got {maximise!r}")
    for name in ("sensitivity", "specificity"):
        if name in given and not 0 <= float(given[name]) <= 1:
            raise UsageError(f"{name} must be 0 to 1, got {given[name]}")


def _at_least(counts: Tensor) -> Tensor:
    """How many are in this bin or above."""
    return counts.flip(-1).cumsum(-1).flip(-1)
