"""MixUp and CutMix: what is mixed with what, by how much, and what a loss gets to know of it."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from scipy import stats
from torch import Tensor

from stoker.augment import Pipeline, Role
from stoker.augment.mix import Beta, CutMix, MixUp
from stoker.augment.volume import Flip
from stoker.errors import UsageError

Main = dict[str, tuple[Role, tuple[int, ...]]]
SHAPES: Main = {
    "signal": ("signal", (2, 101)),
    "image": ("image", (3, 17, 23)),
    "volume": ("volume", (1, 9, 10, 11)),
}
every_kind = pytest.mark.parametrize("kind", SHAPES)
NUM = 200


def numbered(kind: str) -> Tensor:
    """Samples that have their own number everywhere."""
    return torch.arange(float(NUM)).view(-1, *[1] * len(SHAPES[kind][1])).expand(-1, *SHAPES[kind][1])


def partners(aug: Pipeline, num: int = NUM) -> Tensor:
    return aug.draw(range(num)).partners[:, 0]


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5, 1.0, 2.5, 20.0])
def test_shares_have_the_beta_distribution(alpha: float) -> None:
    for transform in (MixUp(alpha), CutMix(alpha)):
        aug = Pipeline(transform, roles={"x": "signal"})
        drawn = aug.explain(aug.draw(np.arange(100_000)))[0]["lam"].double().numpy()
        # at places that float32 tells apart from 1, near which most of a small alpha's values lie
        places = stats.beta(alpha, alpha).ppf(np.linspace(0.01, 0.99, 99)).clip(1e-6, 1 - 1e-6)
        found = np.searchsorted(np.sort(drawn), places) / len(drawn)
        assert np.abs(found - stats.beta(alpha, alpha).cdf(places)).max() < np.sqrt(5 / len(drawn))


def test_shares_are_finite_at_the_ends_of_what_is_drawn_from() -> None:
    ends = torch.tensor(
        [2.0**-53, 2.0**-27, 0.25, 0.5, 0.75, 1 - 2.0**-27, 1 - 2.0**-53], dtype=torch.float64
    )
    for alpha in (1e-3, 0.05, 1.0, 1e3):
        values = Beta.quantile(ends[:, None], torch.tensor([[alpha]], dtype=torch.float64))
        assert ((values >= 0) & (values <= 1)).all()


@every_kind
@pytest.mark.parametrize("static", [False, True])
def test_mixup_is_the_sum_of_two_shares(kind: str, static: bool) -> None:
    role, shape = SHAPES[kind]
    x = torch.randn(NUM, *shape)
    aug = Pipeline(MixUp(1.0, p=0.6), roles={"x": role}, static=static)
    after = aug({"x": x}, index=range(NUM))
    lam = after["mixup_lam"].view(-1, *[1] * len(shape))
    torch.testing.assert_close(after["x"], lam * x + (1 - lam) * x[partners(aug)])
    chosen = aug.draw(range(NUM)).chosen[:, 0]
    assert torch.equal(after["x"][~chosen], x[~chosen])
    assert (after["mixup_lam"][~chosen] == 1).all()
    assert stats.binomtest(int(chosen.sum()), NUM, 0.6).pvalue > 1e-4  # once, not squared


@every_kind
@pytest.mark.parametrize("static", [False, True])
def test_the_share_kept_is_that_of_the_elements_that_were_kept(kind: str, static: bool) -> None:
    role, shape = SHAPES[kind]
    x = numbered(kind)
    aug = Pipeline(CutMix(p=0.7), roles={"x": role}, static=static)
    after = aug({"x": x}, index=range(NUM))
    own = (after["x"] == x).double().flatten(1).mean(1)
    torch.testing.assert_close(after["cutmix_lam"].double(), own, atol=1e-7, rtol=0)
    other = x[partners(aug)]
    assert ((after["x"] == x) | (after["x"] == other)).all()
    drawn = aug.explain(aug.draw(range(NUM)))[0]["lam"].double()
    assert (own >= drawn - 1.5 * sum(1 / n for n in shape[1:])).all()  # cut off at an edge: only more is kept
    assert (own > drawn + 0.1).any()
    assert float(own.min()) < 0.6


@every_kind
def test_what_is_pasted_is_one_box_through_all_channels(kind: str) -> None:
    x = numbered(kind)
    after = Pipeline(CutMix(), roles={"x": SHAPES[kind][0]})({"x": x}, index=range(NUM))["x"]
    pasted = (after != x).numpy()
    assert (pasted == pasted[:, :1]).all()
    for each in pasted[:, 0]:
        box = np.ones_like(each)
        for axis in range(each.ndim):
            others = tuple(other for other in range(each.ndim) if other != axis)
            along = each.any(others)
            inside = np.flatnonzero(along)
            assert not len(inside) or inside[-1] - inside[0] + 1 == len(inside)
            box &= along.reshape([-1 if other == axis else 1 for other in range(each.ndim)])
        assert (box == each).all()
    assert pasted[:, 0].any(0).all()  # somewhere in every place, corners included


@every_kind
@pytest.mark.parametrize("channel", [False, True])
def test_cutmix_pastes_the_mask_with_the_picture(kind: str, channel: bool) -> None:
    role, shape = SHAPES[kind]
    x = numbered(kind)
    mask = x[:, :1].long() if channel else x[:, 0].long()
    roles: dict[str, Role] = {"mask": "mask", "x": role}
    after = Pipeline(CutMix(), roles=roles)({"x": x, "mask": mask}, index=range(NUM))
    assert torch.equal(after["mask"], after["x"][:, :1].long() if channel else after["x"][:, 0].long())
    assert after["mask"].dtype == torch.int64
    assert after["mask"].shape[-len(shape) + 1 :] == shape[1:]


@pytest.mark.parametrize("transform", [MixUp(1.0, num_classes=7), CutMix(num_classes=7)], ids=repr)
@pytest.mark.parametrize("first", ["x", "y"])
def test_class_labels_become_soft_targets_by_the_share_kept(transform: MixUp | CutMix, first: str) -> None:
    y = torch.arange(NUM) % 7
    roles: dict[str, Role] = {"x": "image", "y": "label"} if first == "x" else {"y": "label", "x": "image"}
    aug = Pipeline(transform, roles=roles)
    after = aug({"x": torch.rand(NUM, 3, 8, 8), "y": y}, index=range(NUM))
    lam = after["mixup_lam" if isinstance(transform, MixUp) else "cutmix_lam"][:, None]
    hot = F.one_hot(y, 7).float()
    torch.testing.assert_close(after["y"], lam * hot + (1 - lam) * hot[partners(aug)])
    torch.testing.assert_close(after["y"].sum(1), torch.ones(NUM))
    assert after["y"].dtype == torch.float32
    loss = F.cross_entropy(torch.zeros(NUM, 7), after["y"])
    torch.testing.assert_close(loss, torch.tensor(7.0).log())


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_labels_are_soft_even_where_nothing_is_mixed(p: float) -> None:
    y = torch.arange(6) % 3
    aug = Pipeline(MixUp(num_classes=3, p=p), roles={"x": "signal", "y": "label"})
    after = aug({"x": torch.rand(6, 1, 9), "y": y}, index=range(6))
    chosen = aug.draw(range(6)).chosen[:, 0]
    assert torch.equal(after["y"][~chosen], F.one_hot(y, 3).float()[~chosen])


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool], ids=str
)
def test_labels_for_several_classes_are_mixed_directly(dtype: torch.dtype) -> None:
    y = (torch.rand(50, 4, generator=torch.Generator().manual_seed(0)) > 0.5).to(dtype)
    aug = Pipeline(MixUp(1.0, num_classes=4), roles={"x": "signal", "y": "label"})
    after = aug({"x": torch.rand(50, 1, 9), "y": y}, index=range(50))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    lam = after["mixup_lam"].to(wide)[:, None]
    expected = lam * y.to(wide) + (1 - lam) * y[partners(aug, 50)].to(wide)
    assert after["y"].dtype == (dtype if dtype.is_floating_point else torch.float32)
    torch.testing.assert_close(
        after["y"].to(wide), expected, atol=4e-3 if dtype == torch.bfloat16 else 1e-6, rtol=0
    )


@pytest.mark.parametrize("kind", [MixUp, CutMix])
@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 2), (6, 3, 4)], ids=str)
def test_measured_labels_are_refused_unless_a_linear_mix_is_meant(kind: Any, shape: tuple[int, ...]) -> None:
    batch = {"x": torch.rand(6, 1, 9), "y": torch.randn(shape)}
    roles: dict[str, Role] = {"x": "signal", "y": "label"}
    for arguments in ({}, {"num_classes": 5}):
        with pytest.raises(UsageError, match="mix_regression=True if the mean of two targets is a target"):
            Pipeline(kind(**arguments), roles=roles)(batch)
    aug = Pipeline(kind(mix_regression=True), roles=roles)
    after = aug(batch, index=range(6))
    lam = next(value for name, value in after.items() if name.endswith("_lam")).view(
        -1, *[1] * (len(shape) - 1)
    )
    torch.testing.assert_close(after["y"], lam * batch["y"] + (1 - lam) * batch["y"][partners(aug, 6)])


def test_labels_that_say_too_little_are_refused() -> None:
    x, roles = torch.rand(4, 1, 9), {"x": "signal", "y": "label"}
    for y, num_classes in (
        (torch.arange(4), None),
        (torch.zeros(4, 9).long(), 5),
        (torch.zeros(4, 1).long(), 5),
    ):
        with pytest.raises(UsageError, match="class labels must be whole numbers"):
            Pipeline(MixUp(num_classes=num_classes), roles=roles)({"x": x, "y": y})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="class labels must be from 0 to 2"):
        Pipeline(MixUp(num_classes=3), roles=roles)({"x": x, "y": torch.arange(4)})  # type: ignore[arg-type]


def test_mixup_gives_both_masks_and_the_share_to_the_loss() -> None:
    images, masks = torch.rand(12, 3, 8, 9), torch.randint(0, 4, (12, 8, 9))
    roles: dict[str, Role] = {"image": "image", "mask": "mask"}
    with pytest.raises(UsageError, match="pair_masks=True"):
        Pipeline(MixUp(), roles=roles)({"image": images, "mask": masks})
    aug = Pipeline(MixUp(1.0, pair_masks=True, p=0.5), roles=roles)
    after = aug({"image": images, "mask": masks}, index=range(12))
    assert torch.equal(after["mask"], masks)
    assert torch.equal(after["mask_partner"], masks[partners(aug, 12)])
    lam, logits = after["mixup_lam"], torch.randn(12, 4, 8, 9)
    own, other = (
        F.cross_entropy(logits, after[name], ignore_index=255, reduction="none").mean((1, 2))
        for name in ("mask", "mask_partner")
    )
    hot = F.one_hot(masks, 4).permute(0, 3, 1, 2).float()
    soft = torch.lerp(hot[partners(aug, 12)], hot, lam.view(-1, 1, 1, 1))
    torch.testing.assert_close((lam * own + (1 - lam) * other).mean(), F.cross_entropy(logits, soft))


def test_share_and_box_are_the_samples_own_and_the_partner_the_batchs() -> None:
    x = torch.rand(40, 1, 60)
    aug = Pipeline(CutMix(), roles={"x": "signal"})
    whole = aug({"x": x}, index=range(40))
    part = aug({"x": x[10:17]}, index=range(10, 17))
    assert torch.equal(part["cutmix_lam"], whole["cutmix_lam"][10:17])
    kept = (part["x"] == x[10:17]) & (whole["x"][10:17] == x[10:17])
    assert torch.equal(kept, part["x"] == x[10:17])  # the same box, filled from another
    assert not torch.equal(part["x"], whole["x"][10:17])
    alone = aug({"x": x[:1]}, index=[0])
    assert torch.equal(alone["x"], x[:1])


@pytest.mark.parametrize("static", [False, True])
def test_mixing_takes_samples_as_they_were_before_it(static: bool) -> None:
    x = torch.rand(30, 1, 4, 5, 6)
    roles: dict[str, Role] = {"x": "volume"}
    flipped = Pipeline(Flip(), roles=roles, static=static)({"x": x}, index=range(30))["x"]
    aug = Pipeline(Flip(), MixUp(1.0), roles=roles, static=static)
    after = aug({"x": x}, index=range(30))
    lam = after["mixup_lam"].view(-1, 1, 1, 1, 1)
    other = flipped[aug.draw(range(30)).partners[:, 0]]
    torch.testing.assert_close(after["x"], lam * flipped + (1 - lam) * other)


def test_edges_of_the_box_can_be_limited() -> None:
    x = torch.arange(300.0).view(300, 1, 1, 1).expand(300, 1, 40, 50)
    aug = Pipeline(CutMix(0.3, cut=(0.2, 0.5), p=0.8), roles={"x": "image"})
    after = aug({"x": x}, index=range(300))
    pasted = (after["x"] != x)[:, 0]
    chosen = aug.draw(range(300)).chosen[:, 0]
    assert (after["cutmix_lam"][~chosen] == 1).all()
    heights, widths = pasted.any(2).sum(1)[chosen], pasted.any(1).sum(1)[chosen]
    assert int(heights.max()) == 20
    assert int(widths.max()) == 25
    assert int(heights.min()) >= 4  # half of the least, where it is cut off
    torch.testing.assert_close(after["cutmix_lam"], 1 - pasted.float().flatten(1).mean(1))


def test_fields_that_cannot_be_cut_together_are_named() -> None:
    x = torch.rand(4, 1, 8, 9)
    roles: dict[str, Role] = {"x": "image", "mask": "mask"}
    with pytest.raises(UsageError, match=r"a mask of shape \[4, 4, 4\] beside \[8, 9\]"):
        Pipeline(CutMix(), roles=roles)({"x": x, "mask": torch.zeros(4, 4, 4)})
    with pytest.raises(UsageError, match="must have a signal, an image or a volume to cut"):
        Pipeline(CutMix(num_classes=3), roles={"y": "label"})({"y": torch.arange(3)})
    with pytest.raises(UsageError, match="of a floating dtype"):
        Pipeline(MixUp(), roles={"x": "image"})({"x": (x * 255).to(torch.uint8)})
    assert CutMix()((x * 255).to(torch.uint8), role="image").dtype == torch.uint8
    for wrong in (lambda: MixUp(0), lambda: CutMix(cut=(0.5, 0.2)), lambda: MixUp(num_classes=0)):
        with pytest.raises(UsageError, match="must be"):
            wrong()
