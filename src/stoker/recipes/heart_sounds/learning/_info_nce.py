"""InfoNCE: an anchor must tell its positive from everything else that it is compared with.

    loss of anchor i = -log softmax(anchor_i · key_j / temperature)[positive_i]      over allowed j

Over several ranks keys are gathered with their gradients, so that each anchor is compared with the
batches of all: N ranks with B samples learn what one learns from N times B.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor


def info_nce(
    anchors: Tensor, keys: Tensor, positive: Tensor, allowed: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """The loss of each anchor [N], and whether its positive is the nearest key [N].

    Args:
        anchors: [N, E], of length 1.
        keys: [M, E], of length 1.
        positive: [N], which key is an anchor's own; it counts as allowed.
        allowed: [N, M], which keys an anchor is compared with.
        temperature: the cosine is divided by it.
    """
    logits = anchors @ keys.T / temperature
    own = positive[:, None] == torch.arange(len(keys), device=keys.device)
    logits = logits.masked_fill(~(allowed | own), -torch.inf)
    return F.cross_entropy(logits, positive, reduction="none"), logits.argmax(dim=1) == positive


def unit(x: Tensor) -> Tensor:
    """Scaled to length 1 along the last axis, in float32."""
    return F.normalize(x.float(), dim=-1)


def gathered(x: Tensor) -> Tensor:
    """The rows of all ranks, by rank, with gradients; alone, the rows themselves. Ranks have equally many."""
    return _Gather.apply(x) if _num_ranks() > 1 else x  # type: ignore[no-untyped-call]


def own_rows(num_rows: int, device: torch.device) -> Tensor:
    """Where this rank's rows are among the gathered ones, [num_rows]."""
    first = dist.get_rank() * num_rows if _num_ranks() > 1 else 0
    return torch.arange(first, first + num_rows, device=device)


class _Gather(torch.autograd.Function):
    """All ranks' rows; what each rank's loss says about a row is added up for the rank that has it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.num_rows = len(x)
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous()
        dist.all_reduce(total)
        first = dist.get_rank() * ctx.num_rows
        return total[first : first + ctx.num_rows]


def _num_ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
