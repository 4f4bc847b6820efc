"""Everything that a run must have to go on as if it had never stopped.

One file for all ranks: what they share is the first rank's; random numbers, sums and what a loader of another
kind than Stoker's remembers are kept for each.
"""

import platform
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

import stoker
from stoker.errors import CheckpointMismatchError, UsageError
from stoker.loader import Loader
from stoker.train._feed import Feed
from stoker.train._randomness import random_state, seed_all, set_random_state
from stoker.train._timing import StepTimes

if TYPE_CHECKING:
    from stoker.train._trainer import Trainer

SCHEMA_VERSION = 1


def capture(trainer: "Trainer", feed: Feed) -> dict[str, Any]:
    """The whole state; every rank must ask, the first one's answer is the one to write."""
    engine = trainer.engine
    own = {
        "random": random_state(),
        "epoch_began_with": feed.epoch_began_with,
        "loader": feed.state(),
        "loss_sum": trainer.loss_sum.state(),
        "metrics": _on_cpu(trainer.train_measures.state()),
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "versions": {
            "stoker": stoker.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
        "model": engine.model.state_dict(),
        "optimizer": engine.optimizer.state_dict(),
        "scheduler": None if engine.scheduler is None else engine.scheduler.state_dict(),
        "scaler": None if engine.scaler is None else engine.scaler.state_dict(),
        "ema": None if engine.average is None else engine.average.state_dict(),
        "gradients": engine.gradients(),
        "window": engine.window.state(),
        "position": {
            "epoch": trainer.epoch,
            "step": trainer.step,
            "step_in_epoch": trainer.step_in_epoch,
            "num_updates": engine.num_updates,
        },
        "judge": trainer.judge.state(),
        "best": trainer.best,
        "history": trainer.history,
        "times": {"epoch": trainer.times.state(), "before": trainer.times_before.state()},
        "peak_memory_bytes": trainer.peak_memory_bytes,
        "ranks": trainer.ranks.gathered(own),
        "settings": trainer.settings,
        "config": trainer.config,
    }


def restore(trainer: "Trainer", feed: Feed, state: Mapping[str, Any], source: str) -> Iterator[Any] | None:
    """Bring the trainer to where the state says; gives the rest of its epoch, or None between two epochs.

    Raises:
        CheckpointMismatchError: names what the state has and the trainer has not, or the other way.
    """
    if state.get("schema_version") != SCHEMA_VERSION or "ranks" not in state:
        raise CheckpointMismatchError(
            f"{source} is no trainer's checkpoint of this version: schema_version is "
            f"{state.get('schema_version')!r}, not {SCHEMA_VERSION}"
        )
    engine = trainer.engine
    position = state["position"]
    _check_window(engine.window.length, state["window"], source)
    _load(engine.model, state["model"], "model", source)
    _load(engine.optimizer, state["optimizer"], "optimizer", source)
    for name, part in (("scheduler", engine.scheduler), ("scaler", engine.scaler), ("ema", engine.average)):
        _load(part, state[name], name, source)
    engine.window.load_state(state["window"])
    engine.set_gradients(state["gradients"])
    engine.num_updates = position["num_updates"]
    trainer.epoch, trainer.step = position["epoch"], position["step"]
    trainer.step_in_epoch = position["step_in_epoch"]
    trainer.judge.load_state(state["judge"])
    trainer.best = state["best"]
    trainer.history[:] = state["history"]
    trainer.times = StepTimes.from_state(state["times"]["epoch"])
    trainer.times_before = StepTimes.from_state(state["times"]["before"])
    trainer.peak_memory_bytes = state["peak_memory_bytes"]
    return _restore_rank(trainer, feed, state["ranks"])


def _restore_rank(trainer: "Trainer", feed: Feed, by_rank: list[dict[str, Any]]) -> Iterator[Any] | None:
    rank, world_size = trainer.ranks.rank, trainer.ranks.world_size
    same = len(by_rank) == world_size
    own = by_rank[rank if same else 0]
    if same:
        trainer.train_measures.load_state(own["metrics"])
    elif trainer.step_in_epoch and trainer.train_measures:
        warnings.warn(
            f"there were {len(by_rank)} processes and are {world_size} now: metrics of this epoch's training "
            f"begin anew; losses, weights and order go on",
            stacklevel=2,
        )
    trainer.loss_sum.load_state(own["loss_sum"] if same else _added(by_rank, rank))
    batches = None
    if trainer.step_in_epoch:
        if not same and not isinstance(feed.loader, Loader):
            raise UsageError(
                f"this loader cannot go on in the middle of an epoch with {world_size} processes "
                f"instead of {len(by_rank)}; stoker.Loader can"
            )
        batches = feed.go_on(trainer.epoch, own["loader"], trainer.step_in_epoch, own["epoch_began_with"])
    if same:
        set_random_state(own["random"])
    elif trainer.seed is not None:
        seed_all(trainer.seed + trainer.step * world_size + rank)
    return batches


def _added(by_rank: list[dict[str, Any]], rank: int) -> dict[str, Any]:
    """The sums of all ranks for the first, nothing for the others."""
    sums = [each["loss_sum"] for each in by_rank]
    first = rank == 0
    return {
        "total": sum(each["total"] for each in sums) if first else 0.0,
        "num_samples": sum(each["num_samples"] for each in sums) if first else 0,
        "read": sums[0]["read"],
    }


def _load(part: Any, state: Any, name: str, source: str) -> None:
    if (part is None) != (state is None):
        had, has = ("no", "a") if state is None else ("a", "no")
        raise CheckpointMismatchError(
            f"{source} has {had} {name}, this trainer {has} one; make the trainer with the same options"
        )
    if part is None:
        return
    try:
        part.load_state_dict(state)
    except (RuntimeError, ValueError, KeyError) as error:
        raise CheckpointMismatchError(f"{source} does not fit this trainer's {name}: {error}") from error


def _check_window(length: int, state: Mapping[str, int], source: str) -> None:
    if state["count"] and state["length"] != length:
        raise CheckpointMismatchError(
            f"{source} was written within an update of accumulate={state['length']} batches, this trainer "
            f"has accumulate={length}; go on with the same, or from a checkpoint between two updates"
        )


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, Mapping):
        return {key: _on_cpu(part) for key, part in value.items()}
    return [_on_cpu(part) for part in value] if isinstance(value, list) else value
