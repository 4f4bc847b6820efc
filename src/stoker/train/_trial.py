"""Steps that are tried and undone: which batch size fits."""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from stoker.train._batches import to_device
from stoker.train._engine import Engine
from stoker.train._memory import find_batch_size
from stoker.train._randomness import kept_random_state


class _TooFewSamples(MemoryError):  # noqa: N818 - an answer, not an error: it fits no more than that
    """The loader gives smaller batches than it was asked for."""


def largest_batch_size(
    engine: Engine,
    device: torch.device,
    make_loader: Callable[[int], Iterable[Any]],
    *,
    start: int,
    maximum: int,
    num_steps: int,
) -> int:
    """The largest of which `num_steps` steps fit, updates and all; the engine is as before."""

    def fits(size: int) -> None:
        loader: Any = make_loader(size)
        with contextlib.closing(loader) if hasattr(loader, "close") else contextlib.nullcontext():
            for number, host_batch in enumerate(itertools.islice(loader, num_steps)):
                if number == 0 and engine.task.num_samples(host_batch) < size:
                    raise _TooFewSamples
                engine.try_step(to_device(host_batch, device))

    weights = {name: value.detach().to("cpu", copy=True) for name, value in engine.model.state_dict().items()}
    optimizer = copy.deepcopy(engine.optimizer.state_dict())
    was_training = engine.model.training
    engine.model.train()
    try:
        with kept_random_state():
            return find_batch_size(fits, start=start, maximum=maximum)
    finally:
        engine.model.train(was_training)
        engine.model.load_state_dict(weights)
        engine.optimizer.load_state_dict(optimizer)
        engine.optimizer.zero_grad(set_to_none=True)
