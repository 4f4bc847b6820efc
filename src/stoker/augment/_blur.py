"""Gaussian blur along each axis, with its own width for every sample.

A kernel has as many taps as the widest needs, those beyond a sample's own reach being zero, so shapes
never vary. It is a sum of shifted copies: the bits of a convolution or of a matrix product may depend
on the batch. On the CPU it is a compiled loop where there is numba; else it goes block by block, because all
taps of a block find it in the cache: measured for [8, 1, 64, 64, 64] and 13 taps on one core 26 ms, as a
whole 53 ms.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from stoker.augment import _operations

_REACH = 4  # standard deviations; what lies beyond has a share of 6e-5, and scipy cuts there too
_BLOCK = 1 << 18  # elements computed together; measured best among 2**13 to 2**30


def blur_radius(sigma: float) -> int:
    """Taps on either side of the middle."""
    return int(_REACH * sigma + 0.5)


def gaussian_blur(x: Tensor, sigmas: Sequence[Tensor], radii: Sequence[int]) -> Tensor:
    """Blur each sample; beyond an edge its last element is repeated.

    The same as `scipy.ndimage.gaussian_filter` with ``mode="nearest"``. A sigma of 0 changes no bit.

    Args:
        x: [B, C, *spatial], floating.
        sigmas: [B] for every spatial axis, in elements.
        radii: for every spatial axis the `blur_radius` of the largest sigma that can come.
    """
    rows = x.flatten(0, 1)
    for axis, (sigma, radius) in enumerate(zip(sigmas, radii, strict=True), 1):
        if radius:
            taps = _taps(sigma, radius).to(x.dtype)
            taps = taps[:, None].expand(-1, x.shape[1], -1).flatten(0, 1)
            rows = _blurred(rows, taps, axis)
    return rows.view(x.shape)


def _taps(sigma: Tensor, radius: int) -> Tensor:
    """The middle of each kernel and what follows on one side: float64 [B, radius + 1]."""
    place = torch.arange(radius + 1, dtype=torch.float64, device=sigma.device)
    width = sigma.double()[:, None]
    heights = torch.exp(-0.5 * (place / width.clamp(min=1e-3)).square())
    heights = heights * (place <= torch.floor(_REACH * width + 0.5))
    total = heights[:, 0]
    for tap in heights[:, 1:].unbind(1):  # one by one: a sum's bits may depend on the batch
        total = total + 2 * tap
    return heights / total[:, None]


def _blurred(rows: Tensor, taps: Tensor, axis: int) -> Tensor:
    """Blur rows [R, *spatial] along one axis, each with its own taps [R, n]."""
    weights = [tap.view(-1, *[1] * (rows.ndim - 1)) for tap in taps.unbind(1)]
    if rows.device.type != "cpu" or rows.requires_grad or torch.compiler.is_compiling():
        total = rows * weights[0]
        padded = torch.cat(_with_ends(rows, len(weights) - 1, axis), axis)
        for left, right, weight in _pairs(padded, weights, axis):
            total = total + (left + right) * weight
        return total
    if _operations.are_compiled() and _operations.takes(rows):
        return _operations.blur(rows, taps, axis)
    out = torch.empty_like(rows, memory_format=torch.contiguous_format)
    padded, pair = torch.empty(0, dtype=rows.dtype), torch.empty(0, dtype=rows.dtype)
    reach = taps.numpy().astype(bool).sum(1)  # the host knows how many taps each row needs
    for place in _blocks(rows, axis):
        block, total = rows[place], out[place]
        here = [weight[place[:1]] for weight in weights[: reach[place[0]].max(initial=1)]]
        torch.mul(block, here[0], out=total)
        padded = torch.cat(_with_ends(block, len(here) - 1, axis), axis, out=padded.resize_(0))
        for left, right, weight in _pairs(padded, here, axis):
            torch.add(left, right, out=pair.resize_(block.shape))
            total.add_(pair.mul_(weight))  # not addcmul_, which rounds once or twice, as the processor has it
    return out


def _with_ends(rows: Tensor, radius: int, axis: int) -> list[Tensor]:
    """The rows between copies of their first and of their last element."""
    copies = [-1] * rows.ndim
    copies[axis] = radius
    first, last = rows.narrow(axis, 0, 1), rows.narrow(axis, rows.shape[axis] - 1, 1)
    return [first.expand(copies), rows, last.expand(copies)]


def _pairs(padded: Tensor, weights: list[Tensor], axis: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For each tap beside the middle what lies there on either side, and its weight."""
    radius = len(weights) - 1
    length = padded.shape[axis] - 2 * radius
    for tap in range(1, radius + 1):
        left, right = (padded.narrow(axis, radius + shift, length) for shift in (-tap, tap))
        yield left, right, weights[tap]


def _blocks(rows: Tensor, axis: int) -> Iterator[tuple[slice, ...]]:
    """Parts of [R, *spatial] that are whole along the axis: some rows, or some of one row."""
    per_row = rows[0].numel()
    across = 2 if axis == 1 else 1
    num_rows = max(1, _BLOCK // per_row)
    width = rows.shape[across] if num_rows > 1 else max(1, rows.shape[across] * _BLOCK // per_row)
    for row in range(0, rows.shape[0], num_rows):
        for start in range(0, rows.shape[across], width):
            cut = [slice(row, row + num_rows), slice(None), slice(None)]
            cut[across] = slice(start, start + width)
            yield tuple(cut)
