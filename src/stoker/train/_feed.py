"""Any loader as the trainer sees it: epochs by number, and a place to go on from."""

from collections.abc import Iterator, Mapping
from typing import Any

from stoker.errors import UsageError
from stoker.loader import Loader
from stoker.train._randomness import random_state, set_random_state


class Feed:
    """Batches of one loader, epoch by epoch.

    A loader with state_dict and load_state_dict goes on where it stood. Any other is iterated over
    again with the random numbers that the epoch began with, and what it gave before is passed over:
    a DataLoader that shuffles gives the same order then.
    """

    def __init__(self, loader: Any, *, world_size: int | None = None) -> None:
        if not hasattr(loader, "__iter__") or isinstance(loader, Iterator):
            raise UsageError(
                f"a loader must be iterable anew for every epoch, got {type(loader).__name__}; "
                f"make a list of it, or a class with __iter__"
            )
        if isinstance(loader, Loader) and world_size not in {None, loader.plan.world_size}:
            raise UsageError(
                f"the loader was made for {loader.plan.world_size} processes and there are {world_size}: "
                f"make it after the Trainer or within process_group(), or pass rank and world_size"
            )
        self.loader = loader
        self.stateful = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self.epoch_began_with: dict[str, Any] | None = None  # random state, where the loader has no own

    def num_steps(self) -> int | None:
        """Batches of one epoch, if the loader says."""
        try:
            return len(self.loader)
        except TypeError:
            return None

    def begin(self, epoch: int) -> Iterator[Any]:
        """All of that epoch."""
        self._set_epoch(epoch)
        self.epoch_began_with = None if self.stateful else random_state()
        batches: Iterator[Any] = iter(self.loader)
        return batches

    def go_on(
        self,
        epoch: int,
        state: Mapping[str, Any] | None,
        num_given: int,
        began_with: Mapping[str, Any] | None,
    ) -> Iterator[Any]:
        """The rest of that epoch; random numbers are left anywhere, restore them after this."""
        if self.stateful and state is not None:
            self.loader.load_state_dict(state)
            num_given = 0
        else:
            self._set_epoch(epoch)
        if began_with is not None:
            set_random_state(began_with)
        self.epoch_began_with = None if began_with is None else dict(began_with)
        batches: Iterator[Any] = iter(self.loader)
        for _ in range(num_given):
            next(batches, None)
        return batches

    def state(self) -> dict[str, Any] | None:
        """Where the loader stands, if it can say."""
        return dict(self.loader.state_dict()) if self.stateful else None

    def _set_epoch(self, epoch: int) -> None:
        owners: list[Any] = [self.loader, getattr(self.loader, "sampler", None)]
        for owner in owners:
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(epoch)
                return
