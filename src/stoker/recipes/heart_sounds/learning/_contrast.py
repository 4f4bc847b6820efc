"""Pre-training: two views of a cycle must be found again among others, as a whole and part by part.

    loss = cycle_weight · InfoNCE over all views of the batch
         + part_weight · the mean over S1, systole, S2, diastole of InfoNCE among parts of that kind

With a momentum encoder the keys of the cycle level are its own, and those in its queue.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stoker.recipes.heart_sounds._settings import ContrastSettings
from stoker.recipes.heart_sounds.learning._encoder import MAPS_STRIDE, Encoder
from stoker.recipes.heart_sounds.learning._info_nce import gathered, info_nce, own_rows, unit
from stoker.recipes.heart_sounds.learning._momentum import MomentumCopy
from stoker.recipes.heart_sounds.learning._parts import NUM_PARTS, pool_parts
from stoker.train import Task


class Views(NamedTuple):
    """Embeddings of both views of a batch, the first views before the second: V = 2 B."""

    cycles: Tensor  # [V, E], of length 1
    parts: Tensor | None  # [V, 4, P], of length 1
    is_there: Tensor | None  # [V, 4], whether the view shows the part


class Contrast(nn.Module):
    """The encoder with the heads that pre-training needs, and the momentum copy, if there is one."""

    def __init__(self, encoder: Encoder, settings: ContrastSettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.cycle_head = _head(encoder.num_features)
        self.part_head = _head(encoder.num_maps) if settings.part_weight else None
        self.copy: MomentumCopy | None = None
        if settings.momentum is not None:
            self.copy = MomentumCopy(
                self.copied(),
                momentum=settings.momentum,
                queue=settings.queue,
                num_features=encoder.num_features // 2,
            )

    def copied(self) -> nn.ModuleDict:
        """What a momentum copy is a copy of."""
        return nn.ModuleDict({"encoder": self.encoder, "head": self.cycle_head})

    def forward(self, x: Tensor, parts: Tensor) -> Views:
        """x: [V, 1, T]; parts: [V, T], see `part_mask`."""
        features, maps = self.encoder(x)
        cycles = unit(self.cycle_head(features))
        if self.part_head is None:
            return Views(cycles, None, None)
        pooled, is_there = pool_parts(maps, parts, MAPS_STRIDE)
        parts_apart = unit(self.part_head(pooled.flatten(0, 1)))
        return Views(cycles, parts_apart.reshape(-1, NUM_PARTS, parts_apart.shape[-1]), is_there)

    @torch.no_grad()
    def keys(self, x: Tensor) -> Tensor:
        """The momentum copy's embeddings of views, [V, E]."""
        assert self.copy is not None
        return unit(self.copy.copies["head"](self.copy.copies["encoder"](x).features))


class ContrastTask(Task):
    """See the module.

    Args:
        model: the one that is trained, for its momentum copy: a wrapped one has no attributes.
        settings: what is compared.
    """

    def __init__(self, model: Contrast, settings: ContrastSettings) -> None:
        self._model = model
        self._settings = settings

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """The loss, and for each view whether its partner is the nearest, [V]."""
        x = torch.cat([batch["first"], batch["second"]])
        views: Views = model(x, torch.cat([batch["first_parts"], batch["second_parts"]]))
        with torch.autocast(x.device.type, enabled=False):
            return self._compared(x, views, batch["index"].repeat(2), batch["recording_id"].repeat(2))

    def metrics(self) -> Any:
        """How often a view's partner is the nearest of all."""
        import torchmetrics

        return {"retrieval": torchmetrics.MeanMetric()}

    def measured(self, prediction: Tensor, batch: Any) -> tuple[Any, ...]:  # noqa: ARG002 - the base's
        """Hits and misses."""
        return (prediction.float(),)

    def _compared(self, x: Tensor, views: Views, sample: Tensor, recording: Tensor) -> tuple[Tensor, Tensor]:
        ask = self._settings
        own = own_rows(len(x), x.device)
        partner = own.roll(len(x) // 2)  # the first view's is the second, and the other way
        recordings = gathered(recording)
        other = sample[:, None] != gathered(sample)
        if ask.same_recording == "ignore":
            other &= recording[:, None] != recordings
        loss, hits = self._cycles(x, views.cycles, partner, other, recordings)
        total = ask.cycle_weight * loss
        if views.parts is not None and views.is_there is not None:
            total = total + ask.part_weight * self._parts(views.parts, views.is_there, partner, other)
        return total, hits

    def _cycles(
        self, x: Tensor, cycles: Tensor, partner: Tensor, other: Tensor, recordings: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Cycle level; other [V, M] says which of the gathered views may be compared with."""
        copies = self._model.copy
        if copies is None:
            loss, hits = info_nce(cycles, gathered(cycles), partner, other, self._settings.temperature)
            return loss.mean(), hits
        keys = gathered(self._model.keys(x).float())
        older, older_recordings = (
            copies.keys.clone(),
            copies.recordings.clone(),
        )  # the graph must not see it change
        mine = recordings[own_rows(len(x), x.device)]
        usable = (older_recordings >= 0).expand(len(x), -1)
        if self._settings.same_recording == "ignore":
            usable = usable & (mine[:, None] != older_recordings)
        everything, allowed = torch.cat([keys, older]), torch.cat([other, usable], dim=1)
        loss, hits = info_nce(cycles, everything, partner, allowed, self._settings.temperature)
        if self._model.training:
            copies.add(keys, recordings)
        return loss.mean(), hits

    def _parts(self, parts: Tensor, is_there: Tensor, partner: Tensor, other: Tensor) -> Tensor:
        """Part level: like with like. A part that one of the two views has lost does not count."""
        keys, key_is_there = gathered(parts), gathered(is_there.to(torch.uint8)).bool()
        losses = []
        for part in range(NUM_PARTS):
            allowed = other & key_is_there[:, part]
            loss, _ = info_nce(parts[:, part], keys[:, part], partner, allowed, self._settings.temperature)
            counts = is_there[:, part] & key_is_there[partner, part]
            losses.append((loss * counts).sum() / counts.sum().clamp(min=1))
        return torch.stack(losses).mean()


def _head(num_features: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(num_features, 2 * num_features),
        nn.BatchNorm1d(2 * num_features),
        nn.ReLU(),
        nn.Linear(2 * num_features, num_features // 2),
    )
