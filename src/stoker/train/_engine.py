"""One training step: forward, backward and, when enough batches are in, an update of the weights."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from stoker.errors import UsageError
from stoker.train._average import WeightAverage
from stoker.train._compiled import CompileGuard
from stoker.train._distributed import Ranks
from stoker.train._memory import is_out_of_memory
from stoker.train._precision import Precision
from stoker.train._task import Task, split
from stoker.train._window import Window

_NOTHING = contextlib.nullcontext()

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


class Engine:
    """The model with everything that changes it. It knows no loaders, logs or files."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        *,
        optimizer: Optimizer | MakeOptimizer | None,
        precision: Precision,
        compile_mode: str,
        accumulate: int,
        clip_norm: float | None,
        ema: float | None,
        ranks: Ranks,
        device: torch.device,
        ddp_options: Mapping[str, Any],
    ) -> None:
        if accumulate < 1:
            raise UsageError(f"accumulate must be a number of batches of at least 1, got {accumulate}")
        if clip_norm is not None and clip_norm <= 0:
            raise UsageError(f"clip_norm must be above 0, or None for no clipping, got {clip_norm}")
        self.model = model.to(device)
        self.task = task
        self.precision = precision
        self.clip_norm = clip_norm
        self.ranks = ranks
        self.optimizer = _optimizer(optimizer, model)
        self.scheduler: Any = None
        self.scaler = precision.scaler()
        self.window = Window(accumulate)
        self.num_updates = 0
        self._ddp: DistributedDataParallel | None = None
        if ranks.world_size > 1:  # gives all ranks the weights of the first
            device_ids = [device] if device.type == "cuda" else None
            self._ddp = DistributedDataParallel(model, device_ids=device_ids, **ddp_options)
        self.average = None if ema is None else WeightAverage(model, ema)
        self._guard = CompileGuard(compile_mode)
        self._has_graphs = device.type == "cuda" and compile_mode in {"reduce-overhead", "max-autotune"}
        self._train_model = self._guard.wrap(self._ddp or model)
        self._plain_model = self._guard.wrap(model) if self._ddp else self._train_model
        self._parameters = [weight for group in self.optimizer.param_groups for weight in group["params"]]

    def step(self, batch: Any, own: int, total: int) -> tuple[Tensor, Any]:
        """Take in a batch of `own` samples here and `total` in all ranks.

        The weights are updated if this fills the window. Gives the prediction, and the loss without its
        graph.
        """
        weight = self.window.weigh(own, total, self.ranks.world_size)
        is_last = self.window.is_full
        if self._has_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with _NOTHING if is_last or self._ddp is None else self._ddp.no_sync():
            loss, prediction = self._forward(self._train_model, batch)
            try:
                self._backward(loss, weight)
            except Exception as error:
                if self._guard.mode == "off" or self._guard.failed or is_out_of_memory(error):
                    raise
                self._guard.give_up(error)  # some compilers fail only here: once more without
                loss, prediction = self._forward(self._train_model, batch)
                self._backward(loss, weight)
        if is_last:
            self._update()
        loss = loss.detach()
        return loss.clone() if self._has_graphs else loss, prediction  # a graph writes to its outputs again

    def flush(self) -> None:
        """Make the update of a window that the epoch's end left incomplete."""
        if self.window.count:
            self.ranks.average(self._gradients())  # they were kept from DDP until now
            self._update()

    def try_step(self, batch: Any) -> None:
        """Forward, backward and update by this process alone, to see whether they fit; nothing is counted."""
        loss, _ = self._forward(self._plain_model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def evaluate(self, batch: Any) -> tuple[Tensor, Any]:
        """Loss and prediction without gradients."""
        with self.precision.autocast():
            return split(self.task.loss(self._plain_model, batch))

    def predict(self, batch: Any) -> Any:
        """What the task predicts."""
        with self.precision.autocast():
            return self.task.predict(self._plain_model, batch)

    @contextlib.contextmanager
    def evaluating(self) -> Any:
        """The model in eval mode, with averaged weights if there are; afterwards as it was."""
        was_training = self.model.training
        averaged = contextlib.nullcontext() if self.average is None else self.average.applied()
        with torch.no_grad(), averaged:
            self.model.eval()
            try:
                yield
            finally:
                self.model.train(was_training)

    def gradients(self) -> dict[str, Tensor] | None:
        """Copies of those of an incomplete window, the mean over all ranks; None between two windows."""
        if not self.window.count:
            return None
        copies = {
            name: weight.grad.detach().clone()
            for name, weight in self.model.named_parameters()
            if weight.grad is not None
        }
        self.ranks.average(copies.values())
        return copies

    def set_gradients(self, gradients: Mapping[str, Tensor] | None) -> None:
        """Those that `gradients` gave."""
        self.optimizer.zero_grad(set_to_none=True)
        for name, weight in self.model.named_parameters():
            if gradients is not None and name in gradients:
                weight.grad = gradients[name].to(weight.device).clone()

    def _gradients(self) -> list[Tensor]:
        return [weight.grad for weight in self._parameters if weight.grad is not None]

    def _forward(self, model: nn.Module, batch: Any) -> tuple[Tensor, Any]:
        with self.precision.autocast():
            return split(self.task.loss(model, batch))

    def _backward(self, loss: Tensor, weight: float) -> None:
        if weight != 1:
            loss = loss * weight
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward()  # type: ignore[no-untyped-call]

    def _update(self) -> None:
        factor = self.window.close()
        if factor != 1:
            torch._foreach_mul_(self._gradients(), factor)
        made = self._optimizer_step()
        self.optimizer.zero_grad(set_to_none=True)
        self.num_updates += 1
        if made and self.scheduler is not None:
            self.scheduler.step()
        if made and self.average is not None:
            self.average.update()

    def _optimizer_step(self) -> bool:
        """Whether it was made: a scaler leaves out updates with gradients that overflowed."""
        if self.scaler is None:
            if self.clip_norm is not None:
                nn.utils.clip_grad_norm_(self._parameters, self.clip_norm)
            self.optimizer.step()
            return True
        if self.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self._parameters, self.clip_norm)
        before = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return self.scaler.get_scale() >= before


def _optimizer(optimizer: Optimizer | MakeOptimizer | None, model: nn.Module) -> Optimizer:
    """The given one, or one made for the weights that learn."""
    if isinstance(optimizer, Optimizer):
        return optimizer
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not weights:
        raise UsageError("the model has no weights that learn: none has requires_grad")
    if optimizer is None:
        return torch.optim.AdamW(weights, lr=1e-3)
    if not callable(optimizer):
        raise UsageError(
            f"optimizer must be a torch optimizer, or make one of parameters, such as "
            f"functools.partial(torch.optim.SGD, lr=0.1); got {optimizer!r}"
        )
    made = optimizer(weights)
    if not isinstance(made, Optimizer):
        raise UsageError(f"the function given as optimizer must give one, it gave {type(made).__name__}")
    return made
