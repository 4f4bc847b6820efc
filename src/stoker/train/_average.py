"""An exponential moving average of the weights.

torch.optim.swa_utils.AveragedModel does the same, but asks the device at every update whether it is
the first one: the host would wait at each step.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from stoker.errors import CheckpointMismatchError, UsageError


class WeightAverage:
    """The averaged weights of a model, beside it; buffers are those of the model itself.

    The decay begins low, as min(decay, (1 + n) / (10 + n)) at the n-th update: the average of a short
    run is not mostly the random weights that it began with.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 < decay < 1:
            raise UsageError(f"ema must be a decay between 0 and 1, such as 0.999, got {decay}")
        self.decay = decay
        self.num_updates = 0
        named = [(name, weight) for name, weight in model.named_parameters() if weight.is_floating_point()]
        self._names = [name for name, _ in named]
        self._weights = [weight.detach() for _, weight in named]
        self._average = [weight.clone() for weight in self._weights]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are now."""
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        self.num_updates += 1
        torch._foreach_lerp_(self._average, self._weights, 1 - decay)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The model with the averaged weights; afterwards with its own again, to the bit."""
        own = [weight.clone() for weight in self._weights]
        self._assign(self._average)
        try:
            yield
        finally:
            self._assign(own)

    def state_dict(self) -> dict[str, Any]:
        """The averaged weights by name."""
        average: dict[str, Tensor] = dict(zip(self._names, self._average, strict=True))
        return {"num_updates": self.num_updates, "average": average}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        average = state["average"]
        if average.keys() != set(self._names):
            different = sorted(average.keys() ^ set(self._names))
            raise CheckpointMismatchError(
                f"the averaged weights are of another model, which differs in {different[:5]}; "
                f"go on with the model that they were saved with"
            )
        self.num_updates = int(state["num_updates"])
        for name, mine in zip(self._names, self._average, strict=True):
            mine.copy_(average[name])

    @torch.no_grad()
    def _assign(self, values: list[Tensor]) -> None:
        torch._foreach_copy_(self._weights, values)
