"""Metrics in O(1) memory: one call gives everything that is usually measured of a kind of task.

Each is a torchmetrics metric, so it can be used wherever those can, and theirs can be used wherever
these can. They are our own accumulators, on torchmetrics' base, because its classes add up float32,
keep sums that cancel (R²), guess batch by batch whether predictions are logits, take memory for
every pair of a score and a threshold, and wait for the device at each update.

torchmetrics is imported when one is made: it takes as long to import as torch.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.train._metrics_classification import ClassificationMetrics, Kind, WholeClassification
    from stoker.train._metrics_regression import RegressionMetrics, WholeRegression
    from stoker.train._metrics_segmentation import SegmentationMetrics, WholeSegmentation


def regression_metrics(
    num_channels: int | None = None, *, names: Sequence[str] | None = None, exact: bool = False
) -> "RegressionMetrics | WholeRegression":
    """Make ``mse``, ``mae``, ``rmse`` and ``r2`` of predictions and targets of one shape.

    Sums are in float64, whatever comes. `r2` is as scikit-learn defines it.

    Args:
        num_channels: predictions are [B, num_channels, ...]; each channel's values are given too, as
            ``mse/0``. `r2` is then the mean of the channels', the others are of all elements.
        names: of the channels, in place of numbers.
        exact: keep everything and compute at the end, for debugging.
    """
    from stoker.train._metrics_regression import RegressionMetrics, WholeRegression

    channels = None if num_channels is None and names is None else _names(num_channels, names, "num_channels")
    return WholeRegression(channels) if exact else RegressionMetrics(channels)


def classification_metrics(
    num_classes: int,
    *,
    kind: "Kind | None" = None,
    logits: bool = True,
    threshold: float | Sequence[float] = 0.5,
    ignore: int | None = None,
    names: Sequence[str] | None = None,
    per_class: bool = False,
    exact: bool = False,
) -> "ClassificationMetrics | WholeClassification":
    """Make ``accuracy``, ``macro_f1``, ``sensitivity``, ``specificity``, ``auroc`` and ``auprc``.

    Of two classes (and ``f1``) they are those of class 1, of more the means over the classes for which
    they are defined: sensitivity is then what scikit-learn calls balanced accuracy, areas are of one
    class against the rest. A class that is neither there nor predicted has no F1, one that is not
    there no sensitivity. The areas are binned, see ``_metrics_scores.py``.

    A prediction of NaN makes every value NaN; a target that is no class is an error in ``compute()``.

    Args:
        num_classes: or labels, if multilabel.
        kind: "binary" (the default of 2 classes), "multiclass" (of more) or "multilabel".
        logits: False if predictions are probabilities.
        threshold: probability from which on the answer is yes; for multilabel one a label, if wanted.
        ignore: a target that is left out.
        names: of the classes or labels, in place of numbers.
        per_class: give each class' or label's own values too, as ``f1/0``.
        exact: keep everything and compute at the end, for debugging; areas are exact.
    """
    from stoker.train._metrics_classification import ClassificationMetrics, Question, WholeClassification

    kind = kind or ("binary" if num_classes == 2 else "multiclass")
    _check_kind(kind, num_classes)
    known = _names(num_classes, names, "num_classes")
    question = Question(
        kind,
        num_classes,
        logits,
        _thresholds(threshold, 0 if kind == "multiclass" else num_classes if kind == "multilabel" else 1),
        ignore,
        known if per_class else (),
    )
    return WholeClassification(question) if exact else ClassificationMetrics(question)


def segmentation_metrics(
    num_classes: int,
    *,
    ignore: int | None = 255,
    names: Sequence[str] | None = None,
    per_class: bool = True,
    exact: bool = False,
) -> "SegmentationMetrics | WholeSegmentation":
    """Make ``accuracy``, ``f_score`` and ``miou``, with ``f_score/0`` and ``iou/0`` of each class.

    All are of all pixels together, not means over images; the means are over the classes that are
    there or predicted.

    Args:
        num_classes: predictions are [B, num_classes, ...] of scores, or [B, ...] of whole numbers.
        ignore: a target that is left out.
        names: of the classes, in place of numbers.
        per_class: give each class' own values too.
        exact: keep everything and compute at the end, for debugging.
    """
    from stoker.train._metrics_segmentation import SegmentationMetrics, WholeSegmentation

    if num_classes < 2:
        raise UsageError(f"num_classes must be at least 2, got {num_classes}; count the background too")
    known = _names(num_classes, names, "num_classes")
    shown = known if per_class else ()
    return (WholeSegmentation if exact else SegmentationMetrics)(num_classes, ignore, shown)


def _names(count: int | None, names: Sequence[str] | None, what: str) -> tuple[str, ...]:
    if count is not None and count < 1:
        raise UsageError(f"{what} must be at least 1, got {count}")
    if names is None:
        assert count is not None
        return tuple(str(number) for number in range(count))
    if count is not None and len(names) != count:
        raise UsageError(f"names must be {count}, one for each of {what}, got {len(names)}")
    if len(set(names)) < len(names) or not names:
        raise UsageError(f"names must be there and differ, got {list(names)}")
    return tuple(names)


def _check_kind(kind: str, num_classes: int) -> None:
    if kind not in {"binary", "multiclass", "multilabel"}:
        raise UsageError(f"kind must be 'binary', 'multiclass' or 'multilabel', got {kind!r}")
    least = 1 if kind == "multilabel" else 2
    if num_classes < least or (kind == "binary" and num_classes != 2):
        wanted = "2" if kind == "binary" else f"at least {least}"
        raise UsageError(f"num_classes must be {wanted} for {kind} classification, got {num_classes}")


def _thresholds(threshold: float | Sequence[float], count: int) -> tuple[float, ...]:
    given = tuple(threshold) if isinstance(threshold, Sequence) else (threshold,) * count
    if len(given) != count:
        raise UsageError(f"threshold must be one number, or one for each of {count} labels, got {len(given)}")
    if any(not each >= 0 for each in given):
        raise UsageError(f"threshold must be a probability, got {threshold}")
    return given
