"""Loops over single elements on the host, compiled by numba where it is installed (extra ``kernels``).

An operator of torch is a pass over memory, and a number of noise takes ten of them; a loop takes one. Each
loop here gives the very bits of the operators that it stands for, so whoever has numba and whoever has not
get the same samples; but for one whose drawn parameter is exactly the neutral one, which a loop leaves as it
is, where operators would add zeros (to inf, say). Measured by ``benchmarks/augmenting.py``.

A kernel is compiled when it is first called, for a second or so, and kept on disk for the processes to come.
It runs in the calling thread: two were slower here, as torch's own threads keep their cores busy for a
while after each operator.
"""

import functools
import importlib.util
import math
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ONE = 1 << 32  # of a place in fixed point
# an index without a sign needs no look whether it counts from the end
_NEXT, _32, _48, _HALF, _LOW = (np.uint64(number) for number in (1, 32, 48, 1 << 15, (1 << 16) - 1))


@functools.cache
def are_installed() -> bool:
    """Whether numba is there to compile them; its own NUMBA_DISABLE_JIT=1 says that it must not.

    Half a second the first time.
    """
    is_allowed = os.environ.get("NUMBA_DISABLE_JIT", "0") in {"", "0"}
    if not is_allowed or importlib.util.find_spec("numba") is None:
        return False
    try:
        from numba.core.compiler_lock import global_compiler_lock as compiling
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, we can do without
        warnings.warn(f"numba is installed but does not work, so it is not used: {error}", stacklevel=2)
        return False
    # a child that was forked while another thread compiles would wait for that for ever
    os.register_at_fork(
        before=compiling.acquire, after_in_parent=compiling.release, after_in_child=compiling.release
    )
    return True


def take(x: Tensor) -> bool:
    """Whether they take tensors of this dtype."""
    return x.dtype is not torch.float16  # which numba does not have


def rows_of(x: Tensor) -> NDArray[Any]:
    """X [B, T] or [B, C, T] on the host, as a kernel takes it: [B, C, T], itself if it is contiguous."""
    array = np.ascontiguousarray(x.numpy(force=True))
    return array.reshape(array.shape[0], math.prod(array.shape[1:-1]), array.shape[-1])


