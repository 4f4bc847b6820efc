"""The tasks that a configuration may name without code: a loss, and the metrics that belong to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn import functional

from stoker.errors import UsageError
from stoker.train._metrics import classification_metrics, regression_metrics, segmentation_metrics
from stoker.train._task import Supervised

if TYPE_CHECKING:
    from stoker.train._metrics_classification import Kind


def classification(
    num_classes: int,
    *,
    kind: "Kind | None" = None,
    inputs: str = "x",
    targets: str = "y",
    class_weights: Sequence[float] | None = None,
    label_smoothing: float = 0.0,
    ignore: int = -100,
    threshold: float | Sequence[float] = 0.5,
    names: Sequence[str] | None = None,
    per_class: bool = False,
    exact: bool = False,
) -> Supervised:
    """Cross-entropy, and ``classification_metrics``.

    Args:
        num_classes: or labels, if multilabel.
        kind: "multiclass" for a model that gives [B, num_classes, ...], "binary" for one that gives
            [B] or [B, 1], "multilabel" for [B, num_classes]; by default "multiclass".
        inputs: the field of a batch that the model is given.
        targets: the field that it shall give.
        class_weights: of the classes in the loss; of the positives, if binary or multilabel.
        label_smoothing: of multiclass.
        ignore: a target that is left out, of multiclass.
        threshold: probability from which on the answer is yes, when it is measured.
        names: of the classes, for `per_class`.
        per_class: measure each class too.
        exact: keep all predictions of an evaluation, for debugging.
    """
    softmax = kind in {None, "multiclass"}
    # two classes are measured as a yes-or-no decision, however many numbers the model gives for them
    measured: Kind | None = kind if not softmax or num_classes > 2 else "binary"
    metrics = classification_metrics(
        num_classes,
        kind=measured,
        ignore=ignore if softmax else None,
        threshold=threshold,
        names=names,
        per_class=per_class,
        exact=exact,
    )
    weights = _Weights(class_weights)

    def cross_entropy(prediction: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            prediction,
            target.long(),
            weight=weights.on(prediction),
            ignore_index=ignore,
            label_smoothing=label_smoothing,
        )

    def binary_cross_entropy(prediction: Tensor, target: Tensor) -> Tensor:
        if kind == "binary" and prediction.shape == (*target.shape[:1], 1, *target.shape[1:]):
            prediction = prediction[:, 0]
        _check_shapes(prediction, target)
        return functional.binary_cross_entropy_with_logits(
            prediction.float(), target.float(), pos_weight=weights.on(prediction)
        )

    loss = cross_entropy if softmax else binary_cross_entropy
    return Supervised(loss, inputs=inputs, targets=targets, metrics={"": metrics})


def regression(
    num_channels: int | None = None,
    *,
    loss: Literal["mse", "mae", "huber"] = "mse",
    inputs: str = "x",
    targets: str = "y",
    names: Sequence[str] | None = None,
    exact: bool = False,
) -> Supervised:
    """Mean squared (or absolute, or Huber's) error, and ``regression_metrics``.

    Args:
        num_channels: measured each, of a model that gives [B, num_channels, ...].
        loss: which one.
        inputs: the field of a batch that the model is given.
        targets: the field that it shall give, in its shape.
        names: of the channels, in place of numbers.
        exact: keep all predictions of an evaluation, for debugging.
    """
    losses = {"mse": functional.mse_loss, "mae": functional.l1_loss, "huber": functional.smooth_l1_loss}
    if loss not in losses:
        raise UsageError(f"loss must be one of {', '.join(losses)}, got {loss!r}")

    def error(prediction: Tensor, target: Tensor) -> Tensor:
        _check_shapes(prediction, target)
        return losses[loss](prediction.float(), target.float())

    metrics = regression_metrics(num_channels, names=names, exact=exact)
    return Supervised(error, inputs=inputs, targets=targets, metrics={"": metrics})


def segmentation(
    num_classes: int,
    *,
    inputs: str = "x",
    targets: str = "y",
    class_weights: Sequence[float] | None = None,
    ignore: int = 255,
    names: Sequence[str] | None = None,
    per_class: bool = True,
    exact: bool = False,
) -> Supervised:
    """Cross-entropy of every pixel, and ``segmentation_metrics``.

    Args:
        num_classes: the model gives [B, num_classes, ...] for a mask [B, ...].
        inputs: the field of a batch that the model is given.
        targets: the field that it shall give.
        class_weights: of the classes in the loss.
        ignore: a value of the mask that is left out.
        names: of the classes, for `per_class`.
        per_class: measure each class too.
        exact: keep all predictions of an evaluation, for debugging.
    """
    weights = _Weights(class_weights)

    def cross_entropy(prediction: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            prediction, target.long(), weight=weights.on(prediction), ignore_index=ignore
        )

    metrics = segmentation_metrics(num_classes, ignore=ignore, names=names, per_class=per_class, exact=exact)
    return Supervised(cross_entropy, inputs=inputs, targets=targets, metrics={"": metrics})


TASKS = {"classification": classification, "regression": regression, "segmentation": segmentation}


class _Weights:
    """Weights that are copied to the device once."""

    def __init__(self, weights: Sequence[float] | None) -> None:
        self._weights = None if weights is None else torch.tensor(weights, dtype=torch.float32)

    def on(self, prediction: Tensor) -> Tensor | None:
        """The weights on the prediction's device and in its type."""
        if self._weights is not None:
            self._weights = self._weights.to(prediction.device)
            return self._weights.to(prediction.dtype)
        return None


def _check_shapes(prediction: Tensor, target: Tensor) -> None:
    if prediction.shape != target.shape:
        raise UsageError(
            f"the model must give the shape of its target, {list(target.shape)}, got "
            f"{list(prediction.shape)}; they are not broadcast, since that hides mistakes"
        )
