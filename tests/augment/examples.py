"""An example of every registered transform, for the tests that hold for all of them.

A new transform needs an entry here, under the name it is registered by; a test fails for one without.
Add several where options change what is computed.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from stoker.augment import Pipeline, Role, Transform, registered

NUM_SAMPLES = 64
SIGNAL = (3, 257)  # C, T: odd, and no power of two


@dataclass(frozen=True)
class Example:
    """Arguments of a transform that visibly change a sample, and what else the tests must know.

    Attributes:
        arguments: of the constructor.
        neutral: arguments beside these at which nothing changes; None if there are none.
        tolerance: how far neutral arguments may be from changing nothing; 0 for not a bit.
        roles: of the fields that it is tried on; by default its first role only.
        gradient: whether the result depends on the input differentiably.
        compiled_tolerance: how far compiled code may be from eager code, relative to the largest value.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    neutral: dict[str, Any] | None = None
    tolerance: float = 0.0
    roles: dict[str, Role] | None = None
    gradient: bool = True
    compiled_tolerance: float = 1e-5


WITH_MASK: dict[str, Role] = {"x": "signal", "frames": "mask"}
IMAGE_AND_MASK: dict[str, Role] = {"x": "image", "regions": "mask"}
VOLUME = (2, 9, 10, 11)  # C, D, H, W
VOLUME_AND_MASK: dict[str, Role] = {"x": "volume", "organs": "mask"}

EXAMPLES: dict[str, list[Example]] = {
    "image.Affine": [
        Example(
            {"rotate": 30, "scale": (0.7, 1.4), "translate": 0.2, "shear": 10},
            {"rotate": 0, "scale": 1, "translate": 0, "shear": 0},
            tolerance=1e-5,
            roles=IMAGE_AND_MASK,
        ),
        Example({"rotate": 30, "padding": "reflection", "interpolation": "nearest"}, {"rotate": 0}),
    ],
    "image.ColorJitter": [
        Example({"brightness": 0.5, "contrast": 0.5}, {"brightness": 0, "contrast": 0}),
        Example({"saturation": 0.5, "hue": 0.2}, {"saturation": 0, "hue": 0}),
        Example({"brightness": 0.3, "contrast": 0.2, "saturation": (0.5, 2), "hue": 0.1}),
    ],
    "image.Erase": [
        Example({"scale": (0.1, 0.5), "p": 1.0}, {"scale": 0}),
        Example({"scale": (0.2, 0.5), "ignore": 255, "p": 1.0}, {"scale": 0}, roles=IMAGE_AND_MASK),
        Example({"fill": "noise", "num_boxes": 3, "p": 1.0}, {"scale": 0}),
        Example({"fill": (0.5, 0.4, 0.3), "scale": (0.1, 0.2), "p": 1.0}, {"scale": 0}),
    ],
    "image.GaussianBlur": [
        Example({"sigma": (0.5, 2)}, {"sigma": 0}),
        Example({"sigma": (0.1, 2), "kernel_size": 3}, {"sigma": 0}),
    ],
    "image.GaussianNoise": [Example({"std": (0.1, 0.3)}, {"std": 0})],
    "image.HorizontalFlip": [
        Example({"p": 1.0}, roles=IMAGE_AND_MASK),
        Example({"swap_classes": {0: 3, 1: 2}, "p": 1.0}, roles=IMAGE_AND_MASK),
    ],
    "image.Normalize": [Example({"mean": (0.4, 0.5, 0.6), "std": 0.25}, {"mean": 0, "std": 1})],
    "image.RandomResizedCrop": [
        Example({"size": (13, 19)}, {"size": (17, 23), "scale": 1, "ratio": 23 / 17}, 1e-5, IMAGE_AND_MASK)
    ],
    "image.VerticalFlip": [Example({"p": 1.0}, roles=IMAGE_AND_MASK)],
    "mix.CutMix": [
        Example({"num_classes": 5}, roles={"x": "signal", "y": "label"}),
        Example({"cut": (0.3, 0.8)}, {"cut": (0, 0)}, roles=IMAGE_AND_MASK),
        Example({"alpha": 3, "num_classes": 5}, roles={"y": "label", **VOLUME_AND_MASK}),
    ],
    "mix.MixUp": [
        Example({"num_classes": 5}, roles={"x": "signal", "y": "label"}),
        Example({"alpha": 2.0}, roles={"x": "image"}),
    ],
    "signal.AmplitudeScale": [Example({"factor": (0.5, 2)}, {"factor": 1})],
    "signal.BandPass": [Example({"sample_rate": 500, "low": (5, 10), "high": (40, 60)})],
    "signal.BandStop": [Example({"sample_rate": 500, "low": (45, 48), "high": (52, 55), "order": 2})],
    "signal.BaselineWander": [Example({"sample_rate": 500, "amplitude": (0.5, 1)}, {"amplitude": 0})],
    "signal.ChannelDropout": [Example({"drop": 0.5}, {"drop": 0})],
    "signal.ChannelRoll": [Example({"shift": 1}, {"shift": 0})],
    "signal.ChannelShuffle": [Example()],
    "signal.Crop": [Example({"length": 100}, {"length": SIGNAL[1]}, roles=WITH_MASK)],
    "signal.FrequencyMask": [
        Example({"width": (0.3, 0.5)}, {"width": 0}, tolerance=1e-5),
        Example({"width": (0.2, 0.5), "num_masks": 2, "smooth": True}, {"width": 0}, tolerance=1e-5),
    ],
    "signal.GaussianNoise": [Example({"snr_db": (0, 10)}, {"snr_db": 400}, tolerance=1e-6)],
    "signal.HighPass": [Example({"sample_rate": 500, "cutoff": (2, 20), "order": 3})],
    "signal.LowPass": [Example({"sample_rate": 500, "cutoff": (20, 60)})],
    "signal.Polarity": [Example({"p": 1.0})],
    "signal.PowerlineNoise": [Example({"sample_rate": 500, "amplitude": (0.5, 1)}, {"amplitude": 0})],
    "signal.Resample": [Example({"rate": (0.3, 0.6)}, {"rate": 1}, tolerance=1e-5)],
    "signal.Speed": [
        Example({"rate": (0.7, 1.4)}, {"rate": 1}, roles=WITH_MASK),
        Example({"rate": (0.7, 1.4), "align": "start", "return_length": True}, {"rate": 1}),
        Example({"rate": (1.2, 1.6), "antialias": True}, {"rate": 1}, tolerance=1e-5),
    ],
    "signal.Standardize": [Example(), Example({"per": "sample"})],
    "signal.TimeMask": [
        Example({"length": (20, 80), "num_masks": 2}, {"length": 0}),
        Example({"length": (0.2, 0.5), "unit": "fraction"}, {"length": 0}),
    ],
    "signal.TimeShift": [
        Example({"shift": 0.4}, {"shift": 0}, roles=WITH_MASK),
        Example({"shift": (-90, 90), "unit": "samples", "circular": False}, {"shift": 0}, roles=WITH_MASK),
    ],
    "signal.TimeWarp": [Example({"strength": (0.3, 0.6)}, {"strength": 0}, roles=WITH_MASK)],
    "volume.Affine3D": [
        Example(
            {"rotate": 30, "scale": (0.7, 1.4), "translate": 0.2, "shear": 0.2, "spacing": (3, 1.5, 1)},
            {"rotate": 0, "scale": 1, "translate": 0, "shear": 0},
            tolerance=1e-5,
            roles=VOLUME_AND_MASK,
        ),
        Example(
            {"rotate": (30, (10, 20), 0), "scale": ((0.5, 0.8), 1, 1.2), "padding": "border"},
            {"rotate": 0, "scale": 1},
            tolerance=1e-5,
        ),
    ],
    "volume.Crop": [
        Example({"size": (5, 6, 7)}, {"size": VOLUME[1:]}, roles=VOLUME_AND_MASK),
        Example({"size": 4, "random": False}),
    ],
    "volume.Flip": [
        Example({"depth": 1}, {"depth": 0, "height": 0, "width": 0}, roles=VOLUME_AND_MASK),
        Example({"depth": 0.5, "height": 0, "width": 1.0}),
    ],
    "volume.Gamma": [
        Example({"gamma": (1.5, 3)}, {"gamma": 1}, tolerance=1e-6),
        Example({"gamma": (0.3, 0.7), "per": "channel"}, {"gamma": 1}, tolerance=1e-6),
    ],
    "volume.GaussianBlur": [
        Example({"sigma": (0.5, 1.5)}, {"sigma": 0}),
        Example({"sigma": (0, 1, (0.5, 4))}, {"sigma": (0, 0, 0)}),
    ],
    "volume.GaussianNoise": [Example({"std": (0.1, 0.3)}, {"std": 0})],
    "volume.IntensityScale": [Example({"factor": (0.5, 2)}, {"factor": 1})],
    "volume.IntensityShift": [Example({"offset": (0.1, 0.5)}, {"offset": 0})],
}

