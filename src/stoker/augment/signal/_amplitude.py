"""Changing signals by a factor or an offset of each sample."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stoker.augment._distributions import Draw, Uniform, distribution
from stoker.augment._draws import Params
from stoker.augment._operations import Operation, scaled
from stoker.augment._registry import register
from stoker.augment._transform import Role, Transform
from stoker.augment.signal._units import row_mean
from stoker.errors import UsageError


@register("signal")
class AmplitudeScale(Transform):
    """Multiply each sample by a factor.

    Args:
        factor: a pair, a distribution, or a number for always the same.
        p: probability that a sample is changed.
    """

    roles = ("signal",)
    neutral: ClassVar = {"factor": 1.0}
    every_row = True
    writes = True
    loops = True

    def __init__(self, factor: Draw = (0.8, 1.2), *, p: float = 1.0) -> None:
        self.factor = distribution(factor, "factor")
        super().__init__(p=p, draws={"factor": self.factor})

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return x * params.like("factor", x)

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:  # noqa: ARG002
        """See the base class."""
        _multiply(out, x, params.on_host("factor"))

    def operations(self, x: Tensor, params: Params, role: Role) -> Sequence[Operation]:  # noqa: ARG002
        """See the base class."""
        return [scaled(params.on_host("factor"))]


@register("signal")
class Polarity(Transform):
    """Turn samples upside down.

    Args:
        p: probability that a sample is changed.
    """

    roles = ("signal",)
    neutral: ClassVar = {"sign": 1.0}
    every_row = True
    writes = True
    loops = True

    def __init__(self, *, p: float = 0.5) -> None:
        super().__init__(p=p, draws={"sign": Uniform(-1, -1)})

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return x * params.like("sign", x)

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:  # noqa: ARG002
        """See the base class."""
        _multiply(out, x, params.on_host("sign"))

    def operations(self, x: Tensor, params: Params, role: Role) -> Sequence[Operation]:  # noqa: ARG002
        """See the base class."""
        return [scaled(params.on_host("sign"))]


@register("signal")
class Standardize(Transform):
    """Make the mean 0 and the standard deviation 1: (x - mean) / (std + eps).

    A constant signal becomes 0. The standard deviation is that of all values (divided by n).

    Args:
        per: "channel" of each sample, or "sample" with all its channels together.
        eps: keeps silence from being blown up; in units of the signal.
        p: probability that a sample is changed.
    """

    roles = ("signal",)

    def __init__(
        self, *, per: Literal["channel", "sample"] = "channel", eps: float = 1e-6, p: float = 1.0
    ) -> None:
        super().__init__(p=p)
        if per not in {"channel", "sample"}:
            raise UsageError(f"per must be 'channel' or 'sample', got {per!r}")
        if eps <= 0:
            raise UsageError(f"eps must be above 0, got {eps}")
        self.per = per
        self.eps = eps

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        rows = x.flatten(0, 1) if self.per == "channel" else x.flatten(1)
        centred = rows - row_mean(rows)
        scaled = centred / (torch.sqrt(row_mean(centred.square())) + self.eps)
        return scaled.view(x.shape)


def _multiply(out: Tensor, x: Tensor, factor: NDArray[np.float32]) -> None:
    """X [B, C, T] times a factor [B], by numpy: torch's threads would go on to keep a core from others."""
    with np.errstate(all="ignore"):  # as torch has it
        np.multiply(x.numpy(force=True), factor[:, None, None], out=out.numpy())
