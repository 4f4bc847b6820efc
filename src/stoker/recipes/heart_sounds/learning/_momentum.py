"""A momentum encoder: a slowly following copy of the encoder, whose older outputs are kept in a queue.

- It follows once for each *update* of the weights, not for each batch: under gradient accumulation
  `follow` is called behind the optimizer's step (`follow_after` arranges that).
- The queue takes the keys of every batch, also of those within an update, of all ranks.
- Buffers (BatchNorm's running mean and variance) are copied, not averaged: they follow the data already.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class MomentumCopy(nn.Module):
    """The copy of some modules and its queue; all of it is in checkpoints.

    Args:
        modules: what is copied, by name.
        momentum: what the copy keeps of itself at each update.
        queue: keys that are kept; 0 for none.
        num_features: of a key.
    """

    keys: Tensor
    recordings: Tensor
    place: Tensor

    def __init__(self, modules: nn.ModuleDict, *, momentum: float, queue: int, num_features: int) -> None:
        super().__init__()
        self.copies = copy.deepcopy(modules).requires_grad_(requires_grad=False)
        self.momentum = momentum
        self.register_buffer("keys", torch.zeros(queue, num_features))
        self.register_buffer("recordings", torch.full((queue,), -1))  # -1 where nothing is yet
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def follow(self, modules: nn.ModuleDict) -> None:
        """Move towards the modules as they are now."""
        for mine, theirs in zip(self.copies.parameters(), modules.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.momentum)
        for kept, current in zip(self.copies.buffers(), modules.buffers(), strict=True):
            kept.copy_(current)

    @torch.no_grad()
    def add(self, keys: Tensor, recordings: Tensor) -> None:
        """Put keys [n, E] of recordings [n] into the queue; the oldest make room."""
        size = len(self.keys)
        if size == 0:
            return
        keys, recordings = keys[-size:], recordings[-size:]
        places = (self.place + torch.arange(len(keys), device=keys.device)) % size
        self.keys[places] = keys.to(self.keys.dtype)
        self.recordings[places] = recordings
        self.place.copy_((self.place + len(keys)) % size)


def follow_after(optimizer: Optimizer, copies: MomentumCopy, modules: nn.ModuleDict) -> None:
    """Let the copy follow whenever the optimizer has changed the weights."""

    def follow(*_: Any) -> None:
        copies.follow(modules)

    optimizer.register_step_post_hook(follow)
