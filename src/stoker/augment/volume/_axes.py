"""The three axes of a volume: what is drawn for each of them, and the layouts of fields."""

from collections.abc import Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor

from stoker.augment._distributions import Distribution, Draw, distribution
from stoker.augment._draws import Params
from stoker.augment._transform import Role
from stoker.errors import UsageError

Word = TypeVar("Word", bound=str)

AXES = ("depth", "height", "width")

AxisDraw = Draw | Sequence[Draw]  # one for all axes, or one for each
AxisDistribution = Distribution | tuple[Distribution, ...]


def per_axis(
    value: AxisDraw, name: str, *, number: str = "fixed", within: tuple[float, float] | None = None
) -> AxisDistribution:
    """What a user wrote for three axes: three of what `distribution` takes, or one."""
    if isinstance(value, list | tuple) and len(value) == 3:
        draws = cast("Sequence[Draw]", value)
        return tuple(
            distribution(each, f"{name} ({axis})", number=number, within=within)
            for each, axis in zip(draws, AXES, strict=True)
        )
    return distribution(cast("Draw", value), name, number=number, within=within)


def declared(
    name: str, made: AxisDistribution, *, together: bool
) -> dict[str, Distribution | tuple[Distribution, int]]:
    """The draws for it; `together`: a single distribution is drawn from once for all axes."""
    if isinstance(made, tuple):
        return {f"{name}_{axis}": each for axis, each in zip(AXES, made, strict=True)}
    return {name: made if together else (made, 3)}


def neutral_axes(**values: float) -> dict[str, float]:
    """Neutral values under every name that `declared` may give them."""
    names = {f"{name}_{axis}": value for name, value in values.items() for axis in AXES}
    return {**values, **names}


def drawn(params: Params, name: str, made: AxisDistribution) -> list[Tensor]:
    """What was drawn for depth, height and width: float64 [B] each."""
    if isinstance(made, tuple):
        return [params[f"{name}_{axis}"].double() for axis in AXES]
    found = params[name].double()
    return [found] * 3 if found.ndim == 1 else list(found.unbind(1))


def check_layout(x: Tensor, role: Role) -> Tensor:
    """The field, if it has the axes that its role says."""
    if x.ndim not in ((4, 5) if role == "mask" else (5,)):
        layout = "[B, D, H, W] or [B, C, D, H, W]" if role == "mask" else "[B, C, D, H, W]"
        raise UsageError(f"a {role} of volumes must be {layout}, got shape {list(x.shape)}; reshape it")
    return x


def check_one_of(name: str, value: Word, words: tuple[str, ...]) -> Word:
    """The value, if it is one of these words."""
    if value not in words:
        raise UsageError(f"{name} must be one of {', '.join(map(repr, words))}, got {value!r}")
    return value


def as_float(x: Tensor) -> Tensor:
    """The volume, in float32 if it is of whole numbers."""
    return x if x.is_floating_point() else x.to(torch.float32)
