"""Volume transforms against numpy and scipy, and the promises of their documentation."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage, stats
from scipy.spatial.transform import Rotation
from torch import Tensor

from stoker.augment import Pipeline, Role, preset
from stoker.augment._blur import _BLOCK
from stoker.augment.volume import (
    Affine3D,
    Crop,
    Flip,
    Gamma,
    GaussianBlur,
    GaussianNoise,
    IntensityScale,
    IntensityShift,
)
from stoker.errors import UsageError

ROLES: dict[str, Role] = {"x": "volume", "mask": "mask"}
SIZE = (12, 14, 17)


def smooth(num_samples: int = 4, size: tuple[int, ...] = SIZE, channels: int = 1) -> Tensor:
    noise = np.random.default_rng(3).normal(size=(num_samples, channels, *size))
    return torch.from_numpy(ndimage.gaussian_filter(noise, (0, 0, 1.5, 1.5, 1.5)) * 4).float()


def explained(aug: Pipeline, num_samples: int) -> dict[str, np.ndarray[Any, Any]]:
    return {
        name: value.double().numpy() for name, value in aug.explain(aug.draw(range(num_samples)))[0].items()
    }


def reference(
    x: np.ndarray[Any, Any],
    size: tuple[int, ...],
    *,
    angles: Any,
    scale: Any,
    moved: Any,
    shear: Any,
    spacing: Any,
) -> np.ndarray[Any, Any]:
    """What scipy shows after the documented movement."""
    slanted = np.eye(3)
    slanted[0, 1], slanted[0, 2], slanted[1, 2] = shear
    forward = Rotation.from_euler("XYZ", angles, degrees=True).as_matrix() @ slanted @ np.diag(scale)
    spaced = np.diag(spacing)
    back = np.linalg.inv(spaced) @ np.linalg.inv(forward) @ spaced
    centre = (np.array(size) - 1) / 2
    offset = centre - back @ (centre + np.array(moved) * size)
    return ndimage.affine_transform(x, back, offset, order=1, mode="grid-constant")


def test_a_movement_is_what_scipy_makes_of_the_documented_matrix() -> None:
    x, spacing = smooth(8), (3.0, 1.5, 1.0)
    aug = Pipeline(
        Affine3D(40, scale=((0.7, 1.4), (0.8, 1.2), 1.1), translate=0.2, shear=0.3, spacing=spacing),
        roles={"x": "volume"},
    )
    drawn = explained(aug, 8)
    after = aug({"x": x}, index=range(8))["x"]
    for i in range(8):
        expected = reference(
            x[i, 0].numpy(),
            SIZE,
            angles=drawn["rotate"][i],
            scale=[drawn[f"scale_{axis}"][i] for axis in ("depth", "height", "width")],
            moved=drawn["translate"][i],
            shear=drawn["shear"][i],
            spacing=spacing,
        )
        np.testing.assert_allclose(after[i, 0], expected, atol=2e-4)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_quarter_turn_is_that_of_numpy(axis: int) -> None:
    x = torch.randn(1, 2, 9, 9, 9)
    angles = [90.0 if each == axis else 0.0 for each in range(3)]
    after = Affine3D([(angle, angle) for angle in angles])(x)
    first, second = (2 + (axis + 1) % 3, 2 + (axis + 2) % 3)
    np.testing.assert_allclose(after, np.rot90(x, axes=(first, second)), atol=1e-4)


def test_turns_are_done_about_width_then_height_then_depth() -> None:
    x = torch.randn(1, 1, 9, 9, 9)
    turned = np.rot90(np.rot90(np.rot90(x, axes=(2, 3)), axes=(4, 2)), axes=(3, 4))
    np.testing.assert_allclose(Affine3D((90, 90), scale=1)(x), turned, atol=1e-4)


def test_content_moves_towards_higher_indices_and_grows() -> None:
    x = torch.zeros(1, 1, 20, 20, 20)
    x[:, :, 8:12, 8:12, 8:12] = 1
    moved = Affine3D(translate=((0.1, 0.1), (-0.2, -0.2), 0))(x)
    assert torch.allclose(moved, x.roll((2, -4), (2, 3)), atol=1e-4)
    grown = Affine3D(scale=(1, 2, 1))(x)
    assert (grown > 0.5).sum() == 2 * (x > 0.5).sum()
    assert (grown[0, 0, 10, :, 10] > 0.5).sum() == 8


def test_spacing_keeps_a_ball_a_ball_when_it_is_turned() -> None:
    places = np.meshgrid(*[np.arange(n) - (n - 1) / 2 for n in (21, 63, 63)], indexing="ij")
    distance = np.sqrt((3 * places[0]) ** 2 + places[1] ** 2 + places[2] ** 2)
    ball = torch.from_numpy(np.clip(24 - distance, 0, 1)).float()[None, None]
    turned = Affine3D((35, 35), spacing=(3, 1, 1))(ball)
    assert float((turned - ball).abs().mean()) < 0.02
    assert float((Affine3D((35, 35))(ball) - ball).abs().mean()) > 0.04


@pytest.mark.parametrize("channel", [False, True])
def test_volume_and_mask_move_together(channel: bool) -> None:
    ramp = torch.stack(torch.meshgrid(*[torch.arange(float(n)) for n in SIZE], indexing="ij"))
    number = torch.arange(ramp[0].numel()).view(1, *SIZE).expand(6, *SIZE)
    batch = {"x": ramp.expand(6, 3, *SIZE), "mask": number[:, None] if channel else number}
    aug = Pipeline(
        Affine3D(40, scale=(0.6, 1.2), translate=0.2, shear=0.2, padding="border"),
        Flip(),
        Crop((7, 8, 9)),
        roles=ROLES,
        seed=2,
    )
    after = aug(batch, index=range(6))
    shown = after["mask"][:, 0] if channel else after["mask"]
    assert shown.shape == (6, 7, 8, 9)
    rows = torch.div(shown, SIZE[2], rounding_mode="floor")
    places = [torch.div(rows, SIZE[1], rounding_mode="floor"), rows % SIZE[1], shown % SIZE[2]]
    assert float((torch.stack(places, 1) - after["x"]).abs().max()) < 0.501
    assert len(shown.unique()) > 500


def test_masks_have_their_classes_or_the_ignored_one() -> None:
    mask = torch.tensor([3, 7, 200], dtype=torch.uint8)[torch.randint(0, 3, (5, 1, *SIZE))]
    aug = Pipeline(
        Affine3D(60, scale=(0.5, 1)), GaussianBlur(2), GaussianNoise(1), Gamma(2), Flip(), roles=ROLES
    )
    after = aug({"x": smooth(5), "mask": mask}, index=range(5))["mask"]
    assert set(after.unique().tolist()) == {3, 7, 200, 255}
    assert after.dtype == torch.uint8
    bordered = Pipeline(Affine3D(60, padding="border"), roles=ROLES)({"x": smooth(5), "mask": mask})["mask"]
    assert set(bordered.unique().tolist()) == {3, 7, 200}


def test_a_crop_beside_a_turn_is_the_crop_of_the_turned_volume() -> None:
    x = smooth(5)
    mask = torch.randint(0, 4, (5, *SIZE))
    turn, crop = Affine3D(30, translate=0.1, padding="border"), Crop((6, 7, 8))
    both = Pipeline(turn, crop, roles=ROLES)
    assert len(both._stages) == 1
    draws = both.draw(range(5))
    after = both.replay({"x": x, "mask": mask}, draws)
    turned = Pipeline(turn, roles=ROLES)({"x": x, "mask": mask}, index=range(5))
    start = (both.explain(draws)[1]["start"] * torch.tensor([7, 8, 10])).long()
    differing = 0
    for i, (d, h, w) in enumerate(start.tolist()):
        block = (slice(d, d + 6), slice(h, h + 7), slice(w, w + 8))
        torch.testing.assert_close(after["x"][i, 0], turned["x"][i, 0][block], atol=1e-4, rtol=0)
        differing += int((after["mask"][i] != turned["mask"][i][block]).sum())
    assert differing < 3  # a place halfway between two voxels may be rounded either way


def test_flips_are_those_of_numpy_and_as_frequent_as_asked() -> None:
    x = torch.randn(400, 2, 3, 4, 5)
    mask = torch.randint(0, 9, (400, 3, 4, 5))
    aug = Pipeline(Flip(0.2, 0.5, 0.8), roles=ROLES)
    after = aug({"x": x, "mask": mask}, index=range(400))
    drawn = explained(aug, 400)
    chances = {"depth": 0.2, "height": 0.5, "width": 0.8}
    for i in range(400):
        axes = tuple(axis for axis, name in enumerate(chances, 1) if drawn[name][i] < chances[name])
        assert np.array_equal(after["x"][i], np.flip(x[i].numpy(), axes))
        assert np.array_equal(after["mask"][i], np.flip(mask[i].numpy(), tuple(axis - 1 for axis in axes)))
    for name, chance in chances.items():
        assert stats.binomtest(int((drawn[name] < chance).sum()), 400, chance).pvalue > 1e-4


def test_a_certain_flip_flips_every_sample() -> None:
    x = torch.arange(3000.0).view(1000, 1, 1, 1, 3)
    assert torch.equal(Flip(0, 0, 1)(x), x.flip(-1))
    assert torch.equal(Flip(0, 0, 0)(x), x)


def test_a_crop_takes_every_place_and_the_last_one_too() -> None:
    x = torch.arange(4 * 5 * 6).view(1, 1, 4, 5, 6).expand(300, 1, 4, 5, 6)
    aug = Pipeline(Crop((2, 5, 4)), roles=ROLES)
    after = aug({"x": x, "mask": x[:, 0]}, index=range(300))
    assert torch.equal(after["x"][:, 0], after["mask"])
    first = after["mask"][:, 0, 0, 0]
    starts = [[d, 0, w] for d in range(3) for w in range(3)]
    assert sorted(first.unique().tolist()) == [(d * 5 + h) * 6 + w for d, h, w in starts]
    assert stats.chisquare(np.unique(first, return_counts=True)[1]).pvalue > 1e-4
    for i, (d, h, w) in enumerate(starts):
        found = after["mask"][first == (d * 5 + h) * 6 + w]
        assert torch.equal(found[0], x[i, 0, d : d + 2, h : h + 5, w : w + 4])


def test_a_crop_may_be_from_the_middle_or_of_everything() -> None:
    x = torch.randn(3, 2, 7, 8, 9)
    assert torch.equal(Crop((3, 4, 4), random=False)(x), x[:, :, 2:5, 2:6, 2:6])
    assert torch.equal(Crop((7, 8, 9))(x), x)
    assert torch.equal(Crop((7, 8, 9), random=False)(x), x)
    with pytest.raises(UsageError, match=r"at least \(8, 8, 8\), got \(7, 8, 9\)"):
        Crop(8)(x)


@pytest.mark.parametrize("size", [(11, 12, 13), (2, 3, 40), (70, 64, 66)], ids=str)
def test_blur_is_that_of_scipy(size: tuple[int, ...]) -> None:
    x = torch.randn(3, 2, *size)
    assert x.numel() < _BLOCK or x[0, 0].numel() > _BLOCK
    aug = Pipeline(GaussianBlur(((0, 2), (0.3, 1), 1.5)), roles={"x": "volume"})
    drawn = explained(aug, 3)
    after = aug({"x": x}, index=range(3))["x"]
    for i in range(3):
        sigma = [drawn[f"sigma_{axis}"][i] for axis in ("depth", "height", "width")]
        for channel in range(2):
            expected = ndimage.gaussian_filter(x[i, channel].numpy(), sigma, mode="nearest")
            np.testing.assert_allclose(after[i, channel], expected, atol=2e-6)
    with_gradient = aug({"x": x.clone().requires_grad_()}, index=range(3))["x"]
    assert torch.equal(with_gradient.detach(), after)


def test_one_sigma_is_that_of_all_axes() -> None:
    x = torch.randn(1, 1, 9, 9, 9)
    aug = Pipeline(GaussianBlur((0.5, 2)), roles={"x": "volume"})
    sigma = float(explained(aug, 1)["sigma"][0])
    expected = ndimage.gaussian_filter(x[0, 0].numpy(), sigma, mode="nearest")
    np.testing.assert_allclose(aug({"x": x}, index=[0])["x"][0, 0], expected, atol=2e-6)


@pytest.mark.parametrize("per", ["sample", "channel"])
def test_gamma_bends_between_the_least_and_the_greatest(per: Any) -> None:
    x = torch.randn(4, 2, 5, 6, 7) * 300 - 400
    x[3] = -1000.0
    aug = Pipeline(Gamma((0.4, 2.5), per=per), roles={"x": "volume"})
    gamma = explained(aug, 4)["gamma"]
    after = aug({"x": x}, index=range(4))["x"].numpy()
    axes = (1, 2, 3, 4) if per == "sample" else (2, 3, 4)
    values = x.double().numpy()
    low, high = values.min(axes, keepdims=True), values.max(axes, keepdims=True)
    share = (values - low) / np.maximum(high - low, 1e-30)
    expected = low + (high - low) * share ** gamma.reshape(4, 1, 1, 1, 1)
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-3)
    assert np.array_equal(after[3], x[3])
    assert np.isfinite(after).all()


def test_scale_and_shift_are_one_number_a_sample() -> None:
    x = torch.randn(6, 2, 3, 4, 5)
    aug = Pipeline(IntensityScale((0.5, 2)), IntensityShift(3.0), roles={"x": "volume"})
    drawn = aug.explain(aug.draw(range(6)))
    factor, offset = drawn[0]["factor"], drawn[1]["offset"]
    expected = x * factor.view(-1, 1, 1, 1, 1) + offset.view(-1, 1, 1, 1, 1)
    assert torch.equal(aug({"x": x}, index=range(6))["x"], expected)


def test_a_shift_of_nothing_keeps_the_sign_of_zero() -> None:
    x = torch.full((4, 1, 2, 2, 2), -0.0)
    assert torch.signbit(IntensityShift(1.0, p=0)(x)).all()
    aug = Pipeline(IntensityShift(1.0, p=0.5), roles={"x": "volume"})
    after = aug({"x": x}, index=range(4))["x"]
    chosen = aug.draw(range(4)).chosen[:, 0]
    assert 0 < int(chosen.sum()) < 4
    assert torch.signbit(after[~chosen]).all()


def test_noise_is_white_and_as_strong_as_drawn() -> None:
    x = torch.ones(3, 2, 20, 21, 23)
    aug = Pipeline(GaussianNoise((0.1, 2)), roles={"x": "volume"})
    std = explained(aug, 3)["std"]
    noise = (aug({"x": x}, index=range(3))["x"] - 1).double().numpy() / std[:, None, None, None, None]
    for i in range(3):
        assert stats.kstest(noise[i].ravel(), "norm").pvalue > 1e-4
    flat = noise.reshape(6, -1)
    apart = np.corrcoef(flat)[~np.eye(6, dtype=bool)]
    assert np.abs(apart).max() < 5 / np.sqrt(flat.shape[1])
    for axis in (2, 3, 4):
        beside = (noise * np.roll(noise, 1, axis)).mean()
        assert abs(beside) < 5 / np.sqrt(noise.size)


def test_whole_numbers_stay_where_voxels_are_moved_and_become_floats_where_they_are_computed() -> None:
    ct = torch.randint(-1000, 1000, (3, 1, 6, 7, 8), dtype=torch.int16)
    assert Flip()(ct).dtype == torch.int16
    assert Crop(4)(ct).dtype == torch.int16
    for transform in (
        Affine3D(10),
        Gamma(2),
        GaussianBlur(1),
        GaussianNoise(5),
        IntensityScale(),
        IntensityShift(9),
    ):
        for p in (0.0, 1.0):
            transform.p = p
            assert transform(ct).dtype == torch.float32
    assert torch.equal(IntensityScale(2)(ct), ct.float() * 2)


def test_what_does_not_fit_is_named() -> None:
    x, mask = torch.zeros(2, 1, 6, 7, 8), torch.zeros(2, 6, 7, 8, dtype=torch.int64)
    for transform in (Flip(), Affine3D(10), Crop(4)):
        with pytest.raises(UsageError, match=r"a mask of volumes must be \[B, D, H, W\]"):
            Pipeline(transform, roles=ROLES)({"x": x, "mask": mask[:, 0]})
    with pytest.raises(UsageError, match="fields of one size"):
        Pipeline(Crop(4), roles=ROLES)({"x": x, "mask": mask[:, 1:]})
    with pytest.raises(UsageError, match=r"ignore must be a value that a mask of torch\.uint8 can hold"):
        Pipeline(Affine3D(9, ignore=-100), roles=ROLES)({"x": x, "mask": mask.to(torch.uint8)})
    for wrong in (
        lambda: Affine3D(spacing=(1, 1)),
        lambda: Affine3D(scale=0),
        lambda: Affine3D(padding="wrap"),  # type: ignore[arg-type]
        lambda: Crop((3, 0, 3)),
        lambda: Flip(1.5),
        lambda: Gamma(0),
        lambda: Gamma(per="voxel"),  # type: ignore[arg-type]
        lambda: GaussianBlur(-1),
        lambda: GaussianNoise(-1),
    ):
        with pytest.raises(UsageError, match="must"):
            wrong()


def test_large_volumes_get_the_same_bits_in_every_batch() -> None:
    """Large enough to be computed block by block, in several ways."""
    aug = Pipeline(*preset("cardiac_ct").transforms, Flip(), Crop((60, 64, 61)), roles=ROLES)
    x = torch.rand(5, 1, 72, 64, 65)
    mask = torch.randint(0, 5, (5, 72, 64, 65))
    torch.set_num_threads(2)
    together = aug({"x": x, "mask": mask}, index=range(5))
    for i in range(5):
        torch.set_num_threads(1 + i % 2)
        alone = aug({"x": x[i : i + 1], "mask": mask[i : i + 1]}, index=[i])
        assert torch.equal(alone["x"][0], together["x"][i])
        assert torch.equal(alone["mask"][0], together["mask"][i])


def test_the_policy_for_chest_ct_is_a_careful_one() -> None:
    x = smooth(24, (20, 24, 16)).sigmoid()
    after = preset("cardiac_ct", seed=1)({"x": x}, index=range(24))["x"]
    changed = (after != x).flatten(1).any(1)
    assert changed.float().mean() > 0.7
    likeness = np.corrcoef(after[:, 0, 4:-4, 4:-4, 4:-4].flatten(), x[:, 0, 4:-4, 4:-4, 4:-4].flatten())[0, 1]
    assert likeness > 0.7
