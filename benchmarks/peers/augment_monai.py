"""MONAI's dictionary transforms, a volume and its mask at a time, as its datasets apply them."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import monai
import monai.transforms as library
import torch
from torch import Tensor

from peers.augment_serving import Task, num_threads, serve
from peers.augment_tasks import POLICY, Arrays, Volume

R = Volume()


def prepare(arrays: Arrays) -> Mapping[str, Task]:
    """Volumes only; without the tracking of metadata, which costs time and is not needed here."""
    torch.set_num_threads(num_threads())
    monai.data.set_track_meta(False)
    volume, mask = torch.from_numpy(arrays["volume"]), torch.from_numpy(arrays["mask"])[:, None]
    both, one = ["volume", "mask"], ["volume"]
    edge = volume.shape[-1]
    affine = partial(
        library.RandAffined,
        both,
        rotate_range=[math.radians(R.degrees)] * 3,
        translate_range=[R.translate * edge] * 3,
        scale_range=[(R.scale[0] - 1, R.scale[1] - 1)] * 3,
        mode=["bilinear", "nearest"],
        padding_mode="zeros",
        cache_grid=True,
    )
    factors, offsets = (R.factor[0] - 1, R.factor[1] - 1), (-R.offset, R.offset)
    smooth = partial(library.RandGaussianSmoothd, one, R.sigma, R.sigma, R.sigma)
    noise = partial(library.RandGaussianNoised, one, std=R.noise)
    flips = [partial(library.RandFlipd, both, spatial_axis=axis) for axis in range(3)]
    transforms: dict[str, list[Any]] = {
        "Flip": [flip(prob=R.flip_p) for flip in flips],
        "Affine3D": [affine(prob=1.0)],
        "IntensityScale": [library.RandScaleIntensityd(one, factors, prob=1.0)],
        "IntensityShift": [library.RandShiftIntensityd(one, offsets, prob=1.0)],
        "Gamma": [library.RandAdjustContrastd(one, prob=1.0, gamma=R.gamma)],
        "GaussianNoise": [noise(prob=1.0)],
        "GaussianBlur": [smooth(prob=1.0)],
        "Crop": [library.RandSpatialCropd(both, [round(R.kept * edge)] * 3, random_size=False)],
        POLICY: [
            *(flip(prob=R.flip_p) for flip in flips),
            affine(prob=R.affine_p),
            library.RandScaleIntensityd(one, factors, prob=R.factor_p),
            library.RandAdjustContrastd(one, prob=R.gamma_p, gamma=R.gamma),
            noise(prob=R.noise_p),
            smooth(prob=R.blur_p),
        ],
    }
    return {name: partial(_batch, volume, mask, library.Compose(each)) for name, each in transforms.items()}


def _batch(volume: Tensor, mask: Tensor, augment: Any) -> tuple[Tensor, Tensor]:
    pairs = zip(volume, mask, strict=True)
    changed = [augment({"volume": one, "mask": its_mask}) for one, its_mask in pairs]
    return (
        torch.stack([sample["volume"] for sample in changed]),
        torch.stack([sample["mask"] for sample in changed]),
    )


if __name__ == "__main__":
    serve("monai", prepare)
