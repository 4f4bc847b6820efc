"""What transforms can build on: geometry that fuses, partners to mix with, fields that change dtype."""

import math
from collections.abc import Mapping
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from stoker.augment import Draw, Geometric, Mixing, Params, Pipeline, Role, Sampling, Transform, distribution
from stoker.augment._geometry import compose


class Turn(Geometric):
    """Rotation of square images about their centre, by degrees."""

    roles = ("image", "mask")
    dims = 2
    neutral: ClassVar = {"angle": 0.0}

    def __init__(self, angle: Draw = 30, *, ignore: int = 255, p: float = 1.0) -> None:
        self.angle = distribution(angle, "angle")
        super().__init__(p=p, draws={"angle": self.angle})
        self.sampling = Sampling(ignore=ignore)

    def matrix(self, params: Params, size: tuple[int, ...]) -> Tensor:  # noqa: ARG002
        angle = params["angle"] * (math.pi / 180)
        cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
        return torch.stack([torch.stack([cos, -sin, zero], -1), torch.stack([sin, cos, zero], -1)], 1)


class Halve(Transform):
    """Mixes nothing, but makes floats of bytes."""

    roles = ("image",)

    def __init__(self, *, p: float = 1.0) -> None:
        super().__init__(p=p)

    def prepare(self, x: Tensor, role: Role) -> Tensor:  # noqa: ARG002
        return x if x.is_floating_point() else x.to(torch.float32) / 255

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        return x / 2


class Blend(Mixing):
    """Half of each, and soft targets of three classes."""

    roles = ("signal", "label")
    neutral: ClassVar = {"share": 1.0}

    def __init__(self, share: Draw = 0.5, *, p: float = 1.0) -> None:
        self.share = distribution(share, "share")
        super().__init__(p=p, draws={"share": self.share})

    def prepare(self, x: Tensor, role: Role) -> Tensor:
        return torch.nn.functional.one_hot(x, 3).float() if role == "label" else x

    def mix(self, x: Tensor, other: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        share = params.like("share", x)
        return x * share + other * (1 - share)

    def extras(self, fields: Mapping[str, Tensor], params: Params) -> dict[str, Tensor]:  # noqa: ARG002
        assert params.partner is not None
        return {"share": params["share"], "partner": params.partner}


IMAGES = torch.rand(12, 3, 33, 33, generator=torch.Generator().manual_seed(0))
MASKS = (torch.arange(33 * 33).view(33, 33) % 4).repeat(12, 1, 1)
ROLES: dict[str, Role] = {"image": "image", "mask": "mask"}


def test_neighbours_in_geometry_are_sampled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker.augment import _geometry

    calls = []
    plain = _geometry.sample
    monkeypatch.setattr(_geometry, "sample", lambda *args: calls.append(1) or plain(*args))  # type: ignore[func-returns-value]
    Pipeline(Turn(20), Turn(-5), Turn(7), roles={"image": "image"})({"image": IMAGES}, index=range(12))
    assert len(calls) == 1


def test_turns_add_up() -> None:
    batch = {"image": IMAGES, "mask": MASKS}
    twice = Pipeline(Turn(20), Turn(15), roles=ROLES)(batch, index=range(12))
    once = Pipeline(Turn(35), roles=ROLES)(batch, index=range(12))
    torch.testing.assert_close(twice["image"], once["image"], atol=1e-4, rtol=0)
    assert (twice["mask"] != once["mask"]).float().mean() < 0.01


def test_the_first_of_two_matrices_acts_first() -> None:
    stretch = torch.tensor([[[2.0, 0, 0], [0, 1, 0]]])
    move = torch.tensor([[[1.0, 0, 0.5], [0, 1, 0]]])
    point = torch.tensor([0.25, 0.5, 1.0])
    through_move = torch.cat([(move @ point)[0], torch.ones(1)])
    torch.testing.assert_close(compose(stretch, move) @ point, stretch @ through_move)


def test_a_fused_group_keeps_rows_that_none_was_chosen_for() -> None:
    aug = Pipeline(Turn((10, 40), p=0.4), Turn((10, 40), p=0.4), roles=ROLES)
    batch = {"image": IMAGES, "mask": MASKS}
    draws = aug.draw(range(12))
    after = aug.replay(batch, draws)
    left = ~draws.chosen.any(1)
    assert 0 < int(left.sum()) < 12
    assert torch.equal(after["image"][left], IMAGES[left])
    assert not any(torch.equal(a, b) for a, b in zip(after["image"][~left], IMAGES[~left], strict=True))
    aug.static = True
    static = aug.replay(batch, draws)
    assert torch.equal(static["image"], after["image"])
    assert torch.equal(static["mask"], after["mask"])


def test_geometry_with_other_edges_is_not_fused() -> None:
    aug = Pipeline(Turn(20), Turn(15, ignore=7), roles=ROLES)
    assert len(aug._stages) == 2


def test_masks_have_their_classes_or_the_ignored_one() -> None:
    after = Pipeline(Turn(45, ignore=9), roles=ROLES)({"image": IMAGES, "mask": MASKS}, index=range(12))
    assert set(after["mask"].unique().tolist()) == {0, 1, 2, 3, 9}
    assert after["mask"].dtype == MASKS.dtype
    corners = after["mask"][:, 0, 0]
    assert (corners == 9).all()
    assert (after["image"][:, :, 0, 0] == 0).all()


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("static", [False, True])
def test_all_rows_get_the_new_dtype(p: float, static: bool) -> None:
    images = (IMAGES * 255).to(torch.uint8)
    aug = Pipeline(Halve(p=p), roles={"image": "image"}, static=static)
    draws = aug.draw(range(12))
    after = aug.replay({"image": images}, draws)["image"]
    factor = torch.where(draws.chosen[:, 0], 0.5, 1.0).view(-1, 1, 1, 1)
    assert torch.equal(after, images.float() / 255 * factor)


@pytest.mark.parametrize("static", [False, True])
def test_a_mixed_sample_is_its_own_and_its_partners_share(static: bool) -> None:
    x, y = torch.randn(9, 1, 5), torch.arange(9) % 3
    aug = Pipeline(Blend((0.2, 0.8), p=0.6), roles={"x": "signal", "y": "label"}, static=static)
    draws = aug.draw(range(9))
    after = aug.replay({"x": x, "y": y}, draws)
    chosen = draws.chosen[:, 0]
    assert 0 < int(chosen.sum()) < 9
    share, partner = after["share"], after["partner"]
    assert (share[~chosen] == 1).all()
    expected = x * share[:, None, None] + x[partner] * (1 - share)[:, None, None]
    torch.testing.assert_close(after["x"], expected)
    hot = torch.nn.functional.one_hot(y, 3).float()
    torch.testing.assert_close(after["y"], hot * share[:, None] + hot[partner] * (1 - share)[:, None])
    assert torch.equal(after["x"][~chosen], x[~chosen])


def test_partners_are_others_once_each_and_follow_the_samples() -> None:
    aug = Pipeline(Blend(), roles={"x": "signal"})
    index = torch.arange(50) * 3
    partners = aug.draw(index).partners[:, 0]
    assert sorted(partners.tolist()) == list(range(50))
    assert (partners != torch.arange(50)).all()
    order = torch.randperm(50)
    reordered = aug.draw(index[order]).partners[:, 0]
    assert torch.equal(index[order][reordered], index[partners][order])
    assert not torch.equal(aug.draw(index, 1).partners, aug.draw(index).partners)
    assert aug.draw([4]).partners.tolist() == [[0]]
