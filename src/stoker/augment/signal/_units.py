"""Lengths of time as users give them, and statistics of rows whose bits do not depend on the batch."""

import math
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stoker.errors import UsageError

Unit = Literal["fraction", "samples"]
Numbers = TypeVar("Numbers", Tensor, NDArray[Any])  # of each sample, as tensors or, on the host, as arrays


def check_unit(unit: Unit) -> Unit:
    """The unit, if it is one."""
    if unit not in get_args(Unit):
        raise UsageError(f"unit must be 'fraction' or 'samples', got {unit!r}")
    return unit


def in_samples(values: Numbers, unit: Unit, length: int) -> Numbers:
    """Rounded to whole samples, int64."""
    values = values * length if unit == "fraction" else values
    if isinstance(values, Tensor):
        return torch.round(values).to(torch.int64)
    rounded: NDArray[Any] = np.rint(values)
    return rounded.astype(np.int64)


def within(values: Numbers, most: int) -> Numbers:
    """From -most to most; on the host in a fraction of the time of numpy's own clip."""
    if isinstance(values, Tensor):
        return values.clamp(-most, most)
    limited: NDArray[Any] = np.minimum(np.maximum(values, -most), most)
    return limited


def row_mean(x: Tensor) -> Tensor:
    """The mean of each row of x [R, n], as [R, 1].

    A single row would be summed in parts by several threads, and then have other bits than the
    same row among others; so it is given company.
    """
    if x.shape[0] == 1 and not torch.compiler.is_compiling():
        return x.expand(2, -1).mean(1, keepdim=True)[:1]
    return x.contiguous().mean(1, keepdim=True)


def root_mean_square(x: Tensor) -> Tensor:
    """The root mean square of each sample of x [B, C, T], as [B]; its gradient at silence is 0."""
    rows = x.flatten(1).contiguous()
    if x.shape[0] == 1 and not torch.compiler.is_compiling():
        rows = rows.expand(2, -1)  # see row_mean
    norm: Tensor = torch.linalg.vector_norm(rows, dim=1)[: x.shape[0]]
    return norm / math.sqrt(rows.shape[1])
