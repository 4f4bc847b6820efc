"""The loop over single elements that `_operations` describes; needs numba, so import it only where that is.

A sample goes through all operations in a row while it stays in the processor's caches. Each gives the very
bits of torch's operators that it stands for, so whoever has numba and whoever has not get the same samples;
but for one whose drawn parameter is exactly the neutral one, which a loop leaves as it is, where operators
would add zeros (to inf, say). Nothing here may be contracted or put in another order: no fastmath.
"""

from typing import Any

import numpy as np

from stoker.config import kernel
from stoker.config import kernel_part as _part

# the numbers are here, as what is compiled with them is kept for as long as this file does not change
SHIFT, ROLL, RESAMPLE, SCALE, NOISE, CLEAR = range(6)
KINDS = {
    "shift": SHIFT,
    "roll": ROLL,
    "resample": RESAMPLE,
    "scale": SCALE,
    "noise": NOISE,
    "clear": CLEAR,
}

_ONE = 1 << 32  # of a place in fixed point
# an index without a sign needs no look whether it counts from the end
_NEXT = np.uint32(1)
_32, _48, _HALF, _LOW = (np.uint64(number) for number in (32, 48, 1 << 15, (1 << 16) - 1))

_NUM_PAIRS = 512  # of noise, made together: they stay in the smallest cache
_FIFTY_TWO_BITS = (1 << 52) - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64)  # of `_mix`


@_part
def _copy(new: Any, old: Any) -> None:
    for channel in range(len(old)):
        to, what = new[channel], old[channel]
        for t in range(len(what)):
            to[t] = what[t]


@_part
def _shift(new: Any, old: Any, steps: int, fill: Any, spare: Any) -> None:
    """Move to the right by so many steps, no more than there are; what comes in is `fill`."""
    length = len(old)
    for t in range(length):
        spare[t] = old[t]
    moved, stays = new[max(steps, 0) : length + min(steps, 0)], spare[max(-steps, 0) :]
    for t in range(len(moved)):
        moved[t] = stays[t]
    new[: max(steps, 0)] = fill
    new[length + min(steps, 0) :] = fill


@_part
def _roll(new: Any, old: Any, steps: int, spare: Any) -> None:
    """Move to the right by 0 to T steps; what comes in is what left."""
    length = len(old)
    for t in range(length):
        spare[t] = old[t]
    moved, again, left = new[steps:], new[:steps], spare[length - steps :]
    for t in range(len(moved)):
        moved[t] = spare[t]
    for t in range(len(again)):
        again[t] = left[t]


@_part
def _find_places(before: Any, share: Any, first: int, step: int, scale: Any) -> None:
    """Where first + t · step lies: after which sample, counted from one before the first, and how far."""
    length = len(before)
    for t in range(length):
        place = np.uint64(min(max(first + t * step, -_ONE), length * _ONE) + _ONE)
        before[t] = place >> _32
        share[t] = share.dtype.type(np.uint32(place)) * scale


@_part
def _interpolate(new: Any, old: Any, before: Any, share: Any, spare: Any) -> None:
    """Read between the samples; there are zeros beyond the ends, which `spare` has at its own."""
    for t in range(len(old)):
        spare[t + 1] = old[t]
    for t in range(len(new)):
        left = spare[before[t]]
        new[t] = left + (spare[before[t] + _NEXT] - left) * share[t]


@_part
def _pick(new: Any, old: Any, first: int, step: int, fill: Any, spare: Any) -> None:
    """Read the nearest samples at first + t · step; there is `fill` beyond the ends."""
    length = len(old)
    for t in range(length):
        spare[t] = old[t]
    for t in range(length):
        place = (first + (_ONE >> 1) + t * step) >> 32
        new[t] = spare[place] if 0 <= place < length else fill


@_part
def _scale(new: Any, factor: Any) -> None:
    for channel in range(len(new)):
        row = new[channel]
        for t in range(len(row)):
            row[t] *= factor


