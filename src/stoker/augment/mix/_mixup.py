"""Mixing whole samples."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from stoker.augment._draws import Params
from stoker.augment._registry import register
from stoker.augment._transform import Mixing, Role
from stoker.augment.mix._beta import Beta
from stoker.augment.mix._labels import check_num_classes, mixable, mixed_linearly
from stoker.errors import UsageError


@register("mix")
class MixUp(Mixing):
    """Replace samples by λ·sample + (1 - λ)·partner, and labels likewise.

    Class labels become soft targets, which cross entropy takes as they are; float labels for each of
    several classes are mixed directly. Adds the field "mixup_lam", float32 [B]: λ, 1 for samples left alone.

        aug = Pipeline(MixUp(0.2, num_classes=5, p=0.5), roles={"x": "signal", "y": "label"})
        batch = aug(batch, epoch=epoch)
        loss = F.cross_entropy(model(batch["x"]), batch["y"])  # y: float32 [B, 5], rows sum to 1

    Two masks cannot be mixed into one: a class between two classes means nothing. With
    ``pair_masks=True`` a mask stays the sample's own, the field NAME_partner has the partner's, and the
    loss is taken to both:

        lam, logits = batch["mixup_lam"], model(batch["image"])
        own, other = (
            F.cross_entropy(logits, batch[name], ignore_index=255, reduction="none").mean((1, 2))
            for name in ("mask", "mask_partner")
        )
        loss = (lam * own + (1 - lam) * other).mean()

    Later transforms do not know NAME_partner, so with masks MixUp belongs at the end of a pipeline, after
    movements and CutMix.

    Args:
        alpha: λ is drawn from Beta(alpha, alpha): below 1 mostly one of the two, above 1 mostly both.
        num_classes: of the labels; needed for class labels, soft or not.
        mix_regression: float labels that are no classes are mixed linearly too; else they are refused.
        pair_masks: see above; without it masks are refused.
        p: probability that a sample is mixed.
    """

    roles = ("signal", "image", "volume", "mask", "label")
    neutral: ClassVar = {"lam": 1.0}

    def __init__(
        self,
        alpha: float = 0.2,
        *,
        num_classes: int | None = None,
        mix_regression: bool = False,
        pair_masks: bool = False,
        p: float = 1.0,
    ) -> None:
        super().__init__(p=p, draws={"lam": Beta(alpha)})
        self.alpha = alpha
        self.num_classes = check_num_classes(num_classes)
        self.mix_regression = mix_regression
        self.pair_masks = pair_masks

    def prepare(self, x: Tensor, role: Role) -> Tensor:
        """Make labels mixable; refuse what cannot be mixed."""
        if role == "label":
            return mixable(x, self.num_classes, mix_regression=self.mix_regression)
        if role == "mask":
            if not self.pair_masks:
                raise UsageError(
                    "MixUp must be told what to do with a mask, because two cannot be mixed into one; pass "
                    "pair_masks=True and take the loss to both (see its documentation), or use CutMix"
                )
            if x.is_floating_point():
                raise UsageError(f"a mask must be of whole numbers, got {x.dtype}; convert it")
        elif not x.is_floating_point():
            raise UsageError(f"a {role} must be of a floating dtype to be mixed, got {x.dtype}; convert it")
        return x

    def mix(self, x: Tensor, other: Tensor, params: Params, role: Role) -> Tensor:
        """See the base class."""
        return x if role == "mask" else mixed_linearly(x, other, params["lam"])

    def extras(self, fields: Mapping[str, Tensor], params: Params) -> dict[str, Tensor]:
        """λ, and the masks of the partners."""
        assert params.partner is not None
        masks = {name: x for name, x in fields.items() if not x.is_floating_point()}  # see prepare
        others = {f"{name}_partner": x.index_select(0, params.partner) for name, x in masks.items()}
        return {"mixup_lam": params["lam"], **others}
