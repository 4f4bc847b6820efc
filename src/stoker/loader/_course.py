"""What passes between the loader and whatever reads for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stoker.errors import BadSampleError
from stoker.loader._order import Order
from stoker.loader._plan import Plan

INDEX = "index"  # the field with the numbers of a batch's samples


@dataclass(frozen=True)
class Course:
    """Everything that determines what an epoch's remaining batches hold."""

    order: Order
    plan: Plan
    seed: int
    epoch: int
    consumed: int  # positions that all ranks together have behind them

    def consumed_after(self, step: int) -> int:
        """The same after the ``step``-th step from here."""
        return self.plan.consumed_after(self.consumed, step + 1)


@dataclass(slots=True)
class Fetched:
    """One batch."""

    step: int
    num_samples: int
    tensors: dict[str, Any]  # on the host, then on the device
    index: Any  # the samples' numbers, always on the host
    bad: Sequence[BadSampleError] = ()


class Data(Protocol):
    """What the loader must know of its data."""

    identity: str  # differs where the samples differ

    def __len__(self) -> int: ...

    def key(self, number: int) -> str:
        """The sample's name, for messages."""
