"""What happens to training batches on the device: as if the patient lay differently, at another dose."""

from stoker.augment import Pipeline, Transform
from stoker.augment.volume import Affine3D, Gamma, GaussianBlur, GaussianNoise, IntensityScale, IntensityShift
from stoker.recipes.cardiac_ct._settings import AugmentSettings, VolumeSettings


def make_augment(settings: AugmentSettings, volume: VolumeSettings, *, seed: int) -> Pipeline | None:
    """The pipeline for `x`, from 0 to 1, that the settings ask for; None if for nothing.

    What is turned in from outside is air. The heart lies on the left, so nothing is ever mirrored.
    """
    parts: list[Transform] = []
    if settings.rotate or settings.scale is not None or settings.translate:
        parts.append(
            Affine3D(
                settings.rotate or 0,
                scale=settings.scale or 1,
                translate=settings.translate or 0,
                spacing=volume.spacing or (1.0, 1.0, 1.0),
                p=0.5,
            )
        )
    if settings.intensity_scale is not None:
        parts.append(IntensityScale(settings.intensity_scale, p=0.5))
    if settings.intensity_shift:
        parts.append(IntensityShift(settings.intensity_shift, p=0.5))
    if settings.gamma is not None:
        parts.append(Gamma(settings.gamma, p=0.3))
    if settings.noise:
        parts.append(GaussianNoise((0.0, settings.noise), p=0.5))
    if settings.blur:
        parts.append(GaussianBlur((0.0, settings.blur), p=0.2))
    return Pipeline(*parts, roles={"x": "volume"}, seed=seed) if parts else None
