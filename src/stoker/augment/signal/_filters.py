"""Zero-phase Butterworth filters whose cutoffs are drawn for each sample."""

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from stoker.augment._distributions import Distribution, Draw, distribution
from stoker.augment._draws import Params
from stoker.augment._registry import register
from stoker.augment._transform import Role, Transform
from stoker.augment.signal._zero_phase import Kind, tail_length, zero_phase
from stoker.errors import UsageError


class _Filter(Transform):
    """What the four kinds share: W = tan(πf/fs) of each edge, and how long a response lasts.

    The lowest and highest cutoffs decide that length, and with it the cost: a cutoff of 0.5 Hz at a
    sample rate of 500 Hz takes 7,800 more samples in the transform.
    """

    roles = ("signal",)
    kind: ClassVar[Kind]
    edges: ClassVar[tuple[str, ...]]

    def __init__(self, sample_rate: float, cutoffs: Sequence[Distribution], *, order: int, p: float) -> None:
        super().__init__(p=p, draws=dict(zip(self.edges, cutoffs, strict=True)))
        if not 0 < sample_rate < math.inf:
            raise UsageError(f"sample_rate must be above 0 Hz, got {sample_rate}")
        if not 1 <= order <= 12:
            raise UsageError(f"order must be from 1 to 12, got {order}")
        for name, cutoff in zip(self.edges, cutoffs, strict=True):
            low, high = cutoff.bounds
            if not (low > 0 and high < sample_rate / 2):
                limit = f"{sample_rate / 2:g} Hz, half the sample rate"
                raise UsageError(f"{name} must lie above 0 and below {limit}, got {cutoff!r}")
        if len(cutoffs) == 2 and not cutoffs[0].bounds[1] < cutoffs[1].bounds[0]:
            raise UsageError(
                f"{self.edges[0]} must always be below {self.edges[1]}, got {cutoffs[0]!r} and {cutoffs[1]!r}"
            )
        self.sample_rate = sample_rate
        self.order = order
        corners = list(
            itertools.product(*[[self._warped(bound) for bound in each.bounds] for each in cutoffs])
        )
        self._tail = tail_length(self.kind, corners, order)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        cutoffs = [(params[name].double() * (math.pi / self.sample_rate)).tan() for name in self.edges]
        return zero_phase(x, self.kind, cutoffs, self.order, self._tail)

    def _warped(self, frequency: float) -> float:
        return math.tan(math.pi * frequency / self.sample_rate)


@register("signal")
class LowPass(_Filter):
    """Keep what is below a cutoff; equal to `scipy.signal.sosfiltfilt` with a Butterworth filter.

    Args:
        sample_rate: of the signals, in Hz.
        cutoff: in Hz; a pair, a distribution, or a number for always the same.
        order: of the filter; it acts twice, forwards and backwards.
        p: probability that a sample is changed.
    """

    kind = "low"
    edges = ("cutoff",)

    def __init__(self, sample_rate: float, cutoff: Draw, *, order: int = 4, p: float = 1.0) -> None:
        self.cutoff = distribution(cutoff, "cutoff")
        super().__init__(sample_rate, [self.cutoff], order=order, p=p)


@register("signal")
class HighPass(_Filter):
    """Keep what is above a cutoff; equal to `scipy.signal.sosfiltfilt` with a Butterworth filter.

    Args:
        sample_rate: of the signals, in Hz.
        cutoff: in Hz; a pair, a distribution, or a number for always the same.
        order: of the filter; it acts twice, forwards and backwards.
        p: probability that a sample is changed.
    """

    kind = "high"
    edges = ("cutoff",)

    def __init__(self, sample_rate: float, cutoff: Draw, *, order: int = 4, p: float = 1.0) -> None:
        self.cutoff = distribution(cutoff, "cutoff")
        super().__init__(sample_rate, [self.cutoff], order=order, p=p)


@register("signal")
class BandPass(_Filter):
    """Keep what is between two cutoffs; equal to `scipy.signal.sosfiltfilt` with a Butterworth filter.

    Args:
        sample_rate: of the signals, in Hz.
        low: lower cutoff in Hz; a pair, a distribution, or a number for always the same.
        high: upper cutoff in Hz, always above the lower one; likewise.
        order: of the low-pass filter that it is made from; it acts twice, forwards and backwards.
        p: probability that a sample is changed.
    """

    kind = "band"
    edges = ("low", "high")

    def __init__(self, sample_rate: float, low: Draw, high: Draw, *, order: int = 4, p: float = 1.0) -> None:
        self.low, self.high = distribution(low, "low"), distribution(high, "high")
        super().__init__(sample_rate, [self.low, self.high], order=order, p=p)


@register("signal")
class BandStop(_Filter):
    """Remove what is between two cutoffs; equal to `scipy.signal.sosfiltfilt` with a Butterworth filter.

    Args:
        sample_rate: of the signals, in Hz.
        low: lower cutoff in Hz; a pair, a distribution, or a number for always the same.
        high: upper cutoff in Hz, always above the lower one; likewise.
        order: of the low-pass filter that it is made from; it acts twice, forwards and backwards.
        p: probability that a sample is changed.
    """

    kind = "stop"
    edges = ("low", "high")

    def __init__(self, sample_rate: float, low: Draw, high: Draw, *, order: int = 4, p: float = 1.0) -> None:
        self.low, self.high = distribution(low, "low"), distribution(high, "high")
        super().__init__(sample_rate, [self.low, self.high], order=order, p=p)
