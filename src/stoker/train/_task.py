"""A task: how a batch becomes a loss, and what is measured."""

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from stoker.errors import UsageError
from stoker.train._batches import count_samples

LossFunction = Callable[[Any, Any], Any]


class Task:
    """How a batch becomes a loss, and what is measured. Only `loss` must be defined.

    class Denoise(Task):
        def loss(self, model, batch):
            clean = model(batch["noisy"])
            return torch.nn.functional.mse_loss(clean, batch["clean"]), clean

        def metrics(self):
            return {"mae": torchmetrics.MeanAbsoluteError()}

        def measured(self, prediction, batch):
            return prediction, batch["clean"]
    """

    def loss(self, model: nn.Module, batch: Any) -> Tensor | tuple[Tensor, Any]:
        """The mean loss of the batch's samples, or (loss, prediction) where something is measured."""
        raise NotImplementedError(f"{type(self).__name__} must define loss(model, batch)")

    def predict(self, model: nn.Module, batch: Any) -> Any:
        """What `Trainer.predict` collects; by default the prediction that `loss` gives."""
        prediction = split(self.loss(model, batch))[1]
        if prediction is None:
            raise UsageError(
                "to predict, a task's loss must give (loss, prediction), or the task define predict(); "
                f"{type(self).__name__} gives the loss alone"
            )
        return prediction

    def metrics(self) -> Any:
        """New metrics of torchmetrics: one, a dict of them, a MetricCollection, or None."""
        return None

    def measured(self, prediction: Any, batch: Any) -> tuple[Any, ...]:  # noqa: ARG002 - for subclasses
        """The arguments of the metrics' `update`."""
        raise UsageError(
            f"{type(self).__name__} has metrics, so it must define measured(prediction, batch), "
            f"which gives what they are updated with"
        )

    def num_samples(self, batch: Any) -> int:
        """How many samples a batch holds; losses are weighted by it."""
        return count_samples(batch)


class Supervised(Task):
    """The usual task: ``loss(model(batch[inputs]), batch[targets])``.

    Args:
        loss: of prediction and target, the mean over samples, such as ``nn.CrossEntropyLoss()``.
        inputs: the field (or place, for batches that are tuples) of what the model is given.
        targets: that of what it shall give.
        metrics: of torchmetrics, updated with prediction and target.
    """

    def __init__(
        self,
        loss: Callable[[Any, Any], Tensor],
        *,
        inputs: str | int = "x",
        targets: str | int = "y",
        metrics: Any = None,
    ) -> None:
        self.loss_function = loss
        self.inputs = inputs
        self.targets = targets
        self._metrics = metrics

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Any]:
        """The loss, and what the model gave."""
        prediction = model(batch[self.inputs])
        return self.loss_function(prediction, batch[self.targets]), prediction

    def predict(self, model: nn.Module, batch: Any) -> Any:
        """What the model gives; no targets are needed."""
        return model(batch[self.inputs])

    def metrics(self) -> Any:
        """Copies of the ones given."""
        return copy.deepcopy(self._metrics)

    def measured(self, prediction: Any, batch: Any) -> tuple[Any, ...]:
        """Prediction and target."""
        return prediction, batch[self.targets]


class FunctionTask(Task):
    """A plain function ``(model, batch) -> loss`` or ``-> (loss, prediction)`` as a task."""

    def __init__(self, function: LossFunction) -> None:
        self.function = function

    def loss(self, model: nn.Module, batch: Any) -> Tensor | tuple[Tensor, Any]:
        """What the function gives."""
        result: Tensor | tuple[Tensor, Any] = self.function(model, batch)
        return result


def as_task(task: Task | LossFunction) -> Task:
    """The task itself, or the function as one."""
    if isinstance(task, Task):
        return task
    if callable(task) and not isinstance(task, nn.Module | type):
        return FunctionTask(task)
    raise UsageError(
        f"a task must be a stoker.train.Task or a function (model, batch) -> loss, got {task!r}; "
        f"for a plain loss of prediction and target take stoker.train.Supervised(loss)"
    )


def split(result: Tensor | tuple[Tensor, Any]) -> tuple[Tensor, Any]:
    """Loss and prediction, or None where there is no prediction."""
    return result if isinstance(result, tuple) else (result, None)
