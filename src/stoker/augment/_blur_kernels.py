"""Loops that blur images and volumes; as `_kernels`, to be imported only where numba is.

They find a line and its neighbours in the smallest cache, where torch's operators take several passes for
every tap, and give the very bits of these: nothing here may be contracted or put in another order.
"""

from typing import Any

import numpy as np

from stoker.config import kernel


@kernel
def blur_along(out: Any, x: Any, taps: Any, reach: Any) -> None:
    """Blur along the third axis of four; beyond an edge its last element is repeated.

    Shape: out, x [R, A, N, I], floating, apart from each other; taps [R, n], of their dtype: the middle of
    each row's kernel and what follows on one side; reach int64 [R]: how many of these are not zero.
    """
    num_rows, num_sheets, length, inner = x.shape
    for row in range(num_rows):
        weights = taps[row]
        for sheet in range(num_sheets):
            lines = x[row, sheet]
            for n in range(length):
                to, middle = out[row, sheet, n], lines[n]
                for i in range(inner):
                    to[i] = middle[i] * weights[0]
                for tap in range(1, reach[row]):
                    left, right = lines[max(n - tap, 0)], lines[min(n + tap, length - 1)]
                    weight = weights[tap]
                    for i in range(inner):
                        to[i] += (left[i] + right[i]) * weight


@kernel
def blur_lines(out: Any, x: Any, taps: Any, reach: Any) -> None:
    """The same along the last axis of three, [R, A, N]."""
    num_rows, num_lines, length = x.shape
    padded = np.empty(length + 2 * taps.shape[1], x.dtype)
    for row in range(num_rows):
        weights, radius = taps[row], reach[row] - 1
        middle, ends = padded[radius : radius + length], padded[radius + length :]
        for number in range(num_lines):
            line, to = x[row, number], out[row, number]
            padded[:radius] = line[0]
            ends[:radius] = line[length - 1]
            for n in range(length):
                middle[n] = line[n]
                to[n] = line[n] * weights[0]
            for tap in range(1, radius + 1):
                left, right, weight = padded[radius - tap :], padded[radius + tap :], weights[tap]
                for n in range(length):
                    to[n] += (left[n] + right[n]) * weight