@_part
def _mix(bits: int) -> int:
    """As in ``_keys``."""
    bits = (bits ^ ((bits >> 30) & 0x3FFFFFFFF)) * _FIRST
    bits = (bits ^ ((bits >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return bits ^ ((bits >> 31) & 0x1FFFFFFFF)


@_part
def _add_noise(new: Any, old: Any, std: Any, key: int, tables: Any, bits: Any) -> None:
    """Add normal numbers, as ``_noise`` explains them, times std."""
    stirred, factors, radius, turn = tables
    length = len(old)
    for start in range(0, len(stirred), len(bits)):
        some = stirred[start : start + len(bits)]
        for pair in range(len(some)):  # a loop of its own, which the processor does four at a time
            stirring = (some[pair] ^ key) * factors[0]
            bits[pair] = (stirring ^ (stirring >> 32)) * factors[1]
        to, what = new[2 * start :], old[2 * start :]
        for pair in range(min(len(some), len(to) // 2)):
            reach = radius[(bits[pair] >> _48) ^ _HALF]
            angle = (bits[pair] >> _32) & _LOW
            to[2 * pair] = what[2 * pair] + turn[angle, 0] * reach * std
            to[2 * pair + 1] = what[2 * pair + 1] + turn[angle, 1] * reach * std
    if length % 2:
        last = bits[(len(stirred) - 1) % len(bits)]
        number = turn[(last >> _32) & _LOW, 0] * radius[(last >> _48) ^ _HALF]
        new[length - 1] = old[length - 1] + number * std


@kernel
def change_signals(
    out: Any, x: Any, kinds: Any, first: Any, second: Any, values: Any, channels: Any, tables: Any, scale: Any
) -> None:
    """Operations on each row of floating numbers, one after the other; those that are neutral cost nothing.

    Shape: out, x [B, C, T], which may be one; kinds [n]; first, second int64 and values, of the dtype of x,
    [n, B]; channels int64 [C] and tables: of ``_noise``; scale: 2⁻³², of the dtype of x.
    """
    num_samples, num_channels, length = x.shape
    spare = np.zeros(length + 3, x.dtype)  # from one sample before the row to two after it
    inner = spare[1:]
    before, share = np.empty(length, np.uint32), np.empty(length, x.dtype)
    bits = np.empty(_NUM_PAIRS, np.uint64)
    in_place = x.ctypes.data == out.ctypes.data
    for row in range(num_samples):
        old, new, is_there = x[row], out[row], in_place
        for number in range(len(kinds)):
            kind, value = kinds[number], values[number, row]
            one, other = first[number, row], second[number, row]
            if kind == SHIFT and one != 0:
                for channel in range(num_channels):
                    _shift(new[channel], old[channel], one, value, inner)
            elif kind == ROLL and one != 0:
                for channel in range(num_channels):
                    _roll(new[channel], old[channel], one, inner)
            elif kind == RESAMPLE and (one != 0 or other != _ONE):
                _find_places(before, share, one, other, scale)
                for channel in range(num_channels):
                    _interpolate(new[channel], old[channel], before, share, spare)
            elif kind == SCALE and value != 1:
                if not is_there:
                    _copy(new, old)
                _scale(new, value)
            elif kind == NOISE and value != 0:
                for channel in range(num_channels):
                    key = _mix(one + channels[channel])
                    _add_noise(new[channel], old[channel], value, key, tables, bits)
            elif kind == CLEAR and other != 0:
                if not is_there:
                    _copy(new, old)
                new[:, one : one + other] = 0
            else:
                continue
            old, is_there = new, True
        if not is_there:
            _copy(new, old)


@kernel
def change_masks(out: Any, x: Any, kinds: Any, first: Any, second: Any, values: Any) -> None:
    """As `change_signals`, of any dtype: what is moved, and by the nearest sample.

    Shape: out, x [B, C, T], which may be one; kinds [n]; first, second int64 and values, of the dtype of x,
    [n, B].
    """
    spare = np.empty(x.shape[2], x.dtype)
    in_place = x.ctypes.data == out.ctypes.data
    for row in range(len(x)):
        old, new, is_there = x[row], out[row], in_place
        for number in range(len(kinds)):
            kind, fill = kinds[number], values[number, row]
            one, other = first[number, row], second[number, row]
            if kind == SHIFT and one != 0:
                for channel in range(len(old)):
                    _shift(new[channel], old[channel], one, fill, spare)
            elif kind == ROLL and one != 0:
                for channel in range(len(old)):
                    _roll(new[channel], old[channel], one, spare)
            elif kind == RESAMPLE and (one != 0 or other != _ONE):
                for channel in range(len(old)):
                    _pick(new[channel], old[channel], one, other, fill, spare)
            else:
                continue
            old, is_there = new, True
        if not is_there:
            _copy(new, old)


@kernel
def draw(
    keys: Any,
    streams: Any,
    probabilities: Any,
    owner: Any,
    low: Any,
    spread: Any,
    neutral: Any,
    chosen: Any,
    values: Any,
    others: Any,
) -> None:
    """Draw from uniform distributions, as ``_layout`` has it.

    Shape: keys int64 [B]; streams int64 [P + K + others]; probabilities [P]; owner int64, low, spread and
    neutral (NaN for none) float64 [K]; what is written: chosen bool [B, P], values float32 [B, K],
    others int64 [B, M + N].
    """
    num_transforms, num_values = len(probabilities), len(owner)
    for row in range(len(keys)):
        for column in range(len(streams)):
            bits = _mix(keys[row] + streams[column])
            if column >= num_transforms + num_values:
                others[row, column - num_transforms - num_values] = bits
                continue
            uniform = (np.float64((bits >> 12) & _FIFTY_TWO_BITS) + 0.5) * 2.0**-52
            if column < num_transforms:
                chosen[row, column] = uniform < probabilities[column]
                continue
            number = column - num_transforms
            is_drawn = chosen[row, owner[number]] or np.isnan(neutral[number])
            drawn = uniform * spread[number] + low[number]
            values[row, number] = np.float32(drawn if is_drawn else neutral[number])


@kernel
def clear(x: Any, first: Any, length: Any) -> None:
    """Set stretches of each row to zero: x [B, C, T], of any dtype; first, length whole numbers [B, n]."""
    for row in range(len(x)):
        for number in range(first.shape[1]):
            start, count = int(first[row, number]), int(length[row, number])
            x[row, :, start : start + count] = 0
