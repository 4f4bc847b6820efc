"""What a tuner of loader settings needs of a run: its training loader with other settings, and its step."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from stoker.config import TrainSettings
from stoker.loader import Loader
from stoker.train._assembly import assembled, make_augment, training_loader
from stoker.train._batches import to_device
from stoker.train._parts import opened_parts


@dataclass(frozen=True)
class Tunable:
    """A run that is not trained, only timed."""

    make_loader: Callable[[Mapping[str, Any]], Loader]  # of values for ``data.loader``
    step: Callable[[Any], None]  # forward, backward and update with a batch, and done when it returns


@contextmanager
def tunable(settings: TrainSettings) -> Iterator[Tunable]:
    """Make a run's parts. Steps change the model, which is thrown away; nothing is written.

    Raises:
        ConfigError: names the setting whose object cannot be found or made.
        StoreError: a store cannot be opened.
    """
    with (
        assembled(settings.model_copy(update={"log": ()}), progress=False) as run,
        opened_parts(settings.data) as parts,
    ):
        engine, device, size = run.trainer.engine, run.trainer.device, run.train.batch_size
        augment = make_augment(settings)

        def make_loader(options: Mapping[str, Any]) -> Loader:
            loader = settings.data.loader.model_copy(update=dict(options))
            changed = settings.model_copy(
                update={"data": settings.data.model_copy(update={"loader": loader})}
            )
            return training_loader(changed, parts["train"], device, size, augment=augment)

        def step(batch: Any) -> None:
            engine.try_step(to_device(batch, device))
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        engine.model.train()
        yield Tunable(make_loader, step)
