"""The classifier: an encoder and a head; the loss that minds rare classes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from numpy.typing import NDArray
from torch import Tensor, nn

from stoker.recipes.heart_sounds._settings import ClassifierSettings
from stoker.recipes.heart_sounds.learning._encoder import Encoder
from stoker.train import Task, classification_metrics


class Classifier(nn.Module):
    """Logits [B, num_classes] of x [B, 1, T].

    Args:
        encoder: gives the features.
        num_classes: of the task.
        hidden: of the head's inner layer; 0 for a linear head on standardised features.
        dropout: before the last layer.
        frozen: the encoder neither learns nor changes, its BatchNorm included.
    """

    def __init__(
        self, encoder: Encoder, num_classes: int, *, hidden: int, dropout: float, frozen: bool = False
    ) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(not frozen)
        self.frozen = frozen
        size = encoder.num_features
        self.head = (
            nn.Sequential(
                nn.Linear(size, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, num_classes)
            )
            if hidden
            else nn.Sequential(nn.BatchNorm1d(size, affine=False), nn.Linear(size, num_classes))
        )

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features = self.encoder(x).features
        logits: Tensor = self.head(features)
        return logits

    def train(self, mode: bool = True) -> "Classifier":  # noqa: FBT001, FBT002 - torch's own signature
        """A frozen encoder stays as in evaluation."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self


class ClassifierTask(Task):
    """Cross-entropy, weighted or focal, with label smoothing, as the mean over samples.

    Args:
        field: of the labels.
        num_classes: of the task.
        settings: see there.
        weights: of the classes, [num_classes], or None.
    """

    def __init__(
        self, field: str, num_classes: int, settings: ClassifierSettings, weights: Tensor | None
    ) -> None:
        self._field = field
        self._num_classes = num_classes
        self._settings = settings
        self._weights = weights

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """The loss and the logits."""
        logits, label = model(batch["x"]), batch[self._field].long()
        losses = F.cross_entropy(
            logits.float(), label, reduction="none", label_smoothing=self._settings.label_smoothing
        )
        if self._settings.balance == "focal":
            right = logits.float().softmax(dim=1).gather(1, label[:, None])[:, 0]
            losses = losses * (1 - right) ** self._settings.focal_gamma
        if self._weights is not None:
            self._weights = self._weights.to(losses.device)
            losses = losses * self._weights[label]
        return losses.mean(), logits

    def metrics(self) -> Any:
        """See ``stoker.train.classification_metrics``."""
        return {"": classification_metrics(self._num_classes)}

    def measured(self, prediction: Tensor, batch: Mapping[str, Any]) -> tuple[Any, ...]:
        """Logits and labels."""
        return prediction.float(), batch[self._field]


def class_weights(labels: NDArray[np.integer[Any]], num_classes: int) -> Tensor:
    """For each class 1 over its share, scaled so that the mean over `labels` is 1; 0 for one that is absent.

    Give training labels only.
    """
    counts = np.bincount(labels, minlength=num_classes)
    present = np.maximum(counts, 1)
    weights = np.where(counts > 0, len(labels) / (present * max(1, int((counts > 0).sum()))), 0.0)
    return torch.tensor(weights, dtype=torch.float32)
