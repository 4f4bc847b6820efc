"""Lengths and edges for work in the frequency domain."""

import torch
from torch import Tensor

_PRIMES = (2, 3, 5)


def fast_length(least: int) -> int:
    """The next length with no prime factor above 5 that is a multiple of 16, so that rows are aligned."""
    length = -(-max(least, 16) // 16) * 16
    while not _is_smooth(length):
        length += 16
    return length


def extension(length: int, edge: float) -> int:
    """Samples by which to continue a signal, so that a filter with such edges does not wrap around.

    Its response dies away within a few times 1/edge samples. At most the signal's own length less one.
    """
    return min(length - 1, int(4 / edge))


def extended(x: Tensor, pad: int) -> Tensor:
    """X [..., T] continued by `pad` samples at both ends, turned about its end points (odd extension)."""
    if pad == 0:
        return x
    left = 2 * x[..., :1] - x[..., 1 : pad + 1].flip(-1)
    right = 2 * x[..., -1:] - x[..., -pad - 1 : -1].flip(-1)
    return torch.cat([left, x, right], -1)


def _is_smooth(number: int) -> bool:
    for prime in _PRIMES:
        while number % prime == 0:
            number //= prime
    return number == 1
