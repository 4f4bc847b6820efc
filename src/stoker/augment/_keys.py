"""Random bits as a function of numbers: the same from numpy on the host and from torch on any device.

Everything is SplitMix64's finaliser on signed 64-bit integers, which wrap alike in numpy and in
torch. ``>>`` keeps the sign there, so the bits that it brings in are masked away.
"""

import functools
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Integers64 = NDArray[np.int64]
Bits = TypeVar("Bits", Integers64, Tensor)

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)
_ALL_BITS = (1 << 64) - 1
_NUM_BITS = 52  # so that (bits + 0.5) / 2**52 is exact, and neither 0 nor 1


def mix(bits: Bits) -> Bits:
    """64 well-stirred bits of each number; a bijection."""
    bits = (bits ^ ((bits >> 30) & 0x3FFFFFFFF)) * _FIRST
    bits = (bits ^ ((bits >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return bits ^ ((bits >> 31) & 0x1FFFFFFFF)


def host_keys(parts: tuple[int, ...], index: Integers64) -> Integers64:
    """One key a sample, from numbers that all samples share and the sample's own: int64 [B]."""
    return mix(_shared_key(parts) + index)


@functools.lru_cache(maxsize=256)
def _shared_key(parts: tuple[int, ...]) -> Integers64:
    key = 0
    for part in parts:
        key = _mixed(signed(key + _GOLDEN + part))
    return np.array([signed(key + _GOLDEN)], np.int64)


def _mixed(number: int) -> int:
    """`mix` of a single signed number, for which Python is quicker than numpy."""
    for shift, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
        number = signed((number ^ ((number & _ALL_BITS) >> shift)) * factor)
    return number


def device_keys(parts: tuple[int | Tensor, ...], index: Tensor) -> Tensor:
    """The same keys, made on the device of `index` without asking it anything."""
    key = torch.zeros(1, dtype=torch.int64, device=index.device)
    for part in parts:
        number = part if isinstance(part, Tensor) else signed(part)
        key = mix(key + _GOLDEN + number)
    return mix(key + _GOLDEN + index.to(torch.int64))


def column_key(*parts: int) -> int:
    """What is added to a sample's key to get another stream of it, such as one draw of one transform."""
    return int(host_keys(parts[:-1], np.array([parts[-1]], np.int64))[0])


def signed(number: int) -> int:
    """The signed 64-bit integer with the same low 64 bits."""
    number &= _ALL_BITS
    return number - (1 << 64) if number >> 63 else number


def uniforms(bits: Tensor) -> Tensor:
    """Float64 in the open interval (0, 1), exact on every device."""
    return (((bits >> (64 - _NUM_BITS)) & ((1 << _NUM_BITS) - 1)).to(torch.float64) + 0.5) * 2.0**-_NUM_BITS


def host_uniforms(bits: Integers64) -> NDArray[np.float64]:
    """The same of numpy's bits, whose shift can be told not to keep the sign."""
    return ((bits.view(np.uint64) >> (64 - _NUM_BITS)).astype(np.float64) + 0.5) * 2.0**-_NUM_BITS
