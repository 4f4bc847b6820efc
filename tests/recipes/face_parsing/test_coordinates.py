"""Image and mask lie over each other, to the pixel, from the files to the augmented batch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

import stoker
from stoker.recipes.face_parsing import MIRRORED, FaceSettings
from stoker.recipes.face_parsing._augment import make_augment
from stoker.recipes.face_parsing._data import make_loader
from stoker.recipes.face_parsing._prepare import prepare
from stoker.recipes.face_parsing._settings import AugmentSettings

ONLY_GEOMETRY = {"colour_probability": 0, "blur_probability": 0, "noise_probability": 0}
GREY = 13  # a class' grey value in the image is so many times its number


def write_pattern(folder: Path, name: str, mask: NDArray[np.uint8], values: NDArray[np.uint8]) -> None:
    """An image without loss whose pixels say what the mask must be there."""
    for kind, array in (("images", np.stack([values] * 3, -1)), ("masks", mask)):
        (folder / "train" / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(folder / "train" / kind / f"{name}.png")


def packed(folder: Path, size: int) -> stoker.Store:
    settings = FaceSettings.model_validate({"images": {"size": size}, "progress": False})
    prepare(folder, folder / f"{size}.stoker", settings, workers=0)
    return stoker.open(folder / f"{size}.stoker")


@pytest.mark.parametrize(
    ("raw", "size", "multiple"), [(64, 64, 1), (128, 64, 2), (256, 64, 4), (96, 64, 3), (48, 96, 1)]
)
def test_a_rectangle_is_at_the_same_pixels_of_image_and_mask_after_packing(
    raw: int, size: int, multiple: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    for number in range(5):
        mask = np.zeros((raw, raw), np.uint8)
        first, last = (
            rng.integers(low, low + raw // (3 * multiple), 2) * multiple for low in (1, raw // (2 * multiple))
        )
        mask[first[0] : last[0], first[1] : last[1]] = 13
        write_pattern(tmp_path, f"{number}", mask, np.where(mask > 0, 255, 0).astype(np.uint8))
    for sample in packed(tmp_path, size):
        image, mask = np.asarray(sample["image"]), np.asarray(sample["mask"])
        assert image.dtype == mask.dtype == np.uint8
        np.testing.assert_array_equal(image[0] > 127, mask == 13)


def test_the_augmented_mask_is_that_of_the_place_which_the_image_shows() -> None:
    """Channels are ramps, so an interpolated value is the very place it was read at."""
    size, count = 64, 40
    place = torch.arange(size, dtype=torch.float32)
    down, across = place[:, None].expand(size, size), place.expand(size, size)
    image = torch.stack([down / 100, across / 100, torch.ones(size, size)]).expand(count, -1, -1, -1)
    mask = (1000 + down * size + across).to(torch.int32).expand(count, -1, -1)  # a number for each place
    augment = make_augment(
        AugmentSettings.model_validate({**ONLY_GEOMETRY, "rotate_probability": 1, "scale_probability": 1}),
        seed=1,
    )
    assert augment is not None
    batch = augment({"image": image, "mask": mask}, index=np.arange(count), epoch=0)
    inside = (batch["mask"] != 255) & (batch["image"][:, 2] > 0.99999)  # nothing from outside in it
    assert inside.float().mean() > 0.6
    number = (batch["mask"] - 1000)[inside]
    for channel, expected in enumerate((number // size, number % size)):
        shown = batch["image"][:, channel][inside] * 100
        assert (shown - expected).abs().max() <= 0.5 + 1e-3
    outside = batch["mask"] == 255
    assert outside.any()
    assert (batch["image"][:, 2][outside] < 0.99999).all()


def test_packed_and_augmented_classes_stay_on_their_pixels_and_mirrored_ones_change_sides(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(2)
    for number in range(16):
        blocks = rng.integers(0, 19, (6, 6)).astype(np.uint8)
        mask = np.kron(blocks, np.ones((8, 8), np.uint8))
        write_pattern(tmp_path, f"{number}", mask, mask * np.uint8(GREY))
    settings = FaceSettings.model_validate({"augment": ONLY_GEOMETRY, "training": {"batch_size": 16}})
    augment = make_augment(settings.augment, seed=0)
    mirror = torch.arange(256)
    for one, other in MIRRORED.items():
        mirror[one], mirror[other] = other, one
    num_mirrored = 0
    with make_loader(packed(tmp_path, 48), settings, device="cpu", augment=augment) as loader:
        for _ in range(3):
            batch = next(iter(loader))
            for image, mask in zip(batch["image"], batch["mask"].long(), strict=True):
                plain = _uniform(mask) & (mask != 255)
                shown = (image[0] * 255 / GREY).round().long()
                assert plain.float().mean() > 0.2
                as_it_was, mirrored = (
                    bool((each[plain] == mask[plain]).all()) for each in (shown, mirror[shown])
                )
                assert as_it_was or mirrored
                num_mirrored += mirrored and not as_it_was
    assert 10 < num_mirrored < 40  # of 48


def _uniform(mask: Tensor) -> Tensor:
    """Where all neighbours have the same class, so that interpolation mixes nothing."""
    around = torch.nn.functional.unfold(
        torch.nn.functional.pad(mask[None, None].float(), (1, 1, 1, 1), value=-1), 3
    )
    return (around == around[:, 4:5]).all(1).view(mask.shape)


def test_mixing_takes_the_mask_along(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    for number in range(12):
        mask = np.full((32, 32), number, np.uint8)
        write_pattern(tmp_path, f"{number:02d}", mask, mask * np.uint8(GREY))
    options = {"flip": 0, "rotate": 0, "scale_probability": 0, **ONLY_GEOMETRY}
    store = packed(tmp_path, 32)
    seen = {}
    for name in ("cutmix", "mixup"):
        settings = FaceSettings.model_validate(
            {"augment": {**options, f"{name}_probability": 1}, "training": {"batch_size": 12}}
        )
        augment = make_augment(settings.augment, seed=int(rng.integers(100)))
        with make_loader(store, settings, device="cpu", augment=augment) as loader:
            seen[name] = next(iter(loader))
    cut = seen["cutmix"]
    assert torch.equal(cut["image"][:, 0], cut["mask"] * GREY)
    assert (cut["cutmix_lam"] < 1).any()
    mixed = seen["mixup"]
    share = mixed["mixup_lam"][:, None, None]
    expected = (share * mixed["mask"] + (1 - share) * mixed["mask_partner"]) * GREY / 255
    torch.testing.assert_close(mixed["image"][:, 0], expected)
    assert (mixed["mask"] != mixed["mask_partner"]).all()


def test_the_default_policy_is_the_systems_preset() -> None:
    ours = make_augment(AugmentSettings(), seed=0)
    assert ours is not None
    assert ours.to_config() == stoker.augment.preset("face_parsing").to_config()
    nothing = {
        name: 0 for name in AugmentSettings.model_fields if name.endswith("probability") or name == "flip"
    }
    assert make_augment(AugmentSettings.model_validate(nothing), seed=0) is None
