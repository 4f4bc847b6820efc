"""What ranks train together, to be compared with what one process trains."""

import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import stoker
from stoker.errors import TrainingInterruptedError, UsageError
from stoker.train import FitResult, Supervised, Trainer
from support.training import ListLoader, SignalledTask, everything, make_loader, make_model, numbers

GLOBAL_BATCH = 12


def equal_to_one(store: stoker.Store, folder: Path, ranks: int, **options: Any) -> dict[str, Any]:
    """A whole run, with everything, over a global batch that does not depend on the ranks."""
    task, resume = options.pop("task", SignalledTask()), options.pop("resume", None)
    with (
        make_loader(store, GLOBAL_BATCH // ranks) as train,
        make_loader(store, 18 // ranks, augmented=False) as val,
    ):
        trainer = Trainer(make_model(), task, **everything(measure_training=False, **options))
        result = trainer.fit(train, val, epochs=3, resume=resume)
        evaluated = trainer.evaluate(val)
    if trainer.ranks.is_first:
        torch.save(trainer.model.state_dict(), folder / ("weights.pt" if resume is None else "resumed.pt"))
    trainer.ranks.close()
    return {"history": numbers(result.history), "evaluated": evaluated, "num_updates": trainer.num_updates}


def interrupted(store: stoker.Store, folder: Path, rank: int, ranks: int) -> dict[str, Any]:
    """A signal to the last rank alone stops all after the same step; a resumed run is the whole run."""

    def run(task: Any, where: Path, resume: str | None) -> FitResult:
        with make_loader(store, GLOBAL_BATCH // ranks) as train:
            trainer = Trainer(make_model(dropout=0.3), task, **everything(checkpoint_dir=where))
            try:
                return trainer.fit(train, epochs=2, resume=resume)
            finally:
                stopped.append(trainer.step)
                trainer.ranks.close()

    stopped: list[int] = []
    whole = run(SignalledTask(), folder / "whole", None)
    try:
        run(SignalledTask(at_step=3 if rank == ranks - 1 else None), folder / "cut", None)
    except TrainingInterruptedError as error:
        message = str(error)
    again = run(SignalledTask(), folder / "cut", "last")
    return {
        "stopped": stopped[1],
        "message": message,
        "whole": numbers(whole.history),
        "again": numbers(again.history),
    }


def unequal(rank: int) -> dict[str, Any]:
    """Every rank has another number of batches."""
    batches = ListLoader({"x": torch.ones(4, 3), "y": torch.ones(4, 1)} for _ in range(3 + rank))
    trainer = Trainer(nn.Linear(3, 1), Supervised(nn.MSELoss()), **everything(scheduler=None))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.fit(batches, batches, epochs=2)
    trainer.ranks.close()
    return {"step": trainer.step, "said": [str(each.message) for each in said]}


def batch_norm(rank: int) -> list[float]:
    """The running mean with which this rank evaluates, after training on values of its own."""
    batches = ListLoader({"x": torch.full((4, 1), float(rank)), "y": torch.ones(4, 1)} for _ in range(3))
    model = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1))
    trainer = Trainer(model, Supervised(nn.MSELoss()), **everything(scheduler=None, ema=None))
    trainer.fit(batches, batches, epochs=1)
    trainer.ranks.close()
    assert isinstance(model[0].running_mean, torch.Tensor)
    return [float(value) for value in model[0].running_mean.tolist()]


def foreign_loader(store: stoker.Store) -> str:
    """What is said of a loader that was made for one process."""
    loader = stoker.Loader(store, 4, rank=0, world_size=1)
    trainer = Trainer(make_model(), Supervised(nn.MSELoss()), **everything())
    try:
        trainer.fit(loader, epochs=1)
    except UsageError as error:
        return str(error)
    finally:
        trainer.ranks.close()
        loader.close()
    return ""


def train_together(store: stoker.Store, folder: Path, checkpoint: Path) -> dict[str, Any]:
    """All of it in one rank; `checkpoint` is of one process that was stopped within an epoch.

    The first rank writes the weights to the folder.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return {
        "equal_to_one": equal_to_one(store, folder, ranks),
        "resumed": equal_to_one(store, folder, ranks, resume=checkpoint),
        "interrupted": interrupted(store, folder, rank, ranks),
        "unequal": unequal(rank),
        "batch_norm": batch_norm(rank),
        "foreign_loader": foreign_loader(store),
    }