def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    """The function, compiled when it is first called."""

    @functools.cache
    def compiler() -> Callable[..., Any]:
        import numba

        try:
            return numba.njit(nogil=True, cache=True)(function)
        except RuntimeError:  # there is no place to keep it
            return numba.njit(nogil=True)(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> None:
        try:
            compiler()(*arguments)
        except OSError:  # it was compiled, but could not be kept
            compiler()(*arguments)

    return call


@_compiled
def add_normal(
    out: Any,
    x: Any,
    std: Any,
    keys: Any,
    stirred: Any,
    factors: Any,
    radius: Any,
    turn: Any,
    in_place: bool,  # noqa: FBT001
) -> None:
    """Normal numbers, as ``_noise`` explains them, times std and plus x; a row whose std is 0 stays as it is.

    Shape: out, x [B, C, n], in place if they are one; std [B]; keys int64 [B, C]; stirred int64 [P], P pairs
    for n; factors int64 [2]; radius float32 [65536]; turn float32 [65536, 2].
    """
    length, num_pairs = x.shape[2], len(stirred)
    first, second = factors[0], factors[1]
    bits = np.empty(num_pairs, np.uint64)
    for row in range(len(x)):
        scale = std[row]
        for channel in range(x.shape[1]):
            key = keys[row, channel]
            old, new = x[row, channel], out[row, channel]
            if scale == 0:
                if not in_place:
                    new[:] = old
                continue
            for pair in range(num_pairs):  # a loop of its own, which the processor does four at a time
                stirring = (stirred[pair] ^ key) * first
                bits[pair] = (stirring ^ (stirring >> 32)) * second
            for pair in range(length // 2):
                reach = radius[(bits[pair] >> _48) ^ _HALF]
                angle = (bits[pair] >> _32) & _LOW
                new[2 * pair] = old[2 * pair] + turn[angle, 0] * reach * scale
                new[2 * pair + 1] = old[2 * pair + 1] + turn[angle, 1] * reach * scale
            if length % 2:
                last = bits[num_pairs - 1]
                number = turn[(last >> _32) & _LOW, 0] * radius[(last >> _48) ^ _HALF]
                new[length - 1] = old[length - 1] + number * scale


@_compiled
def resample(out: Any, x: Any, first: Any, step: Any, scale: Any, in_place: bool) -> None:  # noqa: FBT001
    """Each row read at first + t · step, linearly; it is 0 beyond its ends.

    Shape: out, x [B, C, T], in place if they are one; first, step int64 [B] in fixed point, step > 0;
    scale: 2⁻³² of the same dtype.
    """
    length = x.shape[2]
    source = np.zeros(length + 3, x.dtype)  # from one sample before the row to two after it
    before, share = np.empty(length, np.uint64), np.empty(length, x.dtype)
    for row in range(len(x)):
        start, by = first[row], step[row]
        is_same = start == 0 and by == _ONE
        for t in range(0 if is_same else length):
            place = min(max(start + t * by, -_ONE), length * _ONE)
            before[t] = (place >> 32) + 1
            share[t] = np.uint32(place & (_ONE - 1))
            share[t] *= scale
        for channel in range(x.shape[1]):
            old, new = x[row, channel], out[row, channel]
            if is_same:
                if not in_place:
                    new[:] = old
                continue
            for t in range(length):
                source[t + 1] = old[t]
            for t in range(length):
                left = source[before[t]]
                new[t] = left + (source[before[t] + _NEXT] - left) * share[t]


@_compiled
def pick(out: Any, x: Any, first: Any, step: Any, fill: Any, in_place: bool) -> None:  # noqa: FBT001
    """As ``resample``, of any dtype, by the nearest sample; it is ``fill`` beyond its ends."""
    length = x.shape[2]
    source = np.empty(length, x.dtype)
    for row in range(len(x)):
        start, by = first[row] + (_ONE >> 1), step[row]
        is_same = first[row] == 0 and by == _ONE
        for channel in range(x.shape[1]):
            old, new = x[row, channel], out[row, channel]
            if is_same:
                if not in_place:
                    new[:] = old
                continue
            for t in range(length):
                source[t] = old[t]
            for t in range(length):
                place = (start + t * by) >> 32
                new[t] = source[place] if 0 <= place < length else fill


@_compiled
def shift(out: Any, x: Any, steps: Any, fill: Any, circular: bool, in_place: bool) -> None:  # noqa: FBT001
    """Each row moved to the right, of any dtype; what comes in is what left, or ``fill``.

    Shape: out, x [B, C, T], in place if they are one; steps int64 [B], at most T unless circular.
    """
    length = x.shape[2]
    source = np.empty(length, x.dtype)
    for row in range(len(x)):
        by = steps[row] % length if circular else steps[row]
        if by == 0 and in_place:
            continue
        for channel in range(x.shape[1]):
            old, new = x[row, channel], out[row, channel]
            for t in range(length):
                source[t] = old[t]
            moved, stays = new[max(by, 0) : length + min(by, 0)], source[max(-by, 0) :]
            for t in range(len(moved)):
                moved[t] = stays[t]
            if circular:
                again, left = new[:by], source[length - by :]
                for t in range(by):
                    again[t] = left[t]
            else:
                new[: max(by, 0)] = fill
                new[length + min(by, 0) :] = fill


@_compiled
def clear(x: Any, first: Any, length: Any) -> None:
    """Set stretches of each row to zero: x [B, C, T]; first, length [B, n], whole numbers."""
    for row in range(len(x)):
        for number in range(first.shape[1]):
            start, count = int(first[row, number]), int(length[row, number])
            x[row, :, start : start + count] = 0
