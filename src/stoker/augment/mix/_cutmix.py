"""Replacing a part of each sample by the same part of another."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from stoker.augment._distributions import Uniform
from stoker.augment._draws import Params
from stoker.augment._registry import register
from stoker.augment._transform import Mixing, Role
from stoker.augment.mix._beta import Beta
from stoker.augment.mix._labels import check_num_classes, mixable, mixed_linearly
from stoker.errors import UsageError


@register("mix")
class CutMix(Mixing):
    """Paste a box of the partner into samples: a span of time, a rectangle or a block, in all channels.

    The box is as large as a drawn λ says, has its centre anywhere, and is cut off at the edge. λ is then
    the share that was really kept, and labels are mixed by that. Masks get the box of the partner's mask.
    Adds the field "cutmix_lam", float32 [B]: λ, 1 for samples left alone.

        aug = Pipeline(CutMix(num_classes=5, p=0.5), roles={"x": "image", "y": "label", "mask": "mask"})
        batch = aug(batch, epoch=epoch)
        loss = F.cross_entropy(model(batch["x"]), batch["y"])  # y: float32 [B, 5], rows sum to 1

    A loss that goes through a mask needs nothing else: the mask says for every element what is there.

    Args:
        alpha: the λ of an uncut box is drawn from Beta(alpha, alpha); at 1 every share is alike.
        cut: least and greatest edge of the box before it is cut off, as a fraction of the sample's.
        num_classes: of the labels; needed for class labels, soft or not.
        mix_regression: float labels that are no classes are mixed linearly too; else they are refused.
        p: probability that a sample is mixed.
    """

    roles = ("signal", "image", "volume", "mask", "label")
    neutral: ClassVar = {"lam": 1.0, "centre": -2.0}  # a box that lies beyond the edge

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        cut: Sequence[float] = (0.0, 1.0),
        num_classes: int | None = None,
        mix_regression: bool = False,
        p: float = 1.0,
    ) -> None:
        super().__init__(p=p, draws={"lam": Beta(alpha), "centre": (Uniform(0, 1), 3)})
        self.alpha = alpha
        if len(cut) != 2 or not 0 <= cut[0] <= cut[1] <= 1:
            raise UsageError(f"cut must be two fractions from 0 to 1, the least first, got {cut!r}")
        self.cut = tuple(cut)
        self.num_classes = check_num_classes(num_classes)
        self.mix_regression = mix_regression

    def prepare(self, x: Tensor, role: Role) -> Tensor:
        """Make labels mixable."""
        return mixable(x, self.num_classes, mix_regression=self.mix_regression) if role == "label" else x

    def mix(self, x: Tensor, other: Tensor, params: Params, role: Role) -> Tensor:
        """See the base class."""
        if role == "label":
            return mixed_linearly(x, other, self._kept(params))
        size = params.size
        if tuple(x.shape[-len(size) :]) != size or x.ndim not in {len(size) + 1, len(size) + 2}:
            raise UsageError(
                f"CutMix must get fields of one size, got a {role} of shape {list(x.shape)} beside "
                f"{list(size)}; resize it or leave it without a role"
            )
        inside: Tensor | None = None
        for axis, (start, stop) in enumerate(self._box(params)):
            place = torch.arange(size[axis], device=x.device)
            along = (place >= start[:, None]) & (place < stop[:, None])
            along = along.view(-1, *[1] * axis, size[axis], *[1] * (len(size) - 1 - axis))
            inside = along if inside is None else inside & along
        assert inside is not None
        return torch.where(inside if x.ndim == inside.ndim else inside[:, None], other, x)

    def extras(self, fields: Mapping[str, Tensor], params: Params) -> dict[str, Tensor]:  # noqa: ARG002
        """λ."""
        return {"cutmix_lam": self._kept(params)}

    def _kept(self, params: Params) -> Tensor:
        """The share outside of the box, float32 [B]."""
        pasted, total = torch.ones((), dtype=torch.int64, device=params["lam"].device), 1
        for (start, stop), length in zip(self._box(params), params.size, strict=True):
            pasted, total = pasted * (stop - start), total * length
        return ((total - pasted).double() / total).to(torch.float32)

    def _box(self, params: Params) -> list[tuple[Tensor, Tensor]]:
        """First place inside and first place beyond along each axis, int64 [B]."""
        size = params.size
        if not size:
            raise UsageError(
                "CutMix must have a signal, an image or a volume to cut, got roles of labels and masks only"
            )
        lam = params["lam"].double()
        # a root by exp and log, because the bits of pow depend on the place in memory
        edge = torch.exp(torch.log1p(-lam) / len(size)).clamp(*self.cut)
        box = []
        for axis, length in enumerate(size):
            extent = torch.round(edge * length).to(torch.int64)
            centre = (params["centre"][:, axis] * length).to(torch.int64).clamp(max=length - 1)
            first = centre - extent // 2
            box.append((first.clamp(0, length), (first + extent).clamp(0, length)))
        return box
