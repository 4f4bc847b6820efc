"""One pass over a loader without learning: values, or predictions."""

from collections.abc import Iterable
from typing import Any

import torch

from stoker.errors import UsageError
from stoker.train._batches import to_device
from stoker.train._collect import Collected
from stoker.train._engine import Engine
from stoker.train._feed import Feed
from stoker.train._loss_sum import LossSum
from stoker.train._measures import Measures, Value, read_values
from stoker.train._randomness import kept_random_state
from stoker.train._signals import StopSignals
from stoker.train._task import Task


def evaluate(
    engine: Engine,
    loader: Iterable[Any],
    measures: Measures,
    device: torch.device,
    *,
    stop: StopSignals | None,
) -> dict[str, Value] | None:
    """Loss and metrics over all batches of all ranks; None if a signal came to any of them meanwhile.

    Ranks may have unequally many batches: they wait for each other at the end only.
    """
    total = LossSum()
    measures.reset()
    num_batches = 0
    # all ranks evaluate the first one's batch-norm statistics, as it would save them
    engine.ranks.take_firsts(engine.model.buffers())
    with kept_random_state(), engine.evaluating():
        for host_batch in Feed(loader).begin(0):  # the same order whenever it is asked
            if stop is not None and stop.requested:
                break
            batch = to_device(host_batch, device)
            loss, prediction = engine.evaluate(batch)
            total.add(loss, engine.task.num_samples(batch))
            if measures:
                measure(engine.task, measures, prediction, batch)
            num_batches += 1
        num_stops, num_batches = engine.ranks.added(
            int(stop is not None and stop.requested != 0), num_batches
        )
        if num_stops:
            return None
        if num_batches == 0:
            raise UsageError("the loader to evaluate with gave no batch: is its data empty?")
        return read_values({"loss": total.mean(engine.ranks), **measures.compute()})


def predict(engine: Engine, loader: Iterable[Any], device: torch.device) -> Any:
    """The predictions for all batches, joined."""
    collected = Collected()
    with kept_random_state(), engine.evaluating():
        for batch in Feed(loader).begin(0):
            collected.add(engine.predict(to_device(batch, device)))
    return collected.joined()


def measure(task: Task, measures: Measures, prediction: Any, batch: Any) -> None:
    """Let the metrics take in a batch."""
    if prediction is None:
        raise UsageError("a task with metrics must give (loss, prediction), it gave the loss alone")
    measures.update(*task.measured(prediction, batch))
