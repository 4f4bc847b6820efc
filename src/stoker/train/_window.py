"""The batches whose gradients make one update, each weighted by its samples.

With n samples in a batch and N in the whole window, the update must follow the mean loss of all N:
the sum of n/N times the batch's mean loss. N is known only when the window is full, so batches are
weighted as if all were as large as the first, and what that is wrong by is made up for at the end.
Where all are equal, as nearly always, nothing has to be.

Over R processes DDP takes the mean of their gradients, so a process' own n counts R times.
"""

from collections.abc import Mapping


class Window:
    """Counts batches towards the next update."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.count = 0  # batches so far
        self._first = 0  # samples of the first of them, of all ranks
        self._samples = 0  # of all of them

    def weigh(self, own: int, total: int, world_size: int) -> float:
        """Take in a batch of `own` samples here and `total` in all ranks; gives the weight of its loss."""
        if self.count == 0:
            self._first, self._samples = total, 0
        self.count += 1
        self._samples += total
        return own * world_size / (self.length * self._first)

    @property
    def is_full(self) -> bool:
        """Whether the update is due."""
        return self.count == self.length

    def close(self) -> float:
        """Begin the next window; gives the factor that makes the gradients right."""
        factor = self.length * self._first / self._samples
        self.count = 0
        return factor

    def state(self) -> dict[str, int]:
        """Plain numbers."""
        return {"length": self.length, "count": self.count, "first": self._first, "samples": self._samples}

    def load_state(self, state: Mapping[str, int]) -> None:
        """Go on from there."""
        self.count, self._first, self._samples = state["count"], state["first"], state["samples"]
