"""kornia's class layer: AugmentationSequential of images and their masks, a batch at a time."""

import math
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from peers.augment_serving import Task, num_threads, serve
from peers.augment_tasks import POLICY, Arrays, Image

R = Image()


def prepare(arrays: Arrays) -> Mapping[str, Task]:
    """Images and masks as kornia wants them are made within the time of a batch: float, with a channel."""
    torch.set_num_threads(num_threads())
    library: Any = import_module("kornia.augmentation")
    image, mask = torch.from_numpy(arrays["image"]), torch.from_numpy(arrays["mask"])
    size = tuple(image.shape[-2:])
    kernel = 2 * math.ceil(3 * R.sigma[1]) + 1  # one for all; three sigmas of the widest
    affine = {"translate": (R.translate, R.translate), "scale": R.scale, "shear": (-R.shear, R.shear)}
    color = {
        "brightness": R.brightness,
        "contrast": R.contrast,
        "saturation": R.saturation,
        "hue": R.hue,
        "order": (0, 1, 2, 3),  # as Stoker's and as Pillow's here
    }
    transforms: dict[str, list[Any]] = {
        "HorizontalFlip": [library.RandomHorizontalFlip(p=1.0)],
        "VerticalFlip": [library.RandomVerticalFlip(p=1.0)],
        "Affine": [library.RandomAffine(R.degrees, **affine, p=1.0)],
        "RandomResizedCrop": [
            library.RandomResizedCrop(size, R.crop_scale, R.crop_ratio, cropping_mode="resample", p=1.0)
        ],
        "ColorJitter": [library.ColorJitter(**color, p=1.0)],
        "GaussianBlur": [library.RandomGaussianBlur(kernel, R.sigma, p=1.0)],
        "GaussianNoise": [library.RandomGaussianNoise(0.0, R.noise, p=1.0)],
        "Erase": [library.RandomErasing(R.erase_scale, R.erase_ratio, p=1.0)],
        "Normalize": [library.Normalize(torch.tensor(R.mean), torch.tensor(R.std))],
        POLICY: [
            library.RandomHorizontalFlip(p=R.flip_p),
            library.RandomAffine(R.degrees, **affine, p=R.affine_p),
            library.ColorJitter(**color, p=R.color_p),
            library.RandomGaussianBlur(kernel, R.sigma, p=R.blur_p),
        ],
    }
    nearest = {import_module("kornia.constants").DataKey.MASK: {"resample": "nearest", "align_corners": None}}
    return {
        name: partial(
            _batch,
            image,
            mask,
            library.AugmentationSequential(*each, data_keys=["input", "mask"], extra_args=nearest),
        )
        for name, each in transforms.items()
    }


def _batch(image: Tensor, mask: Tensor, augment: Any) -> Any:
    return augment(image.float() / 255, mask[:, None].float())


if __name__ == "__main__":
    serve("kornia", prepare)
