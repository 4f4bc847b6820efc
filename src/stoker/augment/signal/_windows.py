"""Reading signals from another place in each sample: shifts and crops."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from stoker.augment._distributions import Draw, Uniform, distribution
from stoker.augment._draws import Params
from stoker.augment._operations import Operation, rolled, shifted
from stoker.augment._registry import register
from stoker.augment._transform import Role, Transform
from stoker.augment.signal._units import Numbers, Unit, check_unit, in_samples, within
from stoker.errors import UsageError


@register("signal")
class TimeShift(Transform):
    """Move signals in time; a positive shift moves them later. Masks [B, T] or [B, C, T] move along.

    Args:
        shift: a number n for -n to n, a pair or a distribution; rounded to whole samples.
        unit: "fraction" of the length, or "samples".
        circular: what leaves at one end comes in at the other; else zeros come in (`ignore` in masks).
        ignore: what masks get where there was nothing.
        p: probability that a sample is changed.
    """

    roles = ("signal", "mask")
    neutral: ClassVar = {"shift": 0.0}
    every_row = True
    writes = True
    loops = True

    def __init__(
        self,
        shift: Draw = 0.1,
        *,
        unit: Unit = "fraction",
        circular: bool = True,
        ignore: int = 255,
        p: float = 1.0,
    ) -> None:
        self.shift = distribution(shift, "shift", number="symmetric")
        super().__init__(p=p, draws={"shift": self.shift})
        self.unit = check_unit(unit)
        self.circular = circular
        self.ignore = ignore

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:
        """See the base class."""
        length = x.shape[-1]
        shift, most = self._shift(params["shift"], length)
        if self.circular and most == length:
            return windows_at(torch.cat([x, x], -1), torch.remainder(-shift, length), length)
        if self.circular:
            padded = torch.cat([x[..., length - most :], x, x[..., :most]], -1)
        else:
            padded = F.pad(x, (most, most), value=self._fill(role))
        return windows_at(padded, most - shift, length)

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:
        """See the base class; two copies a row."""
        length = x.shape[-1]
        shift, _ = self._shift(params.on_host("shift"), length)
        source, target = x.numpy(force=True), out.numpy()
        for new, old, steps in zip(target, source, shift.tolist(), strict=True):
            if steps == 0 and out is x:
                continue
            row = old.copy() if out is x else old
            if self.circular:
                first = steps % length
                new[..., first:] = row[..., : length - first]
                new[..., :first] = row[..., length - first :]
            elif steps < 0:
                new[..., :steps] = row[..., -steps:]
                new[..., steps:] = self._fill(role)
            else:
                new[..., steps:] = row[..., : length - steps]
                new[..., :steps] = self._fill(role)

    def operations(self, x: Tensor, params: Params, role: Role) -> Sequence[Operation]:
        """See the base class."""
        shift, _ = self._shift(params.on_host("shift"), x.shape[-1])
        return [rolled(shift % x.shape[-1]) if self.circular else shifted(shift, self._fill(role))]

    def _shift(self, drawn: Numbers, length: int) -> tuple[Numbers, int]:
        """Steps to the right, int64 [B], and the most that there can be; all within it but whole turns."""
        shift = in_samples(drawn, self.unit, length)
        most = _most(self.shift.bounds, self.unit, length)
        return shift if self.circular and most == length else within(shift, most), most

    def _fill(self, role: Role) -> int:
        return self.ignore if role == "mask" else 0


@register("signal")
class Crop(Transform):
    """Cut a part of `length` samples out of each signal; every start is alike, the last one too.

    Masks [B, T] or [B, C, T] are cut at the same place. Adds the field NAME_start, int64 [B], if asked.

    Args:
        length: samples to keep; signals must have as many.
        return_start: say where the part began.
    """

    roles = ("signal", "mask")
    keeps_shape = False
    writes = True

    def __init__(self, length: int, *, return_start: bool = False) -> None:
        super().__init__(draws={"start": Uniform(0, 1)})
        if length < 1:
            raise UsageError(f"length must be at least 1 sample, got {length}")
        self.length = length
        self.return_start = return_start

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        return windows_at(x, self._start(x, params), self.length)

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:  # noqa: ARG002
        """See the base class."""
        source, target = x.numpy(force=True), out.numpy()
        for row, first in enumerate(self._start(x, params).tolist()):
            target[row] = source[row, ..., first : first + self.length]

    def written_shape(self, x: Tensor) -> tuple[int, ...]:
        """See the base class."""
        return (*x.shape[:-1], self.length)

    def extras(self, fields: Mapping[str, Tensor], params: Params) -> dict[str, Tensor]:
        """The start, if asked for."""
        if not self.return_start:
            return {}
        return {f"{name}_start": self._start(x, params) for name, x in fields.items()}

    def _start(self, x: Tensor, params: Params) -> Tensor:
        num_starts = x.shape[-1] - self.length + 1
        if num_starts < 1:
            raise UsageError(
                f"Crop must get signals of at least {self.length} samples, got {x.shape[-1]}; pad them first"
            )
        return (params["start"] * num_starts).to(torch.int64).clamp(max=num_starts - 1)


def windows_at(x: Tensor, start: Tensor, length: int) -> Tensor:
    """A window of each row: x[b, ..., start[b] : start[b] + length].

    Shape: x [B, S] or [B, C, S]; start int64 [B].
    """
    place = start[:, None] + torch.arange(length, device=x.device)
    if x.ndim == 3:
        place = place[:, None].expand(-1, x.shape[1], -1)
    return x.gather(-1, place)


def _most(bounds: tuple[float, float], unit: Unit, length: int) -> int:
    """The largest shift that these bounds allow, in samples, at most the length."""
    most = max(abs(bounds[0]), abs(bounds[1])) * (length if unit == "fraction" else 1)
    return length if most >= length else int(most) + 1
