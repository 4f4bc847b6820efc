"""What is minimised and measured: angles, and where they put the fingertips.

Shapes: emg [B, 16, left + T + right], joint_angles [B, 20, left + T + right], predictions [B, 20, T].
"""

from typing import Any

import torch
from torch import Tensor, nn

from stoker.recipes.emg_pose._hand import fingertips
from stoker.recipes.emg_pose._metrics import PoseErrors, WholePoseErrors
from stoker.recipes.emg_pose._settings import LossSettings, MeasuringSettings
from stoker.train import Task


class PoseTask(Task):
    """Angles of the middle of a window, where they are known.

    Args:
        loss: the parts' weights.
        measuring: how errors are measured.
        padding: context left and right, on which there is neither loss nor measure.
    """

    def __init__(self, loss: LossSettings, measuring: MeasuringSettings, padding: tuple[int, int]) -> None:
        self._weights = loss
        self._measuring = measuring
        self._padding = padding

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """The mean over windows of each one's mean over its known poses, and the predicted angles."""
        prediction = model(batch["emg"]).float()
        target, valid = self._target(batch)
        return pose_loss(prediction, target, valid, self._weights), prediction

    def predict(self, model: nn.Module, batch: Any) -> Tensor:
        """Angles; needs no true ones."""
        prediction: Tensor = model(batch["emg"]).float()
        return prediction

    def metrics(self) -> Any:
        """See `PoseErrors`."""
        make = PoseErrors if self._measuring.online else WholePoseErrors
        return make(self._measuring.derivative_steps)

    def measured(self, prediction: Any, batch: Any) -> tuple[Any, ...]:
        """Prediction, target and where it is known."""
        return prediction, *self._target(batch)

    def _target(self, batch: Any) -> tuple[Tensor, Tensor]:
        left, right = self._padding
        angles = batch["joint_angles"]
        target = angles[..., left : angles.shape[-1] - right].float()
        return target, (target != 0).any(1)  # all zero: inverse kinematics failed


def pose_loss(prediction: Tensor, target: Tensor, valid: Tensor, weights: LossSettings) -> Tensor:
    """Of predictions and targets [B, 20, T], where `valid` [B, T]; a window without any counts as 0."""
    error = prediction - target
    total = error.new_zeros(())
    if weights.mae:
        total = total + weights.mae * _mean_known(error.abs().mean(1), valid)
    if weights.mse:
        total = total + weights.mse * _mean_known(error.square().mean(1), valid)
    if weights.fingertip:
        every = weights.fingertip_every
        apart = fingertips(prediction[..., ::every]) - fingertips(target[..., ::every])  # [B, 5, 3, T]
        distance = torch.linalg.vector_norm(apart, dim=2).mean(1)
        total = total + weights.fingertip * _mean_known(distance, valid[:, ::every])
    return total


def _mean_known(values: Tensor, valid: Tensor) -> Tensor:
    """The mean over windows of each one's mean where valid, both [B, T]."""
    known = valid.to(values.dtype)
    return ((values * known).sum(1) / known.sum(1).clamp(min=1)).mean()
