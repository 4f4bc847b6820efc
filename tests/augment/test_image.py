"""Image transforms against PIL, scipy and colorsys, and masks that move with their images."""

import colorsys
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from scipy import ndimage
from torch import Tensor

from augment.examples import CASES, batch_of, pipeline, roles_of
from stoker.augment import Geometric, Pipeline, Role, Transform, preset
from stoker.augment.image import (
    Affine,
    ColorJitter,
    Erase,
    GaussianBlur,
    GaussianNoise,
    HorizontalFlip,
    Normalize,
    RandomResizedCrop,
    VerticalFlip,
)
from stoker.augment.image._hue import turn_hue
from stoker.errors import ConfigError, UsageError

Floats = NDArray[np.float64]
ROLES: dict[str, Role] = {"image": "image", "mask": "mask"}
HEIGHT, WIDTH = 61, 84
BYTE = 1 / 255


def smooth_images(num_samples: int = 4, height: int = HEIGHT, width: int = WIDTH) -> Tensor:
    """Colour images from 0.2 to 0.8 without sharp edges."""
    generator = torch.Generator().manual_seed(3)
    coarse = torch.rand(num_samples, 3, 6, 8, generator=generator) * 0.6 + 0.2
    return torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0.2, 0.8)


def masks_of(images: Tensor, num_classes: int = 6) -> Tensor:
    """Regions of the image as classes."""
    return (images.mean(1) * num_classes).to(torch.int64).clamp(0, num_classes - 1)


def as_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())


def from_pil(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)


def classes_of(mask: Tensor) -> set[int]:
    return set(mask.flatten().tolist())


def apply(*transforms: Transform, **batch: Tensor) -> dict[str, Tensor]:
    roles = {name: ROLES[name] for name in batch}
    changed: dict[str, Tensor] = Pipeline(*transforms, roles=roles)(
        batch, index=range(len(next(iter(batch.values()))))
    )
    return changed


