"""Bringing images to the levels that a network was trained with."""

from collections.abc import Sequence

from torch import Tensor

from stoker.augment._draws import Params
from stoker.augment._registry import register
from stoker.augment._transform import Role
from stoker.augment.image._fields import ImageTransform, as_numbers, per_channel
from stoker.errors import UsageError


@register("image")
class Normalize(ImageTransform):
    """Subtract a mean and divide by a standard deviation, the same for every sample.

    Args:
        mean: one number, or one for each channel; of images from 0 to 1.
        std: likewise.
        p: probability that a sample is changed.
    """

    def __init__(
        self, mean: float | Sequence[float], std: float | Sequence[float], *, p: float = 1.0
    ) -> None:
        super().__init__(p=p)
        self.mean = as_numbers(mean)
        self.std = as_numbers(std)
        if min(self.std) <= 0:
            raise UsageError(f"std must be above 0, got {std}")

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return (x - per_channel(self.mean, x, "mean")).div_(per_channel(self.std, x, "std"))
