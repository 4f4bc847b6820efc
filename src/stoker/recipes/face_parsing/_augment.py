"""What happens to training batches on the device: image and mask move together."""

from stoker.augment import Pipeline, Transform
from stoker.augment.image import (
    Affine,
    ColorJitter,
    GaussianBlur,
    GaussianNoise,
    HorizontalFlip,
    Normalize,
)
from stoker.augment.mix import CutMix, MixUp
from stoker.recipes.face_parsing._classes import IGNORE, MIRRORED
from stoker.recipes.face_parsing._settings import AugmentSettings


def make_augment(settings: AugmentSettings, *, seed: int) -> Pipeline | None:
    """The pipeline for `image` and `mask` that the settings ask for; None if for nothing.

    Flip, rotation and scale are one sampling. What they bring in from outside is IGNORE in the mask.
    """
    parts: list[Transform] = []
    if settings.flip:
        parts.append(HorizontalFlip(swap_classes=MIRRORED, p=settings.flip))
    if settings.rotate and settings.rotate_probability:
        parts.append(Affine(settings.rotate, ignore=IGNORE, p=settings.rotate_probability))
    if settings.scale != (1, 1) and settings.scale_probability:
        parts.append(Affine(scale=settings.scale, ignore=IGNORE, p=settings.scale_probability))
    colours = {name: getattr(settings, name) for name in ("brightness", "contrast", "saturation", "hue")}
    if any(colours.values()) and settings.colour_probability:
        parts.append(ColorJitter(**colours, p=settings.colour_probability))
    if settings.blur_probability:
        parts.append(GaussianBlur(settings.blur_sigma, kernel_size=3, p=settings.blur_probability))
    if settings.noise and settings.noise_probability:
        parts.append(GaussianNoise(settings.noise, p=settings.noise_probability))
    if settings.cutmix_probability:
        edge, alpha = settings.cutmix_edge, settings.cutmix_alpha
        parts.append(CutMix(alpha, cut=edge, p=settings.cutmix_probability))
    if settings.mixup_probability:  # last: others would not know the partner's mask
        if not any(not isinstance(part, CutMix) for part in parts):
            parts.insert(0, Normalize(0.0, 1.0))  # bytes become floats, as they do in all of the above
        parts.append(MixUp(settings.mixup_alpha, pair_masks=True, p=settings.mixup_probability))
    return Pipeline(*parts, roles={"image": "image", "mask": "mask"}, seed=seed) if parts else None
