"""Fields read where a matrix looks; volumes on the host by compiled loops, which give the operator's bits.

For volumes the operator goes voxel by voxel, and needs a grid of three numbers for each. Measured on two
cores: 8 of 64³ take 18 ms by it and 5 by the loop, 2 of 128³ 49 and 9; their masks 10 and 3, 21 and 6 ms.
Images it reads as fast as a loop does.
"""

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from numpy.typing import NDArray
from torch import Tensor

from stoker.augment import _operations
from stoker.config import call_kernel

_WHOLE = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}

Places = tuple[Tensor, ...]


class Look(NamedTuple):
    """Where to look, and what is beyond the edges."""

    matrix: Tensor  # float32 [B, d, d + 1]
    places: Places  # of the output's elements from -1 to 1, for each axis, x first
    is_border: bool  # what is at the edge, else nothing
    ignore: int | None = None  # in a mask, where there is nothing; None for what is interpolated


def takes(x: Tensor, look: Look) -> bool:
    """Whether a loop reads this field like that. What the operator refuses is for it to refuse."""
    is_mask, matrix = look.ignore is not None, look.matrix
    return (
        x.device.type == "cpu"
        and len(look.places) == 3
        and x.ndim == 5
        and 0 not in x.shape[2:]
        and (matrix.device.type, matrix.dtype, matrix.shape) == ("cpu", torch.float32, (len(x), 3, 4))
        and (x.dtype in _WHOLE if is_mask else x.dtype is torch.float32)
        and not (x.requires_grad or matrix.requires_grad or torch.compiler.is_compiling())
        and _operations.are_compiled()
        and _agrees_with_torch()
    )


def read(x: Tensor, look: Look) -> Tensor:
    """Read a field that `takes` says yes to.

    Shape: x [B, C, *spatial]; gives [B, C, *places].
    """
    size = tuple(len(place) for place in reversed(look.places))
    out = torch.empty((*x.shape[:2], *size), dtype=x.dtype, device=x.device)
    _read(out.numpy(), np.ascontiguousarray(x.numpy(force=True)), look)
    return out


def _read(out: NDArray[Any], x: NDArray[Any], look: Look) -> None:
    from stoker.augment import _sampling_kernels as kernels

    matrix, places = look.matrix.numpy(), tuple(place.numpy() for place in look.places)
    loop: Callable[..., None] = kernels.interpolate
    if look.ignore is not None:
        loop = functools.partial(kernels.pick, ignore=look.ignore)

    def part(rows: slice) -> None:
        call_kernel(loop, out[rows], x[rows], matrix[rows], places, look.is_border)

    _in_threads(part, len(out))


def _in_threads(part: Callable[[slice], None], num_rows: int) -> None:
    """Do all rows, in as many threads as an operator would be divided into."""
    num_threads = max(1, min(torch.get_num_threads(), num_rows))
    bounds = [num_rows * number // num_threads for number in range(num_threads + 1)]
    errors: list[BaseException] = []

    def work(rows: slice) -> None:
        try:
            part(rows)
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            errors.append(error)

    first, *others = [slice(*pair) for pair in itertools.pairwise(bounds)]
    threads = [threading.Thread(target=work, args=(rows,), name="stoker-augment") for rows in others]
    for thread in threads:
        thread.start()
    work(first)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@functools.cache
def _agrees_with_torch() -> bool:
    """Whether the loops give the operator's bits: it may be compiled with fused multiply-add."""
    numbers = np.random.default_rng(0)
    x = torch.from_numpy(numbers.standard_normal((2, 1, 19, 19, 19), np.float32))
    matrix = torch.from_numpy(numbers.standard_normal((2, 3, 4), np.float32) * np.float32(0.7))
    places = (places_of(23, torch.device("cpu")),) * 3
    out = np.empty((2, 1, 23, 23, 23), np.float32)
    _read(out, x.numpy(), Look(matrix, places, is_border=False))
    expected = F.grid_sample(x, grid_of(matrix, places), align_corners=False)
    return np.array_equal(out, expected.numpy())


def places_of(length: int, device: torch.device | None = None) -> Tensor:
    """The elements of an axis, from -1 to 1 between its outer edges."""
    return (torch.arange(length, dtype=torch.float32, device=device) * 2 + 1) / length - 1


def grid_of(matrix: Tensor, places: Sequence[Tensor]) -> Tensor:
    """Where the matrix looks from every element of the output: float32 [B, *size, d].

    What `affine_grid` gives, but as a sum of one term an axis: no matrix product whose bits may depend on
    the batch size. Each coordinate is a plane of its own, so that loops run along the last axis: measured
    0.35 ms for two of 512 x 512 on one core, with coordinates side by side 1.8 ms.
    """
    grid: Tensor | None = None
    for axis, place in enumerate(places):  # x is the last axis of the tensor
        term = place * matrix[:, :, axis, None]
        if grid is None:
            term = term + matrix[:, :, -1:]
        term = term.view(-1, len(places), *[1] * (len(places) - 1 - axis), len(place), *[1] * axis)
        grid = term if grid is None else grid + term
    assert grid is not None
    return grid.movedim(1, -1)
