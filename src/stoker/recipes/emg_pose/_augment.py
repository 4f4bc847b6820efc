"""What happens to training batches on the device."""

from stoker.augment import Pipeline, Transform
from stoker.augment.signal import AmplitudeScale, ChannelDropout, ChannelRoll, GaussianNoise, TimeMask
from stoker.recipes.emg_pose._settings import AugmentSettings


def make_augment(settings: AugmentSettings, *, seed: int) -> Pipeline | None:
    """The pipeline for `emg` that the settings ask for; None if for nothing."""
    parts: list[Transform] = []
    if settings.rotate:
        parts.append(ChannelRoll(settings.rotate))
    if settings.channel_dropout:
        parts.append(ChannelDropout(settings.channel_dropout, p=0.25))
    if settings.scale is not None:
        parts.append(AmplitudeScale(settings.scale))
    if settings.noise_snr_db is not None:
        parts.append(GaussianNoise(settings.noise_snr_db, p=0.5))
    if settings.time_mask is not None:
        parts.append(TimeMask(settings.time_mask, p=0.5))
    return Pipeline(*parts, roles={"emg": "signal"}, seed=seed) if parts else None
