"""Who reads what when: pure arithmetic on positions of an epoch.

A global batch is ``world_size`` times ``batch_size`` neighbouring positions; rank r takes the r-th part.
All ranks always have equally many steps, so that none waits for another that has finished. The last
global batch is smaller: its parts differ by at most one sample; if there are fewer samples than
ranks, or with ``pad``, positions from the epoch's start are repeated to fill it; with ``drop_last``
it is left out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.errors import UsageError


@dataclass(frozen=True)
class Plan:
    """How an epoch of ``length`` positions is cut into steps."""

    length: int
    batch_size: int
    rank: int = 0
    world_size: int = 1
    drop_last: bool = False
    pad: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, got {self.batch_size}")
        if not 0 <= self.rank < self.world_size:
            raise UsageError(f"rank must be from 0 to world_size - 1, got {self.rank} of {self.world_size}")

    @property
    def global_batch(self) -> int:
        """Samples that all ranks take in one full step."""
        return self.batch_size * self.world_size

    def num_steps(self, consumed: int = 0) -> int:
        """Steps that are left after ``consumed`` positions."""
        left = max(0, self.length - consumed)
        whole, rest = divmod(left, self.global_batch)
        return whole + (rest > 0 and not self.drop_last)

    def consumed_after(self, consumed: int, num_steps: int) -> int:
        """Positions that all ranks together have consumed ``num_steps`` steps later."""
        return min(self.length, consumed + num_steps * self.global_batch)

    def positions(self, consumed: int, step: int) -> NDArray[np.int64]:
        """This rank's positions in the ``step``-th step after ``consumed`` positions."""
        start = consumed + step * self.global_batch
        size = min(self.global_batch, self.length - start)
        if size == self.global_batch:
            first = start + self.rank * self.batch_size
            return np.arange(first, first + self.batch_size)
        padded = self.global_batch if self.pad else max(size, self.world_size)
        cuts = [padded * rank // self.world_size for rank in (self.rank, self.rank + 1)]
        mine = np.arange(*cuts)
        return np.where(mine < size, start + mine, (mine - size) % self.length)

    def positions_of(self, consumed: int, steps: range) -> tuple[NDArray[np.int64], list[int]]:
        """Those of neighbouring steps end to end, and where each step begins and the last one ends."""
        num_full = (self.length - consumed) // self.global_batch
        full = range(steps.start, max(steps.start, min(steps.stop, num_full)))
        first = consumed + self.rank * self.batch_size + self.global_batch * np.arange(full.start, full.stop)
        parts = [(first[:, np.newaxis] + np.arange(self.batch_size)).reshape(-1)]
        cuts = list(range(0, len(full) * self.batch_size + 1, self.batch_size))
        for step in range(full.stop, steps.stop):
            parts.append(self.positions(consumed, step))
            cuts.append(cuts[-1] + len(parts[-1]))
        return np.concatenate(parts), cuts
