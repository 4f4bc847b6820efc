"""The learning rate: warm-up and cosine by the update, and scaling with the batch size."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from stoker.errors import UsageError

MakeScheduler = Callable[[Optimizer, int], LRScheduler]


def warmup_cosine(update: int, *, num_warmup: int, num_updates: int, floor: float = 0.0) -> float:
    """The factor of the learning rate at an update, counted from 0.

    Rises in a line to 1 over `num_warmup` updates, then falls as half a cosine to `floor`, which it
    reaches at `num_updates` and keeps.
    """
    if update < num_warmup:
        return (update + 1) / (num_warmup + 1)
    progress = min(1.0, (update - num_warmup) / max(1, num_updates - num_warmup))
    return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class WarmupCosine:
    """Makes a scheduler for a run of known length: ``Trainer(..., scheduler=WarmupCosine(0.05))``.

    Args:
        warmup: updates, or a fraction of all of them if below 1.
        floor: the last learning rate as a fraction of the highest.
    """

    warmup: float = 0.05
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.warmup < 0 or not 0 <= self.floor <= 1:
            raise UsageError(
                f"warmup must be at least 0 and floor within 0 and 1, got {self.warmup} and {self.floor}"
            )

    def __call__(self, optimizer: Optimizer, num_updates: int) -> LambdaLR:
        """The scheduler, to be stepped after every update."""
        warmup = round(self.warmup * num_updates) if self.warmup < 1 else int(self.warmup)
        return LambdaLR(
            optimizer,
            lambda update: warmup_cosine(
                update, num_warmup=warmup, num_updates=num_updates, floor=self.floor
            ),
        )


def scale_learning_rate(optimizer: Optimizer, *, samples_per_update: int, reference: int) -> float:
    """Multiply every learning rate by samples_per_update / reference, in place; gives that factor."""
    if reference < 1:
        raise UsageError(f"lr_scaling must be a batch size of at least 1, got {reference}")
    factor = samples_per_update / reference
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor
    return factor


def make_scheduler(
    scheduler: LRScheduler | MakeScheduler, optimizer: Optimizer, num_updates: int | None
) -> LRScheduler:
    """The given one, or one made for a run of so many updates (None: nobody knows how many)."""
    if isinstance(scheduler, ReduceLROnPlateau):
        raise UsageError("a scheduler is stepped after every update and sees no metric; take WarmupCosine()")
    if isinstance(scheduler, LRScheduler):
        return scheduler
    if num_updates is None:
        raise UsageError("a scheduler needs to know how many steps there are; give the loader a __len__")
    return scheduler(optimizer, num_updates)
