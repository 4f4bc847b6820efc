"""The four parts of a cycle (S1, systole, S2, diastole) as a mask over time, and what is pooled by it.

As a mask they need no special care in augmentation: a pipeline moves masks along with their signals,
so after a shift or a change of speed the parts of a view are where the view has them. (Parts that
were cut out first could not be shifted against each other, and each would need its own passes.)
"""

import numpy as np
import torch
from torch import Tensor

NUM_PARTS = 4
OUTSIDE = 255  # padding, and what comes in from outside in augmentation


def part_mask(bounds: Tensor, length: int) -> Tensor:
    """Which part each point belongs to: uint8 [B, length], 0 to 3, or OUTSIDE.

    Args:
        bounds: [B, 5], where S1, systole, S2 and diastole begin, and the end.
        length: of the signals.
    """
    return host_mask(bounds, length) if bounds.device.type == "cpu" else device_mask(bounds, length)


def device_mask(bounds: Tensor, length: int) -> Tensor:
    """`part_mask` on any device: a running sum of uint8, which goes round at 256.

    It begins as OUTSIDE, each bound takes it to the next part, and the last one from 3 back to OUTSIDE.
    """
    steps = torch.tensor(
        [1] * NUM_PARTS + [OUTSIDE - (NUM_PARTS - 1)], dtype=torch.uint8, device=bounds.device
    )
    changes = torch.zeros(len(bounds), length + 1, dtype=torch.uint8, device=bounds.device)
    changes[:, 0] = OUTSIDE
    changes.scatter_add_(1, bounds.long(), steps.expand(len(bounds), -1))
    return changes.cumsum(dim=1, dtype=torch.uint8)[:, :length]


def host_mask(bounds: Tensor, length: int) -> Tensor:
    """`part_mask` on the host, in a quarter of the time (64 cycles of 4,000 points, one core)."""
    edges = np.zeros((len(bounds), NUM_PARTS + 3), np.int64)
    edges[:, 1:-1], edges[:, -1] = bounds.numpy(), length
    numbers = np.array([OUTSIDE, *range(NUM_PARTS), OUTSIDE], np.uint8)
    mask = np.repeat(np.tile(numbers, len(bounds)), np.diff(edges).reshape(-1))
    return torch.from_numpy(mask.reshape(len(bounds), length))


def pool_parts(maps: Tensor, mask: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """The mean of maps over each part.

    Args:
        maps: [B, C, L].
        mask: [B, T] of `part_mask`; step l of the maps stands for point l * stride.
        stride: T over L, or a little less.

    Returns:
        [B, 4, C], and whether the part is there at all, [B, 4].
    """
    steps = mask[:, ::stride][:, : maps.shape[-1]]
    member = (steps[:, None] == torch.arange(NUM_PARTS, device=mask.device)[:, None]).to(maps.dtype)
    size = member.sum(dim=-1)  # [B, 4]
    total = torch.einsum("bkl,bcl->bkc", member, maps[..., : steps.shape[-1]])
    return total / size.clamp(min=1)[..., None], size > 0
