"""Data, models and tasks that the trainer's tests share, in their own process and in others."""

import signal
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import stoker
from stoker.augment import Pipeline
from stoker.augment.signal import GaussianNoise, TimeShift
from stoker.train import Supervised, WarmupCosine, regression_metrics

NUM_SAMPLES = 53  # four global batches of 12 and an uneven rest


def make_store(path: Path, count: int = NUM_SAMPLES) -> stoker.Store:
    """Signals [1, 16] and targets that a small model can learn from them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 1, 16, generator=generator)
    y = x[:, 0] @ torch.randn(16, 2, generator=generator) / 4
    samples = [{"x": x[i].numpy(), "y": y[i].numpy()} for i in range(count)]
    return stoker.pack(samples, path, workers=0, progress=False)


def make_loader(store: stoker.Store, batch_size: int, *, augmented: bool = True) -> stoker.Loader:
    augment = Pipeline(TimeShift(0.1), GaussianNoise((20, 40)), roles={"x": "signal"}, seed=3)
    return stoker.Loader(store, batch_size, seed=1, augment=augment if augmented else None, num_workers=1)


def make_model(*, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 2))


class SignalledTask(Supervised):
    """Sends its own process a signal during one training step or evaluated batch, as a scheduler would."""

    def __init__(self, *, at_step: int | None = None, at_evaluated: int | None = None) -> None:
        super().__init__(nn.MSELoss(), metrics=regression_metrics())
        self.at = {True: at_step, False: at_evaluated}  # by whether the model is training
        self.count = {True: 0, False: 0}

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Any]:
        training = model.training
        self.count[training] += 1
        if self.count[training] == self.at[training]:
            signal.raise_signal(signal.SIGTERM)
        return super().loss(model, batch)


def everything(**options: Any) -> dict[str, Any]:
    """Options that give a run all the state that it can have."""
    return {
        "optimizer": lambda weights: torch.optim.AdamW(weights, lr=0.02),
        "scheduler": WarmupCosine(warmup=2),
        "accumulate": 2,
        "clip_norm": 1.0,
        "ema": 0.9,
        "measure_training": True,
        "log_every": 3,
        "compile": "off",
        "device": "cpu",
        "progress": False,
        **options,
    }


class ListLoader(list[Any]):
    """Batches in a list, with what the trainer asks of a loader that knows nothing."""


def numbers(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A run's rows without what depends on the machine."""
    machine = ("kind", "_per_s", "_fraction", "_bytes")
    return [{name: value for name, value in row.items() if not name.endswith(machine)} for row in history]
