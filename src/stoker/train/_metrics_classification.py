"""Classification: right answers, ranking, and both for each class; segmentation is its first half.

Shapes, with B samples and any number of further axes (time, pixels):

    binary       prediction [B, ...], [B, 1, ...] or [B, 2, ...]    target [B, ...]
    multiclass   prediction [B, K, ...]                             target [B, ...]
    multilabel   prediction [B, L, ...]                             target [B, L, ...]

torchmetrics takes predictions for logits if one of the *batch* lies outside 0 to 1; what they are is
said here, once.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torchmetrics.functional import classification as reference

from stoker.errors import UsageError
from stoker.train._metrics_counts import (
    accuracy,
    all_nan,
    check_stray,
    class_rates,
    count_confusion,
    count_stray_targets,
    is_class,
    question_rates,
)
from stoker.train._metrics_scores import (
    BINS,
    Criterion,
    area_under_roc,
    average_precision,
    bin_edges,
    choose_threshold,
    count_scores,
    threshold_at,
)
from stoker.train._metrics_state import Accumulator, Values, WholeArrays, named

Kind = Literal["binary", "multiclass", "multilabel"]


@dataclass(frozen=True)
class Question:
    """What is asked, and how the answers come."""

    kind: Kind
    num_classes: int  # labels, if multilabel
    logits: bool
    thresholds: tuple[float, ...]  # one a label; none if multiclass
    ignore: int | None
    names: tuple[str, ...]  # of classes whose own values are wanted

    @property
    def num_scores(self) -> int:
        """Columns of scores."""
        return 1 if self.kind == "binary" else self.num_classes

    @property
    def num_answers(self) -> int:
        """Columns of answers."""
        return self.num_classes if self.kind == "multilabel" else 1

    @property
    def num_choices(self) -> int:
        """What each answer is one of."""
        return self.num_classes if self.kind == "multiclass" else 2


class Rows(NamedTuple):
    """A batch as rows."""

    probability: Tensor  # [n, num_scores], float64
    score: Tensor  # [n, num_scores], float64: its logit, exact where the probability is 1 to rounding
    answer: Tensor  # [n, num_answers], int64
    target: Tensor  # [n, num_answers], int64


class ClassificationMetrics(Accumulator):
    """See ``classification_metrics``; 64 KiB a class, and the confusion matrix."""

    confusion: Tensor
    histogram: Tensor
    stray: Tensor

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question
        sizes = {
            "confusion": (question.num_answers, question.num_choices, question.num_choices),
            "histogram": (question.num_scores, BINS, 2),
            "stray": (3,),
        }
        for name, size in sizes.items():
            zeros = torch.zeros(size, dtype=torch.int64)
            self.add_state(name, zeros, dist_reduce_fx="sum", persistent=True)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Take a batch."""
        ask = self.question
        rows = to_rows(prediction, target, ask)
        self.confusion = self.confusion + count_confusion(
            rows.answer, rows.target, ask.num_choices, ask.ignore
        )
        self.histogram = self.histogram + count_scores(rows.score, *_positives(rows.target, ask))
        self.stray = self.stray + _count_stray(rows.probability, rows.target, ask)

    def compute(self) -> Values:
        """The values over all batches."""
        ask = self.question
        auroc, auprc = area_under_roc(self.histogram), average_precision(self.histogram)
        return _values(self.confusion, auroc, auprc, self.stray, ask)

    def threshold_at(
        self,
        *,
        sensitivity: float | None = None,
        specificity: float | None = None,
        maximise: Criterion | None = None,
    ) -> list[float]:
        """Choose the probability from which on the answer is yes, for each label, on what came so far.

        See ``stoker.train.threshold_at``, to which it is equal within the width of a bin. Under
        torch.distributed every rank must call it.
        """
        _check_decides(self.question)
        with self.sync_context():
            histogram = self.histogram.cpu()
        return [
            choose_threshold(
                bin_edges(), label, sensitivity=sensitivity, specificity=specificity, maximise=maximise
            )
            for label in histogram
        ]


