"""The policies of the training systems that come with Stoker, by name."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from stoker.augment._pipeline import Pipeline
from stoker.augment._transform import Role
from stoker.errors import UsageError

PRESETS: dict[str, dict[str, Any]] = {
    "heart_sounds": {
        "roles": {"x": "signal"},
        "transforms": [
            {"signal.TimeShift": {"shift": 0.1, "p": 0.8}},
            {"signal.Speed": {"rate": [0.9, 1.1], "p": 0.5}},
            {"signal.AmplitudeScale": {"factor": [0.8, 1.2], "p": 0.8}},
            {"signal.GaussianNoise": {"snr_db": [20, 40], "p": 0.5}},
            {"signal.TimeMask": {"length": 150, "num_masks": 2, "p": 0.5}},
            {"signal.FrequencyMask": {"width": 0.15, "p": 0.3}},
        ],
    },
    # windows are jittered by the loader; on the device the wrist band is turned by an electrode
    "emg_pose": {
        "roles": {"emg": "signal"},
        "transforms": [{"signal.ChannelRoll": {"shift": 1}}],
    },
    # eyes, brows and ears have a class for each side; 255 is what the loss must ignore
    "face_parsing": {
        "roles": {"image": "image", "mask": "mask"},
        "transforms": [
            {"image.HorizontalFlip": {"swap_classes": {4: 5, 6: 7, 8: 9}, "p": 0.5}},
            {"image.Affine": {"rotate": 20, "p": 0.6}},
            {"image.Affine": {"scale": [0.8, 1.2], "p": 0.6}},
            {
                "image.ColorJitter": {
                    "brightness": 0.3,
                    "contrast": 0.2,
                    "saturation": 0.2,
                    "hue": 0.1,
                    "p": 0.5,
                }
            },
            {"image.GaussianBlur": {"sigma": [0.1, 2], "kernel_size": 3, "p": 0.3}},
            {"image.GaussianNoise": {"std": 0.03, "p": 0.3}},
        ],
    },
    # Chest CT in right-anterior-superior order, 1.5 x 1.5 x 3 mm, from 0 to 1. The system itself was trained
    # without augmentation. This is a careful one: as if the patient lay a little differently, was seen at
    # another dose or by another scanner. Nothing is mirrored, because the heart lies on the left.
    "cardiac_ct": {
        "roles": {"x": "volume"},
        "transforms": [
            {
                "volume.Affine3D": {
                    "rotate": [5, 5, 10],
                    "scale": [0.9, 1.1],
                    "translate": 0.05,
                    "spacing": [1.5, 1.5, 3],
                    "p": 0.5,
                }
            },
            {"volume.IntensityScale": {"factor": [0.9, 1.1], "p": 0.5}},
            {"volume.IntensityShift": {"offset": 0.05, "p": 0.5}},
            {"volume.Gamma": {"gamma": [0.8, 1.25], "p": 0.3}},
            {"volume.GaussianNoise": {"std": [0, 0.03], "p": 0.3}},
            {"volume.GaussianBlur": {"sigma": [0.25, 1], "p": 0.2}},
        ],
    },
}


def preset(name: str, *, roles: Mapping[str, Role] | None = None, seed: int = 0) -> Pipeline:
    """A training system's augmentation.

    Args:
        name: of the system, such as "heart_sounds".
        roles: of your fields, if they are not called as the system's.
        seed: of all draws.
    """
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(PRESETS)}"
        raise UsageError(f"a preset must be a known one, got {name!r}; {hint}")
    config = PRESETS[name] | {"seed": seed}
    return Pipeline.from_config(config if roles is None else config | {"roles": dict(roles)})