CASES = [(name, number) for name in registered() for number in range(len(EXAMPLES.get(name, [])))]


def example(case: tuple[str, int]) -> Example:
    return EXAMPLES[case[0]][case[1]]


def make(case: tuple[str, int], **changes: Any) -> Transform:
    """The example's transform; `changes` replace arguments that it has."""
    kind = registered()[case[0]]
    arguments = example(case).arguments | changes
    if "p" in arguments and not kind.keeps_shape:
        del arguments["p"]
    return kind(**arguments)


def roles_of(case: tuple[str, int]) -> dict[str, Role]:
    return example(case).roles or {"x": registered()[case[0]].roles[0]}


def pipeline(case: tuple[str, int], *, static: bool = False, **changes: Any) -> Pipeline:
    return Pipeline(make(case, **changes), roles=roles_of(case), seed=5, static=static)


def batch_of(roles: dict[str, Role], num_samples: int = NUM_SAMPLES) -> dict[str, Tensor]:
    """Fields for these roles, every sample different; "index" has the samples' numbers."""
    generator = torch.Generator().manual_seed(11)
    shapes: dict[str, tuple[int, ...]] = {
        "signal": SIGNAL,
        "image": (3, 17, 23),
        "volume": VOLUME,
        "label": (),
    }
    main = next((role for role in roles.values() if role in {"signal", "image", "volume"}), "signal")
    batch: dict[str, Tensor] = {"index": torch.arange(num_samples) * 7 + 3}
    for name, role in roles.items():
        if role == "mask":
            batch[name] = torch.randint(0, 5, (num_samples, *shapes[main][1:]), generator=generator)
        elif role == "label":
            batch[name] = torch.randint(0, 5, (num_samples,), generator=generator)
        else:
            batch[name] = torch.rand((num_samples, *shapes[role]), generator=generator)
    return batch


def rows(batch: dict[str, Tensor], picked: slice | list[int] | Tensor) -> dict[str, Tensor]:
    """The same batch with some samples, in the order that is asked for."""
    return {name: value[picked] for name, value in batch.items()}
