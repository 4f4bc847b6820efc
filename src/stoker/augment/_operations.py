"""What a transform does to each sample on the host, as operations that one compiled loop goes through.

An operator of torch is a pass over memory, and a number of noise takes ten of them. The loop (`_kernels`,
compiled by numba where it is installed: extra ``kernels``) takes each sample through the operations of
several transforms while it stays in the caches. Measured by ``benchmarks/augmenting.py``.

It is compiled when it is first called, for some seconds, and kept on disk for the processes to come.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stoker.augment._noise import channel_keys, noise_tables
from stoker.config import call_kernel, can_compile

Kind = Literal["shift", "roll", "resample", "scale", "noise", "clear"]
Array = NDArray[Any]


class Operation(NamedTuple):
    """One operation, with its numbers for each sample: [B], or one for all.

    | kind | first | second | value |
    |---|---|---|---|
    | shift | steps | | what comes in |
    | roll | steps | | |
    | resample | first place | step | what is beyond the ends of a mask |
    | scale | | | factor |
    | noise | key | | standard deviation |
    | clear | first place | length | |
    """

    kind: Kind
    first: Array | None = None
    second: Array | None = None
    value: Array | float | None = None


def shifted(steps: Array, fill: float) -> Operation:
    """Move to the right by so many steps, at most T; what comes in is `fill`."""
    return Operation("shift", steps, value=fill)


def rolled(steps: Array) -> Operation:
    """Move to the right by 0 to T steps; what comes in is what left."""
    return Operation("roll", steps)


def resampled(first: Array, step: Array, fill: float) -> Operation:
    """Read at first + t · step, in 32.32 fixed point, step > 0.

    Signals linearly, with zeros beyond their ends; masks by the nearest sample, with `fill` there.
    """
    return Operation("resample", first, step, fill)


def scaled(factor: Array) -> Operation:
    """Multiply by a factor."""
    return Operation("scale", value=factor)


def noisy(std: Array, keys: Array) -> Operation:
    """Add normal noise of that standard deviation, made from these keys."""
    return Operation("noise", keys, value=std)


def cleared(first: Array, length: Array) -> list[Operation]:
    """Set n stretches to zero: whole numbers [B, n]."""
    return [Operation("clear", one, other) for one, other in zip(first.T, length.T, strict=True)]


def are_compiled() -> bool:
    """Whether numba is there to compile the loop. Half a second the first time."""
    return can_compile()


def takes(x: Tensor) -> bool:
    """Whether the loop takes such tensors."""
    return x.dtype is not torch.float16 and x.ndim > 1 and x.numel() > 0  # numba does not have float16


def apply(out: Tensor, x: Tensor, operations: Sequence[Operation], *, is_mask: bool) -> None:
    """Take each sample of x through the operations, into `out`: contiguous, of its shape, or x itself."""
    from stoker.augment import _kernels

    old = _rows_of(x, is_mask=is_mask)
    new = old if out is x else _rows_of(out, is_mask=is_mask)
    shape = (len(operations), len(new))
    first, second, values = np.zeros(shape, int), np.zeros(shape, int), np.zeros(shape, new.dtype)
    for number, (_, one, other, value) in enumerate(operations):
        for array, here in ((first, one), (second, other), (values, value)):
            if here is not None:
                array[number] = here
    kinds = np.array([_kernels.KINDS[operation.kind] for operation in operations])
    if is_mask:
        call_kernel(_kernels.change_masks, new, old, kinds, first, second, values)
        return
    has_noise = any(operation.kind == "noise" for operation in operations)
    call_kernel(
        _kernels.change_signals,
        new,
        old,
        kinds,
        first,
        second,
        values,
        channel_keys(old.shape[1]),
        noise_tables(old.shape[2] if has_noise else 0),
        new.dtype.type(2.0**-32),
    )


def draw(keys: Array, tables: tuple[Array, ...], chosen: Array, values: Array, others: Array) -> None:
    """Draw from uniform distributions by a loop: see ``_kernels.draw``."""
    from stoker.augment import _kernels

    call_kernel(_kernels.draw, keys, *tables, chosen, values, others)


def clear(x: Tensor, first: Array, length: Array) -> None:
    """Set stretches of x [B, C, T], which is contiguous, to zero: whole numbers [B, n]."""
    if not are_compiled():
        for row, starts, lengths in zip(x.numpy(), first.tolist(), length.tolist(), strict=True):
            for begin, count in zip(starts, lengths, strict=True):
                if count:
                    row[..., int(begin) : int(begin + count)] = 0
        return
    from stoker.augment import _kernels

    call_kernel(_kernels.clear, x.numpy(), first, length)


def blur(x: Tensor, taps: Tensor, axis: int) -> Tensor:
    """Blur x [R, ...] along an axis by taps [R, n], as ``_blur`` has them: compiled."""
    from stoker.augment import _blur_kernels

    old, weights = np.ascontiguousarray(x.numpy()), np.ascontiguousarray(taps.numpy())
    out = torch.empty(x.shape, dtype=x.dtype)
    before, after = math.prod(x.shape[1:axis]), math.prod(x.shape[axis + 1 :])
    shape = (len(old), before, x.shape[axis], after)[: 3 if after == 1 else 4]
    loop = _blur_kernels.blur_lines if after == 1 else _blur_kernels.blur_along
    reach = (weights != 0).sum(1)
    call_kernel(loop, out.numpy().reshape(shape), old.reshape(shape), weights, np.maximum(reach, 1))
    return out


def _rows_of(x: Tensor, *, is_mask: bool) -> Array:
    """X as the loop takes it, [B, C, T]; itself if it is contiguous.

    A mask moves along its last axis, whatever is before; noise does not care for an image's axes.
    """
    array = np.ascontiguousarray(x.numpy(force=True))
    last = array.ndim - 1 if is_mask else min(2, array.ndim - 1)
    return array.reshape(len(array), math.prod(array.shape[1:last]), math.prod(array.shape[last:]))
