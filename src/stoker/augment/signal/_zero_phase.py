"""Butterworth filters forwards and backwards, equal to `scipy.signal.sosfiltfilt`, by Fourier transforms.

scipy continues the signal at both ends (odd extension, by 3 samples for each tap), starts the filter
in the state that a constant input of the first value x₀ would have left, filters, turns the result
round, does the same again and cuts the ends off. The state zi·x₀ is the answer to that constant, so
filtering from it is the same as filtering x - x₀ from rest and adding H(0)·x₀. And filtering from
rest is a product of spectra, if the transform is long enough for the response to die away before it
wraps: r^(n - L) < ε for the largest pole radius r. Hence, twice:

    e ← irfft(rfft(e - e₀, n) · H, n)[:L] + H(0)·e₀, turned round.

|H|² in one go would be wrong by 0.3 to 1.9 standard deviations at the ends, since it knows no initial state.

H needs no design on the host. A Butterworth filter is 1/D(s) with D the Butterworth polynomial, and
each kind of filter is the low-pass one at another place on the imaginary axis. With the bilinear
transform s = j·tan θ, θ = πk/n, t = tan θ, and cutoffs W = tan(πf/fs), it stands at s = j·r with

    low-pass  r = t/W        band-pass  r = (t² - W₁W₂) / ((W₂ - W₁)·t)
    high-pass r = -W/t       band-stop  r = (W₂ - W₁)·t / (W₁W₂ - t²)

and D(jr) = Σ aₖ(jr)ᵏ splits into real polynomials: even powers its real part, odd powers its
imaginary part; |D|² = 1 + r²ᴺ. So H = conj(D) / (1 + r²ᴺ). Where r is infinite (the end of the band
that is stopped) it is cut off where H is below 1e-15.
"""

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stoker.augment.signal._spectrum import extended, fast_length
from stoker.errors import UsageError

Kind = Literal["low", "high", "band", "stop"]

_REST = 1e-8  # what may be left of a response when it wraps


def zero_phase(x: Tensor, kind: Kind, cutoffs: list[Tensor], order: int, tail: int) -> Tensor:
    """Filter x [B, C, T] forwards and backwards.

    Args:
        x: the signals.
        kind: of filter.
        cutoffs: W = tan(πf/fs) for one or two edges, each float64 [B].
        order: of the low-pass filter that it is made from.
        tail: samples after which a response has died away; see `tail_length`.

    Raises:
        UsageError: the signals are too short to be extended.
    """
    length = x.shape[-1]
    pad = 3 * (order + 1 if kind in {"low", "high"} else 2 * order + 1)  # scipy's padlen
    if length <= pad:
        raise UsageError(
            f"a zero-phase filter of order {order} must get signals longer than {pad} samples, got {length}; "
            f"lower the order"
        )
    total = fast_length(length + 2 * pad + tail)
    response = _response(kind, cutoffs, order, total, x.device)[:, None].to(
        torch.complex128 if x.dtype == torch.float64 else torch.complex64
    )
    at_rest = response[..., :1].real
    signal = extended(x, pad)
    for _ in range(2):
        first = signal[..., :1]
        spectrum = torch.fft.rfft(signal - first, total) * response
        signal = (torch.fft.irfft(spectrum, total)[..., : length + 2 * pad] + at_rest * first).flip(-1)
    return signal[..., pad : pad + length]


def tail_length(kind: Kind, corners: list[tuple[float, ...]], order: int) -> int:
    """Samples after which the slowest response is below 1e-8, for any of these W, on the host."""
    radius = max(float(np.abs(_poles(kind, corner, order)).max()) for corner in corners)
    return math.ceil(math.log(_REST) / math.log(radius))


def _response(kind: Kind, cutoffs: list[Tensor], order: int, total: int, device: torch.device) -> Tensor:
    """H at the bins of a transform of `total` points: complex128 [B, bins]."""
    bins = torch.arange(total // 2 + 1, dtype=torch.float64, device=device)
    t = torch.tan(bins * (math.pi / total))
    first = cutoffs[0][:, None]
    if kind == "low":
        r = t / first
    elif kind == "high":
        r = -first / t
    else:
        product, width = first * cutoffs[1][:, None], cutoffs[1][:, None] - first
        r = (t * t - product) / (width * t) if kind == "band" else width * t / (product - t * t)
    most = 10 ** (15 / order)
    r = r.clamp(-most, most)
    square = r * r
    real, imaginary = (_alternating(square, coefficients) for coefficients in _split(order))
    return torch.complex(real, -imaginary * r) / (real * real + imaginary * imaginary * square)


def _alternating(square: Tensor, coefficients: list[float]) -> Tensor:
    """c₀ - c₁·q + c₂·q² - …, by Horner's rule."""
    total = torch.full_like(square, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = coefficient - total * square
    return total


def _split(order: int) -> tuple[list[float], list[float]]:
    """The Butterworth polynomial's coefficients of even and of odd powers, lowest first."""
    coefficients = [1.0]  # a₀ = 1 and a_k / a_(k-1) = cos((k - 1)·π/2N) / sin(k·π/2N)
    for k in range(1, order + 1):
        step = math.pi / (2 * order)
        coefficients.append(coefficients[-1] * math.cos((k - 1) * step) / math.sin(k * step))
    return coefficients[::2], coefficients[1::2]


def _poles(kind: Kind, corner: tuple[float, ...], order: int) -> NDArray[np.complex128]:
    """The digital filter's poles for given W."""
    angles = np.pi * (2 * np.arange(1, order + 1) + order - 1) / (2 * order)
    low_pass = np.exp(1j * angles)
    if kind == "low":
        analog = low_pass * corner[0]
    elif kind == "high":
        analog = corner[0] / low_pass
    else:
        width, product = corner[1] - corner[0], corner[0] * corner[1]
        half = (low_pass if kind == "band" else 1 / low_pass) * width / 2
        root = np.sqrt(half * half - product)
        analog = np.concatenate([half + root, half - root])
    poles: NDArray[np.complex128] = (1 + analog) / (1 - analog)
    return poles
