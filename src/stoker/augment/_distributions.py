"""What a parameter is drawn from, as small values that a config file can hold.

Each is given by its quantile function, so that one uniform number makes one parameter.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from stoker.errors import UsageError


class Distribution(ABC):
    """A distribution of one number; `bounds` are the least and the greatest it can give."""

    whole: ClassVar[bool] = False  # gives whole numbers, which transforms get as int64

    @property
    def numbers(self) -> tuple[float, ...]:
        """What tells it from others of its kind."""
        return tuple(float(number) for number in astuple(cast("Uniform", self)))

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value; infinite where there is none."""

    @staticmethod
    @abstractmethod
    def quantile(uniform: Tensor, numbers: Tensor) -> Tensor:
        """The values at these probabilities, float64.

        Shape: uniform [B, k] in (0, 1); numbers [m, k], those of k distributions of this kind.
        """

    def to_config(self) -> dict[str, list[float]]:
        """As a config file has it: ``{"uniform": [-0.1, 0.1]}``."""
        return {_NAMES[type(self)]: list(self.numbers)}


@dataclass(frozen=True)
class Uniform(Distribution):
    """Every value from `low` to `high` alike; one value only if they are equal."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range("Uniform", self.low, self.high)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value."""
        return self.low, self.high

    @staticmethod
    def quantile(uniform: Tensor, numbers: Tensor) -> Tensor:
        """See the base class."""
        return uniform * (numbers[1] - numbers[0]) + numbers[0]

    def __repr__(self) -> str:
        return f"Uniform({self.low:g}, {self.high:g})"


@dataclass(frozen=True)
class LogUniform(Distribution):
    """Every ratio alike: as many values from 1 to 10 as from 10 to 100."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range("LogUniform", self.low, self.high)
        if self.low <= 0:
            raise UsageError(
                f"LogUniform's low must be above 0, got {self.low:g}; use Uniform for such a range"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value."""
        return self.low, self.high

    @staticmethod
    def quantile(uniform: Tensor, numbers: Tensor) -> Tensor:
        """See the base class."""
        return torch.exp(uniform * (numbers[1] / numbers[0]).log() + numbers[0].log())

    def __repr__(self) -> str:
        return f"LogUniform({self.low:g}, {self.high:g})"


@dataclass(frozen=True)
class Normal(Distribution):
    """The bell curve; its values have no bounds, so not every parameter takes it."""

    mean: float
    std: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and 0 <= self.std < math.inf):
            raise UsageError(
                f"Normal's mean must be finite and its std at least 0, got {self.mean:g} and {self.std:g}"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """There are none."""
        return -math.inf, math.inf

    @staticmethod
    def quantile(uniform: Tensor, numbers: Tensor) -> Tensor:
        """See the base class."""
        bell: Tensor = torch.special.ndtri(uniform)
        return bell * numbers[1] + numbers[0]

    def __repr__(self) -> str:
        return f"Normal({self.mean:g}, {self.std:g})"


@dataclass(frozen=True)
class Integers(Distribution):
    """Every whole number from `low` to `high` alike, both included."""

    low: int
    high: int
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_range("Integers", self.low, self.high)
        if self.low != int(self.low) or self.high != int(self.high):
            raise UsageError(f"Integers' bounds must be whole numbers, got {self.low:g} and {self.high:g}")
        if max(abs(self.low), abs(self.high)) > 1 << 24:
            raise UsageError(f"Integers' bounds must lie within ±2**24, got {self.low} and {self.high}")

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value."""
        return self.low, self.high

    @staticmethod
    def quantile(uniform: Tensor, numbers: Tensor) -> Tensor:
        """See the base class."""
        return torch.floor(uniform * (numbers[1] - numbers[0] + 1)) + numbers[0]

    def to_config(self) -> dict[str, list[float]]:
        """See the base class."""
        return {"integers": [int(self.low), int(self.high)]}

    def __repr__(self) -> str:
        return f"Integers({self.low:g}, {self.high:g})"


@dataclass(frozen=True, init=False)
class Choice(Distribution):
    """One of the given numbers, each alike; one that is given twice is twice as likely."""

    options: tuple[float, ...]

    def __init__(self, *options: float) -> None:
        if not options:
            raise UsageError("Choice must have at least one number to choose, got none")
        object.__setattr__(self, "options", tuple(options))

    @property
    def numbers(self) -> tuple[float, ...]:
        """The options."""
        return self.options

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest option."""
        return min(self.options), max(self.options)

    @staticmethod
    def quantile(uniform: Tensor, numbers: Tensor) -> Tensor:
        """See the base class."""
        return numbers.gather(0, torch.floor(uniform * numbers.shape[0]).to(torch.int64))

    def __repr__(self) -> str:
        return f"Choice({', '.join(f'{option:g}' for option in self.options)})"


_KINDS: dict[str, type[Distribution]] = {
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "normal": Normal,
    "integers": Integers,
    "choice": Choice,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}

Draw = Distribution | float | Sequence[float] | Mapping[str, Sequence[float]]


def distribution(
    value: Draw, name: str, *, number: str = "fixed", within: tuple[float, float] | None = None
) -> Distribution:
    """A distribution from what a user may write for one.

    Args:
        value: a distribution, a pair (low, high) for a uniform one, a number, or the config form.
        name: of the parameter, for errors.
        number: what a bare number n stands for: "fixed" always n, "symmetric" from -n to n, "up to" from 0.
        within: the range in which every value must lie.
    """
    made = _parsed(value, name, number)
    if within is not None:
        low, high = made.bounds
        if low < within[0] or high > within[1]:
            raise UsageError(f"{name} must lie from {within[0]:g} to {within[1]:g}, got {made!r}")
    return made


def _parsed(value: Draw, name: str, number: str) -> Distribution:
    if isinstance(value, Distribution):
        return value
    if isinstance(value, bool | str) or not isinstance(value, int | float | Mapping | Sequence):
        raise UsageError(
            f"{name} must be a number, a pair (low, high) or one of the distributions, got {value!r}"
        )
    if isinstance(value, int | float):
        return {
            "fixed": lambda: Uniform(value, value),
            "symmetric": lambda: Uniform(-abs(value), abs(value)),
            "up to": lambda: Uniform(min(0, value), max(0, value)),
        }[number]()
    if isinstance(value, Mapping):
        return _from_config(value, name)
    if len(value) != 2:
        raise UsageError(f"{name} as a pair must be (low, high), got {value!r}; use Choice(...) for a choice")
    return Uniform(*value)


def _from_config(value: Mapping[str, Sequence[float]], name: str) -> Distribution:
    kind, numbers = next(iter(value.items())) if len(value) == 1 else ("", ())
    if kind not in _KINDS or not isinstance(numbers, list | tuple):
        raise UsageError(
            f"{name} as a mapping must be one of {', '.join(_KINDS)} with its numbers, such as "
            f"{{'uniform': [0, 1]}}, got {dict(value)!r}"
        )
    if _KINDS[kind] is not Choice and len(numbers) != 2:
        raise UsageError(f"{name}: {kind} must have two numbers, got {list(numbers)!r}")
    return _KINDS[kind](*numbers)


def _check_range(kind: str, low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise UsageError(f"{kind}'s low must be at most its high and both finite, got {low:g} and {high:g}")
