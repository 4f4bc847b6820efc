"""What all our metrics share: state that is saved, and right on ranks that saw nothing."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

Values = dict[str, Tensor]  # of no dimensions, float64


class Accumulator(Metric):
    """A torchmetrics metric whose ``compute()`` gives several values by name.

    Its state goes into ``state_dict()``, so that a run can be resumed in the middle of an evaluation;
    under torch.distributed ``compute()`` is of all ranks' data, and every rank must call it. Nothing
    that an update does waits for the device. Without data every value is NaN.
    """

    full_state_update = False

    def __init__(self) -> None:
        super().__init__(compute_with_cache=False)  # a state that was loaded is not what was cached

    @property
    def update_called(self) -> bool:
        """Always: torchmetrics would warn on a rank that got no batch, or resumed with all of them."""
        return True

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Take a batch."""
        raise NotImplementedError

    def compute(self) -> Values:
        """The values over all batches since the last ``reset()``."""
        raise NotImplementedError


class WholeArrays(Accumulator):
    """Keeps all predictions and targets, for debugging: memory grows with the data.

    Subclasses say how a batch becomes rows, and what is computed of all rows at once.
    """

    predictions: list[Tensor]
    targets: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("predictions", [], dist_reduce_fx="cat", persistent=True)
        self.add_state("targets", [], dist_reduce_fx="cat", persistent=True)

    def rows(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """A batch as rows; types and numbers of dimensions are always the same."""
        raise NotImplementedError

    def no_rows(self) -> tuple[Tensor, Tensor]:
        """The rows of an empty batch."""
        raise NotImplementedError

    def values(self, predictions: Tensor, targets: Tensor) -> Values:
        """The values of all rows."""
        raise NotImplementedError

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Keep a batch."""
        predictions, targets = self.rows(prediction, target)
        self.predictions.append(predictions)
        self.targets.append(targets)

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Gather all ranks' rows; one that has none takes part with an empty piece of the right type."""
        if not self.predictions:
            predictions, targets = (rows.to(self.device) for rows in self.no_rows())
            self.predictions, self.targets = [predictions], [targets]
        super().sync(*args, **kwargs)

    def compute(self) -> Values:
        """The values over all rows that were kept."""
        return self.values(*self.joined())

    def joined(self) -> tuple[Tensor, Tensor]:
        """All rows that were kept, predictions and targets."""
        nothing = self.no_rows()
        return _joined(self.predictions, nothing[0]), _joined(self.targets, nothing[1])


def _joined(pieces: list[Tensor] | Tensor, nothing: Tensor) -> Tensor:
    if isinstance(pieces, Tensor):  # torchmetrics joined them when it gathered
        return pieces
    return torch.cat(pieces) if pieces else nothing


def named(name: str, overall: Tensor, each: Tensor, names: tuple[str, ...]) -> Values:
    """``{"mse": overall, "mse/left": each[0], …}``."""
    return {name: overall} | {f"{name}/{part}": each[place] for place, part in enumerate(names)}