class WholeClassification(WholeArrays):
    """The same of whole arrays, areas by torchmetrics' own functions."""

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question

    def rows(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities beside answers, [n, num_scores + num_answers]; targets, [n, num_answers]."""
        rows = to_rows(prediction, target, self.question)
        return torch.cat([rows.probability, rows.answer.double()], dim=1), rows.target

    def no_rows(self) -> tuple[Tensor, Tensor]:
        """The rows of an empty batch."""
        width = self.question.num_scores + self.question.num_answers
        targets = torch.empty(0, self.question.num_answers, dtype=torch.int64)
        return torch.empty(0, width, dtype=torch.float64), targets

    def values(self, predictions: Tensor, targets: Tensor) -> Values:
        """The values of all rows."""
        ask = self.question
        probability, answer = predictions[:, : ask.num_scores], predictions[:, ask.num_scores :]
        positive, counted = _positives(targets, ask)
        areas = [
            _exact_areas(score[kept], truth[kept].long())
            for score, truth, kept in zip(
                probability.T, positive.T, counted.expand_as(positive).T, strict=True
            )
        ]
        auroc, auprc = torch.stack(areas, dim=1)
        confusion = count_confusion(answer.long(), targets, ask.num_choices, ask.ignore)
        return _values(confusion, auroc, auprc, _count_stray(probability, targets, ask), ask)

    def threshold_at(
        self,
        *,
        sensitivity: float | None = None,
        specificity: float | None = None,
        maximise: Criterion | None = None,
    ) -> list[float]:
        """Choose the probability from which on the answer is yes, for each label, exactly."""
        ask = self.question
        _check_decides(ask)
        with self.sync_context():
            predictions, targets = self.joined()
        counted = is_class(targets, ask.num_choices, ask.ignore)
        return [
            threshold_at(
                predictions[kept, label],
                targets[kept, label],
                sensitivity=sensitivity,
                specificity=specificity,
                maximise=maximise,
            )
            for label, kept in enumerate(counted.T)
        ]


def _check_decides(ask: Question) -> None:
    if ask.kind == "multiclass":
        raise UsageError("a threshold is of yes-or-no decisions: binary or multilabel, not multiclass")


def to_rows(prediction: Tensor, target: Tensor, ask: Question) -> Rows:
    """Rows of a batch, in float64 and int64; nothing is left out, whatever its target.

    Raises:
        UsageError: shapes that do not fit the question or each other.
    """
    scores, target = _columns(prediction.detach(), target.detach(), ask)
    if ask.kind == "multiclass":
        log_p = scores.log_softmax(1) if ask.logits else scores.log()
        probability = log_p.exp() if ask.logits else scores
        logit = log_p - (-log_p.expm1()).log()
        return Rows(probability, logit, scores.argmax(1, keepdim=True), target)
    probability = scores.sigmoid() if ask.logits else scores
    thresholds = torch.tensor(ask.thresholds, dtype=torch.float64, device=scores.device)
    answer = (probability >= thresholds).long()
    return Rows(probability, scores if ask.logits else scores.logit(), answer, target)


def class_last(prediction: Tensor) -> Tensor:
    """[B, K, ...] as [n, K]."""
    num_classes = prediction.shape[1]
    return prediction.movedim(1, -1).reshape(prediction.numel() // max(1, num_classes), num_classes)


def _columns(prediction: Tensor, target: Tensor, ask: Question) -> tuple[Tensor, Tensor]:
    """Scores [n, num_scores] and targets [n, num_answers]."""
    rest = list(target.shape[1:])
    shape = list(prediction.shape)
    width = shape[1] if len(shape) > 1 else 0
    if ask.kind == "binary" and prediction.shape == target.shape:
        return prediction.double().reshape(-1, 1), target.long().reshape(-1, 1)
    if ask.kind == "multilabel" and prediction.shape == target.shape and width == ask.num_classes:
        return class_last(prediction).double(), class_last(target).long()
    fitting = shape[:1] == list(target.shape[:1]) and shape[2:] == rest
    if ask.kind == "binary" and fitting and width in {1, 2}:
        scores = class_last(prediction).double()
        if width == 2:  # P(1) of a softmax over two is the sigmoid of the difference
            scores = scores[:, 1:] - scores[:, :1] if ask.logits else scores[:, 1:]
        return scores, target.long().reshape(-1, 1)
    if ask.kind == "multiclass" and fitting and width == ask.num_classes:
        return class_last(prediction).double(), target.long().reshape(-1, 1)
    wanted = {
        "binary": "[B, ...], [B, 1, ...] or [B, 2, ...] for a target [B, ...]",
        "multiclass": f"[B, {ask.num_classes}, ...] for a target [B, ...]",
        "multilabel": f"[B, {ask.num_classes}, ...], as the target",
    }
    raise UsageError(
        f"a {ask.kind} prediction must be {wanted[ask.kind]}, got {shape} for a target {list(target.shape)}"
    )


def _positives(target: Tensor, ask: Question) -> tuple[Tensor, Tensor]:
    """For each score whether it should be high, and whether its target is a class at all."""
    counted = is_class(target, ask.num_choices, ask.ignore)
    if ask.kind == "multiclass":
        return target == torch.arange(ask.num_classes, device=target.device), counted
    return target == 1, counted


def _count_stray(probability: Tensor, target: Tensor, ask: Question) -> Tensor:
    undefined = probability.isnan() & is_class(target, ask.num_choices, ask.ignore)
    impossible = (probability < 0) | (probability > 1)
    targets = count_stray_targets(target, ask.num_choices, ask.ignore)
    return torch.stack([targets, undefined.sum(), impossible.sum()])


def _values(confusion: Tensor, auroc: Tensor, auprc: Tensor, stray: Tensor, ask: Question) -> Values:
    rule = (
        "with logits=False predictions must be probabilities, 0 to 1, got {} others; "
        "give logits=True for a model without softmax or sigmoid"
    )
    sound = check_stray(stray, num_classes=ask.num_choices, ignore=ask.ignore, rule=rule)
    values = {
        **_answer_values(confusion, ask),
        **_averaged("auroc", auroc, ask),
        **_averaged("auprc", auprc, ask),
    }
    return values if sound else all_nan(values)


def _answer_values(confusion: Tensor, ask: Question) -> Values:
    each = question_rates(confusion) if ask.kind == "multilabel" else class_rates(confusion[0])
    values = {"accuracy": accuracy(confusion)}
    if ask.kind == "binary":  # of the positives; the other class' values are these, turned around
        return values | {
            "f1": each.f_score[1],
            "macro_f1": each.f_score.nanmean(),
            "sensitivity": each.sensitivity[1],
            "specificity": each.specificity[1],
        }
    f1 = _averaged("f1", each.f_score, ask)
    return {
        **values,
        "macro_f1": f1.pop("f1"),
        **f1,
        **_averaged("sensitivity", each.sensitivity, ask),
        **_averaged("specificity", each.specificity, ask),
    }


def _averaged(name: str, each: Tensor, ask: Question) -> Values:
    """The mean over classes for which it is defined, and each class' own."""
    return named(name, each.nanmean(), each, () if ask.kind == "binary" else ask.names)


def _exact_areas(score: Tensor, truth: Tensor) -> Tensor:
    """Both areas of one label, [2]."""
    nothing = torch.full((), torch.nan, dtype=torch.float64, device=score.device)
    if score.isnan().any() or not truth.any():
        return torch.stack([nothing, nothing])
    roc = nothing if truth.all() else reference.binary_auroc(score, truth).double()
    return torch.stack([roc, reference.binary_average_precision(score, truth).double()])
