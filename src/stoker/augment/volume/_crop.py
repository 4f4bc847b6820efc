"""Cutting blocks out of volumes."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from stoker.augment._distributions import Uniform
from stoker.augment._draws import Params
from stoker.augment._geometry import Geometric, Sampling
from stoker.augment._registry import register
from stoker.augment._transform import Role
from stoker.augment.volume._axes import check_layout
from stoker.errors import UsageError


@register("volume")
class Crop(Geometric):
    """Cut a block out of each volume, and the same block out of its mask.

    Alone it copies voxels. Beside an Affine3D both are one sampling: only voxels of the block are
    computed, and if the block is cut first, what is turned into it from beyond its edge is the volume,
    not padding.

    Args:
        size: of the block along depth, height and width, or one number for all; volumes must have as much.
        random: every place alike, the last one too; else the middle.
    """

    roles = ("volume", "mask")
    sampling = Sampling(interpolation=None, padding=None)
    keeps_shape = False
    writes = True
    dims = 3

    def __init__(self, size: int | Sequence[int], *, random: bool = True) -> None:
        # at a half of what is left the block is in the middle
        place = Uniform(0, 1) if random else Uniform(0.5, 0.5)
        super().__init__(draws={"start": (place, 3)})
        self.size = (size,) * 3 if isinstance(size, int) else tuple(size)
        self.random = random
        if len(self.size) != 3 or min(self.size) < 1:
            raise UsageError(f"size must be one or three lengths of at least 1, got {size!r}")

    def prepare(self, x: Tensor, role: Role) -> Tensor:
        """See the base class."""
        return check_layout(x, role)

    def extras(self, fields: Mapping[str, Tensor], params: Params) -> dict[str, Tensor]:  # noqa: ARG002
        """Nothing; only here all fields are seen together."""
        sizes = {name: tuple(x.shape[-3:]) for name, x in fields.items()}
        if len(set(sizes.values())) > 1:
            raise UsageError(f"Crop must get fields of one size, got {sizes}; resize them or crop them apart")
        return {}

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        """See the base class."""
        block = blocks_at(x if x.ndim == 5 else x[:, None], self._start(params, x.shape[-3:]), self.size)
        return block if x.ndim == 5 else block[:, 0]

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:  # noqa: ARG002
        """See the base class."""
        for row, starts in enumerate(self._start(params, x.shape[-3:]).tolist()):
            cut = [slice(first, first + length) for first, length in zip(starts, self.size, strict=True)]
            out[row] = x[row, ..., cut[0], cut[1], cut[2]]

    def written_shape(self, x: Tensor) -> tuple[int, ...]:
        """See the base class."""
        return (*x.shape[:-3], *self.size)

    def matrix(self, params: Params, size: tuple[int, ...]) -> Tensor:
        """See the base class."""
        start = self._start(params, size).double()
        rows = []
        for row in (2, 1, 0):  # a point is (x, y, z)
            part, whole = self.size[row], size[row]
            offset = (2 * start[:, row] + part) / whole - 1
            linear = [torch.full_like(offset, part / whole if column == row else 0) for column in (2, 1, 0)]
            rows.append(torch.stack([*linear, offset], -1))
        return torch.stack(rows, 1).to(torch.float32)

    def output_size(self, size: tuple[int, ...]) -> tuple[int, ...]:  # noqa: ARG002
        """See the base class."""
        return self.size

    def _start(self, params: Params, size: Sequence[int]) -> Tensor:
        """The block's first voxel along each axis: int64 [B, 3]."""
        left = [whole - part for whole, part in zip(size, self.size, strict=True)]
        if min(left) < 0:
            raise UsageError(
                f"Crop must get volumes of at least {self.size}, got {tuple(size)}; pad them first"
            )
        columns = params["start"].unbind(1)
        starts = [
            (column * (most + self.random)).to(torch.int64).clamp(max=most)
            for column, most in zip(columns, left, strict=True)
        ]
        return torch.stack(starts, 1)


def blocks_at(x: Tensor, start: Tensor, size: Sequence[int]) -> Tensor:
    """The block of each sample that begins at `start`.

    Shape: x [B, C, D, H, W]; start int64 [B, 3]; gives [B, C, *size].
    """
    place = start.new_zeros(())
    for axis, length in enumerate(size):
        along = start[:, axis, None] + torch.arange(length, device=x.device)
        shape = [1] * 3
        shape[axis] = length
        place = place * x.shape[2 + axis] + along.view(-1, *shape)
    picked = place.flatten(1)[:, None].expand(-1, x.shape[1], -1)
    return x.flatten(2).gather(2, picked).view(*x.shape[:2], *size)