@pytest.fixture
def num_samplings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by the mode of every sampling."""
    modes: list[str] = []
    plain = torch.nn.functional.grid_sample

    def counted(*args: Any, **options: Any) -> Tensor:
        modes.append(options["mode"])
        return plain(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "grid_sample", counted)
    return modes


# flips


def test_flips_equal_those_of_pil() -> None:
    images = (smooth_images() * 255).to(torch.uint8)
    for transform, way in (
        (HorizontalFlip(p=1), Image.Transpose.FLIP_LEFT_RIGHT),
        (VerticalFlip(p=1), Image.Transpose.FLIP_TOP_BOTTOM),
    ):
        after = apply(transform, image=images)["image"]
        for image, flipped in zip(images, after, strict=True):
            assert torch.equal(flipped, from_pil(as_pil(image).transpose(way)) / 255)


def test_flips_alone_or_together_are_not_sampled(num_samplings: list[str]) -> None:
    images = smooth_images()
    after = apply(HorizontalFlip(p=1), VerticalFlip(p=1), image=images, mask=masks_of(images))
    assert torch.equal(after["image"], images.flip(-1, -2))
    assert torch.equal(after["mask"], masks_of(images).flip(-1, -2))
    assert not num_samplings


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.int16])
@pytest.mark.parametrize("beside", [[], [Affine(0)]], ids=["alone", "sampled"])
def test_left_and_right_classes_change_places_where_mirrored(
    dtype: torch.dtype, beside: list[Transform]
) -> None:
    generator = torch.Generator().manual_seed(0)
    masks = torch.randint(0, 7, (40, 9, 11), generator=generator).to(dtype)
    masks[:, 0, 0] = 255
    aug = Pipeline(HorizontalFlip(swap_classes={0: 1, 4: 5}, p=0.5), *beside, roles={"mask": "mask"})
    draws = aug.draw(range(40))
    after = aug.replay({"mask": masks}, draws)["mask"]
    assert after.dtype == dtype
    renamed = torch.tensor([1, 0, 2, 3, 5, 4, 6] + [0] * 248 + [255])
    for mask, result, chosen in zip(masks, after, draws.chosen[:, 0], strict=True):
        expected = renamed[mask.long()].flip(-1).to(dtype) if chosen else mask
        assert torch.equal(result, expected)


def test_ignored_values_below_zero_are_not_swapped() -> None:
    mask = torch.tensor([[[-100, -1, 0, 1]]])
    assert apply(HorizontalFlip(swap_classes={0: 1}, p=1), mask=mask)["mask"].tolist() == [[[0, 1, -1, -100]]]


def test_a_class_is_swapped_with_one_other() -> None:
    assert HorizontalFlip(swap_classes={4: 5, 5: 4}).swap_classes == {4: 5, 5: 4}
    with pytest.raises(UsageError, match="swapped with one other, got 5 with 4 and 6"):
        HorizontalFlip(swap_classes={4: 5, 6: 5})
    with pytest.raises(UsageError, match="classes from 0"):
        HorizontalFlip(swap_classes={-1: 5})


# geometry


@pytest.mark.parametrize("angle", [20, -35, 90])
def test_positive_angles_turn_counter_clockwise_as_in_pil(angle: float) -> None:
    images = smooth_images(height=81, width=81)
    after = apply(Affine(rotate=(angle, angle)), image=images)["image"]
    ramp = torch.arange(81) - 40
    inside = (ramp[:, None].square() + ramp.square()) < 38**2
    for image, turned in zip(images, after, strict=True):
        pil = as_pil((image * 255).round().to(torch.uint8)).rotate(angle, Image.Resampling.BILINEAR)
        assert (turned - from_pil(pil) * BYTE)[:, inside].abs().max() < 2 * BYTE


def forward_matrix(rotate: float, scale: float, shear: float) -> Floats:
    """As the docstring says: slanted, scaled, turned; (x, y) from the centre, y down."""
    angle = math.radians(rotate)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return turn @ (scale * np.array([[1, -math.tan(math.radians(shear))], [0, 1]]))


def test_affine_equals_scipy() -> None:
    images = smooth_images(8)
    masks = masks_of(images)
    aug = Pipeline(Affine(40, scale=(0.6, 1.5), translate=0.3, shear=25, ignore=99), roles=ROLES)
    draws = aug.draw(range(8))
    drawn = {name: value.double().numpy() for name, value in aug.explain(draws)[0].items()}
    after = aug.replay({"image": images, "mask": masks}, draws)
    differing = 0.0
    for i in range(8):
        forward = forward_matrix(drawn["rotate"][i], drawn["scale"][i], drawn["shear"][i])
        back = np.linalg.inv(forward)[::-1, ::-1]  # scipy's axes: y first
        centre = np.array([(HEIGHT - 1) / 2, (WIDTH - 1) / 2])
        moved = drawn["translate"][i][::-1] * [HEIGHT, WIDTH]
        offset = centre - back @ (centre + moved)
        for channel in range(3):
            expected = ndimage.affine_transform(
                images[i, channel].double().numpy(), back, offset, order=1, mode="grid-constant"
            )
            np.testing.assert_allclose(after["image"][i, channel].numpy(), expected, atol=1e-4)
        classes = ndimage.affine_transform(masks[i].numpy(), back, offset, order=0, mode="constant", cval=99)
        differing += float((after["mask"][i].numpy() != classes).mean()) / 8
    assert differing < 0.01  # scipy calls the outer half of the outermost pixels outside


def test_the_whole_edge_of_a_mask_belongs_to_it() -> None:
    mask = torch.ones(1, 10, 10, dtype=torch.int64)
    after = apply(Affine(scale=(2, 2)), mask=mask)["mask"]
    assert (after == 1).all()
    moved = apply(Affine(translate=0.2).eval(), mask=mask)["mask"]
    assert classes_of(moved) <= {1, 255}


def test_image_and_mask_move_identically() -> None:
    ramp = torch.arange(HEIGHT * WIDTH).view(1, HEIGHT, WIDTH).repeat(6, 1, 1)
    aug = [
        HorizontalFlip(p=0.5),
        Affine(40, scale=(0.6, 1.5), translate=0.3, shear=25, interpolation="nearest", ignore=0, p=0.9),
    ]
    after = apply(*aug, image=ramp[:, None].double(), mask=ramp)
    assert torch.equal(after["image"][:, 0].long(), after["mask"])
    across = torch.arange(WIDTH, dtype=torch.float32).expand(6, HEIGHT, -1)
    after = apply(RandomResizedCrop((40, 50)), image=across[:, None], mask=across.long())
    assert (after["image"][:, 0] - after["mask"]).abs().max() <= 0.5 + 1e-3


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_masks_have_their_classes_or_the_ignored_one(padding: Any) -> None:
    images = smooth_images(12)
    masks = masks_of(images)
    after = apply(Affine(45, scale=(0.5, 2), padding=padding, ignore=250), image=images, mask=masks)["mask"]
    allowed = classes_of(masks) | ({250} if padding == "zeros" else set())
    assert classes_of(after) <= allowed
    assert (250 in classes_of(after)) == (padding == "zeros")


def test_masks_may_have_a_channel() -> None:
    images = smooth_images()
    transforms = [HorizontalFlip(swap_classes={1: 2}, p=0.5), Affine(30), Erase(ignore=255, p=1)]
    flat = apply(*transforms, image=images, mask=masks_of(images))["mask"]
    deep = apply(*transforms, image=images, mask=masks_of(images)[:, None])["mask"]
    assert torch.equal(deep[:, 0], flat)


def test_fused_geometry_is_sampled_once_and_equals_one_after_the_other(num_samplings: list[str]) -> None:
    images = smooth_images(height=120, width=90)
    chain = [
        HorizontalFlip(p=1),
        Affine(rotate=(15, 15), padding="border"),
        Affine(scale=(1.3, 1.3), translate=(0.05, 0.05), padding="border"),
        RandomResizedCrop((50, 70), scale=0.5),
    ]
    together = Pipeline(*chain, roles=ROLES)
    draws = together.draw(range(4))
    batch = {"image": images, "mask": masks_of(images)}
    fused = together.replay(batch, draws)
    assert num_samplings == ["bilinear", "nearest"]
    for place in range(4):
        alone = Pipeline(chain[place], roles=ROLES)
        batch = alone.replay(batch, draws_of(together, draws, place))
    assert len(num_samplings) == 2 + 2 * 3
    assert fused["image"].shape == batch["image"].shape == (4, 3, 50, 70)
    assert (fused["image"] - batch["image"]).abs().max() < 0.015  # each sampling smoothes a little
    assert (fused["image"] - batch["image"]).abs().mean() < 2e-3
    assert (fused["mask"] != batch["mask"]).float().mean() < 0.03


def draws_of(together: Pipeline, draws: Any, place: int) -> Any:
    """What one transform of a pipeline drew, as if it were alone."""
    columns = np.arange(draws.values.shape[1])
    mine = [columns[column.where].reshape(-1) for column in together._layout._places[place].columns.values()]
    values = draws.values[:, np.concatenate([columns[:0], *mine])]
    return draws._replace(values=values, chosen=draws.chosen[:, place : place + 1], rows=(None,))


def test_what_never_looks_beyond_the_edge_fuses_with_every_padding() -> None:
    border = Affine(10, padding="border")
    assert num_stages(HorizontalFlip(), border, RandomResizedCrop(8)) == 1
    assert num_stages(RandomResizedCrop(8), VerticalFlip(), Affine(10)) == 1
    assert num_stages(border, HorizontalFlip(), Affine(10)) == 2
    assert num_stages(Affine(10), Affine(10, ignore=0)) == 2
    assert num_stages(Affine(10), Affine(10, interpolation="nearest")) == 2
    assert num_stages(HorizontalFlip(), VerticalFlip()) == 2
    assert num_stages(HorizontalFlip(), ColorJitter(0.1), Affine(10)) == 3


def num_stages(*transforms: Transform) -> int:
    return len(Pipeline(*transforms, roles=ROLES)._stages)


def test_a_crop_equals_pil_resizing_the_same_box() -> None:
    images = smooth_images(6)
    aug = Pipeline(RandomResizedCrop((90, 100), scale=(0.2, 0.8)), roles={"image": "image"})
    draws = aug.draw(range(6))
    crop = aug.transforms[0]
    assert isinstance(crop, Geometric)
    matrices = crop.matrix(aug._layout.params(draws, 0), (HEIGHT, WIDTH))
    after = aug.replay({"image": images}, draws)["image"]
    for image, matrix, cut in zip(images, matrices.double(), after, strict=True):
        left, right = (float(WIDTH * (matrix[0, 2] + side * matrix[0, 0] + 1) / 2) for side in (-1, 1))
        top, bottom = (float(HEIGHT * (matrix[1, 2] + side * matrix[1, 1] + 1) / 2) for side in (-1, 1))
        box = (max(0, left), max(0, top), min(WIDTH, right), min(HEIGHT, bottom))
        for channel in range(3):
            plane = Image.fromarray(image[channel].numpy())
            expected = np.asarray(plane.resize((100, 90), Image.Resampling.BILINEAR, box))
            np.testing.assert_allclose(cut[channel].numpy(), expected, atol=1e-4)


def test_crops_have_the_area_and_ratio_that_were_drawn() -> None:
    aug = Pipeline(RandomResizedCrop(32, scale=(0.1, 0.4), ratio=(0.8, 1.25)), roles={"image": "image"})
    draws = aug.draw(range(500))
    crop = aug.transforms[0]
    assert isinstance(crop, Geometric)
    matrix = crop.matrix(aug._layout.params(draws, 0), (200, 300)).double()
    drawn = aug.explain(draws)[0]
    width, height = matrix[:, 0, 0], matrix[:, 1, 1]
    torch.testing.assert_close(width * height, drawn["scale"].double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(width * 300 / (height * 200), drawn["ratio"].double(), atol=1e-5, rtol=0)
    assert (matrix[:, :, 2].abs() <= 1 - torch.stack([width, height], 1) + 1e-6).all()


# colour


@pytest.mark.parametrize(
    ("name", "enhance"),
    [
        ("brightness", ImageEnhance.Brightness),
        ("contrast", ImageEnhance.Contrast),
        ("saturation", ImageEnhance.Color),
    ],
)
@pytest.mark.parametrize("factor", [0.0, 0.6, 1.2])
def test_each_level_equals_pil(name: str, enhance: Any, factor: float) -> None:
    images = (smooth_images() * 255).round().to(torch.uint8)
    arguments: dict[str, Any] = {name: (factor, factor)}
    after = apply(ColorJitter(**arguments), image=images)["image"]
    for image, changed in zip(images, after, strict=True):
        expected = from_pil(enhance(as_pil(image)).enhance(factor)) * BYTE
        assert (changed - expected).abs().max() < 1.6 * BYTE


def test_levels_together_equal_pil_in_the_stated_order() -> None:
    images = (smooth_images(20) * 255).round().to(torch.uint8)
    aug = Pipeline(ColorJitter(0.1, 0.1, 0.3), roles={"image": "image"})
    draws = aug.draw(range(20))
    drawn = aug.explain(draws)[0]
    after = aug.replay({"image": images}, draws)["image"]
    for i, image in enumerate(images):
        expected = as_pil(image)
        exact = image.double().numpy() * BYTE
        for name, enhance in (
            ("brightness", ImageEnhance.Brightness),
            ("contrast", ImageEnhance.Contrast),
            ("saturation", ImageEnhance.Color),
        ):
            factor = float(drawn[name][i])
            expected = enhance(expected).enhance(factor)
            grey = np.tensordot([0.299, 0.587, 0.114], exact, 1)
            base = {"brightness": np.float64(0), "contrast": grey.mean(), "saturation": grey}[name]
            exact = base + factor * (exact - base)
        assert (after[i] - from_pil(expected) * BYTE).abs().max() < 4 * BYTE  # it cuts to bytes thrice
        np.testing.assert_allclose(after[i].numpy(), exact.clip(0, 1), atol=1e-5)


def test_hue_equals_colorsys() -> None:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(6, 3, 10, 10, generator=generator)
    images[0, :, 0, :4] = torch.tensor([[0.5, 0, 0.3, 1], [0.5, 0, 0.3, 0], [0.5, 0, 0.9, 0]])  # grey, black
    aug = Pipeline(ColorJitter(hue=0.5), roles={"image": "image"})
    draws = aug.draw(range(6))
    turns = aug.explain(draws)[0]["hue"].tolist()
    after = aug.replay({"image": images}, draws)["image"]
    for image, turned, turn in zip(images, after, turns, strict=True):
        for before, now in zip(image.flatten(1).T.tolist(), turned.flatten(1).T.tolist(), strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*before)
            assert now == pytest.approx(colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value), abs=1e-5)


def test_no_turn_and_a_whole_turn_keep_the_colours() -> None:
    images = torch.rand(2, 3, 30, 30, generator=torch.Generator().manual_seed(1))
    images[:, :, :3] = images[:, :1, :3]
    torch.testing.assert_close(turn_hue(images, torch.zeros(2)), images, atol=1e-6, rtol=0)
    half = torch.full((2,), 0.5)
    torch.testing.assert_close(turn_hue(turn_hue(images, half), half), images, atol=2e-6, rtol=0)


def test_grey_images_have_brightness_and_contrast_only() -> None:
    grey = smooth_images()[:, :1]
    after = apply(ColorJitter((1.1, 1.1), (0.5, 0.5), (0, 3), 0.5), image=grey)["image"]
    bright = grey * 1.1
    torch.testing.assert_close(after, bright.mean((1, 2, 3), keepdim=True) * 0.5 + bright * 0.5)
    assert torch.equal(apply(ColorJitter(saturation=0.9, hue=0.5), image=grey)["image"], grey)


def test_colours_stay_in_range() -> None:
    images = torch.rand(8, 3, 20, 20, generator=torch.Generator().manual_seed(1))
    after = apply(ColorJitter((0, 3), (0, 3), (0, 3), 0.5), image=images)["image"]
    assert after.min() >= 0
    assert after.max() <= 1


def test_colour_takes_colour_and_grey_images_only() -> None:
    with pytest.raises(UsageError, match="3 channels or of 1, got 2"):
        apply(ColorJitter(0.1), image=torch.rand(1, 2, 5, 5))
    with pytest.raises(UsageError, match=r"hue must lie from -0\.5 to 0\.5"):
        ColorJitter(hue=0.7)
    with pytest.raises(UsageError, match="contrast must be at least 0, got -1"):
        ColorJitter(contrast=-1)


# blur, noise, erasing, normalising


@pytest.mark.parametrize("kernel_size", [None, 3, 9])
def test_blur_equals_scipy_with_each_samples_sigma(kernel_size: int | None) -> None:
    images = torch.rand(5, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(1))
    blur = GaussianBlur((0.3, 3), kernel_size=kernel_size)
    aug = Pipeline(blur, roles={"image": "image"})
    draws = aug.draw(range(5))
    after = aug.replay({"image": images}, draws)["image"]
    for image, blurred, sigma in zip(images, after, aug.explain(draws)[0]["sigma"].tolist(), strict=True):
        radius = min(blur.kernel_size // 2, int(4 * sigma + 0.5))
        expected = ndimage.gaussian_filter(
            image.double().numpy(), sigma, axes=(1, 2), mode="mirror", radius=radius
        )
        np.testing.assert_allclose(blurred.numpy(), expected, atol=1e-5)


def test_a_kernel_is_odd_and_smaller_than_the_image() -> None:
    assert GaussianBlur((0.1, 2)).kernel_size == 17
    with pytest.raises(UsageError, match="odd and at least 1, got 4"):
        GaussianBlur(1, kernel_size=4)
    with pytest.raises(UsageError, match="larger than half the kernel"):
        apply(GaussianBlur(1, kernel_size=21), image=torch.rand(1, 3, 40, 10))


def test_noise_has_its_std_and_is_independent_over_channels() -> None:
    images = torch.full((6, 3, 101, 99), 0.5)
    aug = Pipeline(GaussianNoise((0.01, 0.1)), roles={"image": "image"})
    draws = aug.draw(range(6))
    noise = aug.replay({"image": images}, draws)["image"] - images
    expected = aug.explain(draws)[0]["std"]
    torch.testing.assert_close(noise.std((2, 3)), expected[:, None].expand(-1, 3), rtol=0.05, atol=0)
    assert (noise.mean((1, 2, 3)).abs() < 4 * expected / math.sqrt(3 * 101 * 99)).all()
    correlation = torch.corrcoef(noise.flatten(2).flatten(0, 1)) - torch.eye(18)
    assert correlation.abs().max() < 0.05


def test_erased_is_a_rectangle_of_the_drawn_area_and_nothing_else_changes() -> None:
    images = torch.rand(200, 3, 60, 80, generator=torch.Generator().manual_seed(1)) * 0.5 + 0.2
    aug = Pipeline(Erase((0.05, 0.2), ratio=(0.5, 2), fill=(1, 2, 3), p=1), roles={"image": "image"})
    draws = aug.draw(range(200))
    after = aug.replay({"image": images}, draws)["image"]
    erased = after[:, 0] == 1
    for channel in range(3):
        assert torch.equal(after[:, channel] == channel + 1, erased)
        assert torch.equal(after[:, channel][~erased], images[:, channel][~erased])
    height, width = erased.any(2).sum(1), erased.any(1).sum(1)
    assert torch.equal(height * width, erased.sum((1, 2)))
    share, ratio = (aug.explain(draws)[0][name][:, 0] for name in ("scale", "ratio"))
    torch.testing.assert_close(erased.float().mean((1, 2)), share, rtol=0.12, atol=0)
    torch.testing.assert_close(width / height, ratio, rtol=0.12, atol=0)
    for edge in (erased[:, 0], erased[:, -1], erased[:, :, 0], erased[:, :, -1]):
        assert edge.any()  # every place is possible, the outermost too


@pytest.mark.parametrize("ignore", [None, 255])
def test_masks_see_erasing_only_if_asked(ignore: int | None) -> None:
    images = smooth_images()
    masks = masks_of(images)
    after = apply(Erase(0.3, fill=2.0, num_boxes=2, ignore=ignore, p=1), image=images, mask=masks)
    erased = after["image"][:, 0] == 2
    assert erased.any()
    assert torch.equal(after["mask"], masks if ignore is None else masks.masked_fill(erased, 255))


def test_noise_in_place_of_what_is_erased_is_grey_on_average() -> None:
    images = torch.full((50, 3, 40, 40), 2.0)
    after = apply(Erase((0.3, 0.5), fill="noise", p=1), image=images)["image"]
    noise = after[after != 2]
    assert 0 <= noise.min() < noise.max() <= 1
    assert float(noise.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(noise.std()) == pytest.approx(0.24, abs=0.01)


def test_masks_never_see_colour_blur_noise_or_levels() -> None:
    images = smooth_images()
    masks = masks_of(images)
    after = apply(
        ColorJitter(0.5, 0.5, 0.5, 0.1),
        GaussianBlur(2),
        GaussianNoise(0.1),
        Normalize(0.5, 0.2),
        image=images,
        mask=masks,
    )
    assert after["mask"] is masks


def test_normalizing_is_by_channel() -> None:
    images = (smooth_images() * 255).to(torch.uint8)
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.4])
    after = apply(Normalize(mean.tolist(), std.tolist()), image=images)["image"]
    torch.testing.assert_close(after, (images / 255 - mean[:, None, None]) / std[:, None, None])
    with pytest.raises(UsageError, match="each of 3 channels, got 2"):
        apply(Normalize((0.5, 0.5), 1), image=images)
    with pytest.raises(UsageError, match="std must be above 0"):
        Normalize(0.5, (0.2, 0, 0.2))


# dtypes


@pytest.mark.parametrize(
    "case", [case for case in CASES if case[0].startswith("image.")], ids=lambda case: f"{case[0]}-{case[1]}"
)
@pytest.mark.parametrize("static", [False, True], ids=["rows", "static"])
def test_bytes_become_floats_from_zero_to_one(case: tuple[str, int], static: bool) -> None:
    batch = batch_of(roles_of(case), 10)
    batch["x"] = (batch["x"] * 255).to(torch.uint8)
    for p in (0.0, 0.5):
        aug = pipeline(case, static=static, p=p)
        after, expected = aug(batch), aug(batch | {"x": batch["x"].to(torch.float32) / 255})
        assert after["x"].dtype == torch.float32
        assert torch.equal(after["x"], expected["x"])


def test_other_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match=r"uint8 or of a floating dtype to be augmented, got torch.int16"):
        apply(ColorJitter(0.1), image=torch.zeros(1, 3, 5, 5, dtype=torch.int16))


def test_a_mask_must_be_able_to_hold_what_is_ignored() -> None:
    masks = torch.zeros(1, 5, 5, dtype=torch.uint8)
    with pytest.raises(UsageError, match=r"mask of torch.uint8 can hold, got -1; choose one from 0 to 255"):
        apply(Affine(10, ignore=-1), mask=masks)
    with pytest.raises(UsageError, match=r"mask of torch.bool can hold, got 255"):
        apply(Affine(10), mask=masks.bool())
    with pytest.raises(UsageError, match="can hold, got 300"):
        apply(Erase(ignore=300), image=torch.rand(1, 3, 5, 5), mask=masks)
    assert not apply(Affine(10, ignore=0), mask=masks.bool())["mask"].any()
    assert not apply(Affine(10, ignore=-1, padding="border"), mask=masks)["mask"].any()


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"image.Affine": {"padding": "wrap"}}, "padding must be one of 'zeros', 'border', 'reflection'"),
        ({"image.Affine": {"scale": 0}}, "scale must lie from 0.001"),
        ({"image.RandomResizedCrop": {"size": [3, 0]}}, "size must be a height and a width"),
        ({"image.Erase": {"fill": "grey"}}, "fill must be a number, one for each channel or 'noise'"),
        ({"image.Erase": {"num_boxes": 0}}, "num_boxes must be at least 1"),
    ],
)
def test_wrong_arguments_are_refused(item: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Pipeline.from_config({"roles": {"x": "image"}, "transforms": [item]})


# the policy


def test_the_face_policy_samples_once_and_keeps_the_classes(num_samplings: list[str]) -> None:
    images = (smooth_images(16) * 255).to(torch.uint8)
    masks = torch.randint(0, 19, (16, HEIGHT, WIDTH), generator=torch.Generator().manual_seed(0))
    after = preset("face_parsing")({"image": images, "mask": masks}, index=range(16))
    assert num_samplings == ["bilinear", "nearest"]
    assert after["image"].dtype == torch.float32
    assert after["image"].shape == images.shape
    assert classes_of(after["mask"]) == {*range(19), 255}


def test_the_face_policy_gives_the_same_bits_in_every_batch_and_with_every_number_of_threads() -> None:
    images = torch.randint(0, 256, (9, 3, 201, 203), generator=torch.Generator().manual_seed(0))
    batch = {"image": images.to(torch.uint8), "mask": images[:, 0] % 19}
    aug = preset("face_parsing")
    whole = aug(batch, index=range(9))
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        for part in (slice(0, 9), slice(4, 5), slice(2, 9)):
            again = aug({name: value[part] for name, value in batch.items()}, index=range(9)[part])
            assert all(torch.equal(again[name], whole[name][part]) for name in whole)


def test_the_face_policy_calls_a_mirrored_left_eye_right() -> None:
    masks = torch.zeros(32, 40, 40, dtype=torch.int64)
    masks[:, 18:22, 8:16] = 4
    masks[:, 18:22, 24:32] = 5
    aug = preset("face_parsing", roles={"mask": "mask", "image": "image"})
    after = aug({"mask": masks, "image": torch.rand(32, 3, 40, 40)}, index=range(32))["mask"]
    place = torch.arange(40.0)
    for mask in after:
        left, right = ((mask == number).float() for number in (4, 5))
        assert (left * place).sum() / left.sum() < (right * place).sum() / right.sum()
