"""Segmentation: F-score and intersection over union of each class, from one confusion matrix."""

from collections.abc import Iterator

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
)
from stoker.train._metrics_state import Accumulator, Values, WholeArrays, named

_NAN = -1
# Pixels counted together on the CPU. Measured for 32 masks of 512 x 512: all at once takes twice as long.
_PIECE = 1 << 18


class SegmentationMetrics(Accumulator):
    """See ``segmentation_metrics``; 8 bytes for each pair of classes."""

    confusion: Tensor
    stray: Tensor

    def __init__(self, num_classes: int, ignore: int | None, names: tuple[str, ...]) -> None:
        super().__init__()
        self.num_classes, self.ignore, self.names = num_classes, ignore, names
        for name, size in {"confusion": (1, num_classes, num_classes), "stray": (3,)}.items():
            zeros = torch.zeros(size, dtype=torch.int64)
            self.add_state(name, zeros, dist_reduce_fx="sum", persistent=True)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Take a batch: prediction [B, K, ...] of scores or [B, ...] of classes, target [B, ...]."""
        choices = self.num_classes, self.ignore
        for guess, its_target in _pieces(prediction, target):
            answer, truth = to_classes(guess, its_target, self.num_classes)
            self.confusion = self.confusion + count_confusion(
                answer.clamp(0, self.num_classes - 1), truth, *choices
            )
            self.stray = self.stray + _count_stray(answer, truth, *choices)

    def compute(self) -> Values:
        """The values over all batches."""
        return _checked(
            segmentation_values(self.confusion, self.names), self.stray, self.num_classes, self.ignore
        )


class WholeSegmentation(WholeArrays):
    """The same with all classes of all pixels kept, 16 bytes a pixel."""

    def __init__(self, num_classes: int, ignore: int | None, names: tuple[str, ...]) -> None:
        super().__init__()
        self.num_classes, self.ignore, self.names = num_classes, ignore, names

    def rows(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Both as [n, 1]."""
        return to_classes(prediction, target, self.num_classes)

    def no_rows(self) -> tuple[Tensor, Tensor]:
        """The rows of an empty batch."""
        empty = torch.empty(0, 1, dtype=torch.int64)
        return empty, empty

    def values(self, predictions: Tensor, targets: Tensor) -> Values:
        """The values of all rows."""
        stray = _count_stray(predictions, targets, self.num_classes, self.ignore)
        confusion = reference.multiclass_confusion_matrix(
            predictions[:, 0].clamp(0, self.num_classes - 1),
            torch.where(is_class(targets, self.num_classes, self.ignore), targets, -1)[:, 0],
            self.num_classes,
            ignore_index=-1,
        )
        values = segmentation_values(confusion[None], self.names)
        return _checked(values, stray, self.num_classes, self.ignore)


def to_classes(prediction: Tensor, target: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Predicted and true classes, both [n, 1] in int64; a prediction of NaN is the class -1.

    Raises:
        UsageError: shapes that do not fit each other.
    """
    truth = target.detach().reshape(-1, 1).long()
    if prediction.shape == target.shape and not prediction.is_floating_point():
        return prediction.detach().reshape(-1, 1).long(), truth
    if prediction.shape[2:] == target.shape[1:] and prediction.shape[:2] == (target.shape[0], num_classes):
        best, answer = prediction.detach().max(1)
        return torch.where(best.isnan(), _NAN, answer).reshape(-1, 1), truth
    raise UsageError(
        f"a prediction must be [B, {num_classes}, ...] of scores, or whole numbers [B, ...], for a target "
        f"[B, ...], got {list(prediction.shape)} for {list(target.shape)}"
    )


def _pieces(prediction: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The batch, or on the CPU samples of it whose temporary memory stays in the caches."""
    num_samples = len(target) if target.ndim else 0
    fits = num_samples < 2 or target.numel() <= _PIECE or len(prediction) != num_samples
    if fits or target.device.type != "cpu" or torch.compiler.is_compiling():
        yield prediction, target
        return
    rows = max(1, _PIECE * num_samples // target.numel())
    for start in range(0, num_samples, rows):
        yield prediction[start : start + rows], target[start : start + rows]


def _count_stray(answer: Tensor, truth: Tensor, num_classes: int, ignore: int | None) -> Tensor:
    impossible = (answer != _NAN) & ((answer < 0) | (answer >= num_classes))
    targets = count_stray_targets(truth, num_classes, ignore)
    return torch.stack([targets, (answer == _NAN).sum(), impossible.sum()])


def _checked(values: Values, stray: Tensor, num_classes: int, ignore: int | None) -> Values:
    rule = f"predicted classes must be 0 to {num_classes - 1}, got {{}} others; check the number of classes"
    sound = check_stray(stray, num_classes=num_classes, ignore=ignore, rule=rule)
    return values if sound else all_nan(values)


def segmentation_values(confusion: Tensor, names: tuple[str, ...]) -> Values:
    """All values of one confusion matrix, [1, K, K]."""
    each = class_rates(confusion[0])
    return {
        "accuracy": accuracy(confusion),
        **named("f_score", each.f_score.nanmean(), each.f_score, names),
        **named("miou", each.iou.nanmean(), each.iou, ()),
        **{f"iou/{name}": each.iou[place] for place, name in enumerate(names)},
    }
