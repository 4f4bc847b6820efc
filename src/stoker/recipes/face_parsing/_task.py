"""What is minimised and measured.

Shapes: image [B, 3, H, W], mask [B, H, W]; after MixUp also mask_partner [B, H, W] and mixup_lam [B].
"""

from typing import Any

from torch import Tensor, nn

from stoker.recipes.face_parsing._classes import CLASSES, IGNORE, NUM_CLASSES
from stoker.recipes.face_parsing._loss import sample_losses
from stoker.recipes.face_parsing._settings import LossSettings
from stoker.train import Task, segmentation_metrics


class FaceTask(Task):
    """The class of every pixel; of a mixed image both masks count, by their shares."""

    def __init__(self, loss: LossSettings) -> None:
        self._settings = loss

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """The mean over samples, and the logits."""
        logits: Tensor = model(batch["image"])
        losses = sample_losses(logits, batch["mask"], self._settings)
        if "mask_partner" in batch:
            share = batch["mixup_lam"].to(losses)
            losses = share * losses + (1 - share) * sample_losses(
                logits, batch["mask_partner"], self._settings
            )
        return losses.mean(), logits

    def predict(self, model: nn.Module, batch: Any) -> Tensor:
        """Logits; needs no mask."""
        logits: Tensor = model(batch["image"])
        return logits.float()

    def metrics(self) -> Any:
        """F-score, mean intersection over union and accuracy, from one confusion matrix of 19 x 19."""
        return segmentation_metrics(NUM_CLASSES, ignore=IGNORE, names=CLASSES)

    def measured(self, prediction: Any, batch: Any) -> tuple[Any, ...]:
        """Logits and mask."""
        return prediction, batch["mask"]
