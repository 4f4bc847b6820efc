"""The same training four ways: by hand, and by the trainers that do it for you.

All make one epoch over one loader with one model, optimizer and loss, keep every loss on the device, and
every `LOG_EVERY` steps read their mean and write it to a file: what Stoker does unasked. Nobody saves
checkpoints, shows progress or evaluates, for these are costs of an epoch and not of a step.
"""

import functools
import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader

import stoker
from stoker.train import JsonLog, Supervised

LOG_EVERY = 50  # steps; the default of Stoker and of Lightning

make_optimizer = functools.partial(torch.optim.SGD, lr=1e-3)


@dataclass(frozen=True)
class Job:
    """What is trained; `loader` gives one epoch of dicts with x and y."""

    make_model: Callable[[], nn.Module]
    loader: DataLoader[Any]
    folder: Path  # for logs


def by_hand(job: Job) -> None:
    """The loop that one would write."""
    model, loss_function = job.make_model(), nn.MSELoss()
    optimizer = make_optimizer(model.parameters())
    losses: list[Tensor] = []
    with (job.folder / "hand.jsonl").open("w") as log:
        for step, batch in enumerate(job.loader, start=1):
            loss = loss_function(model(batch["x"]), batch["y"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            _keep(loss, losses, step, log)


def by_stoker(job: Job) -> None:
    """``stoker.Trainer``."""
    trainer = stoker.Trainer(
        job.make_model(),
        Supervised(nn.MSELoss()),
        optimizer=make_optimizer,
        device="cpu",
        log=JsonLog(job.folder / "stoker.jsonl"),
        progress=False,
    )
    trainer.fit(job.loader, epochs=1)


def by_accelerate(job: Job) -> None:
    """The loop by hand, with what Accelerate prepares."""
    from accelerate import Accelerator  # type: ignore[import-untyped]

    accelerator, loss_function = Accelerator(cpu=True), nn.MSELoss()
    model = job.make_model()
    model, optimizer, loader = accelerator.prepare(model, make_optimizer(model.parameters()), job.loader)
    losses: list[Tensor] = []
    with (job.folder / "accelerate.jsonl").open("w") as log:
        for step, batch in enumerate(loader, start=1):
            loss = loss_function(model(batch["x"]), batch["y"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            _keep(loss, losses, step, log)


def by_lightning(job: Job) -> None:
    """Lightning's Trainer, without what can be turned off."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no workers, nor a validation
        trainer = Trainer(
            accelerator="cpu",
            max_epochs=1,
            logger=CSVLogger(job.folder, "lightning"),
            log_every_n_steps=LOG_EVERY,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(_Module(job.make_model()), job.loader)


LOOPS: dict[str, Callable[[Job], None]] = {
    "loop by hand": by_hand,
    "Stoker": by_stoker,
    "Accelerate": by_accelerate,
    "Lightning": by_lightning,
}


class _Module(LightningModule):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.loss_function = model, nn.MSELoss()

    def training_step(self, batch: Any, _: int) -> Tensor:
        loss: Tensor = self.loss_function(self.model(batch["x"]), batch["y"])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return make_optimizer(self.parameters())


def _keep(loss: Tensor, losses: list[Tensor], step: int, log: Any) -> None:
    losses.append(loss.detach())
    if step % LOG_EVERY == 0:
        log.write(json.dumps({"step": step, "loss": torch.stack(losses).mean().item()}) + "\n")
        losses.clear()
