"""Pillow, an image and its mask at a time, as datasets do it; its result becomes a batch of floats."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from torch import Tensor

from peers import augment_tasks
from peers.augment_serving import Task, num_threads, serve
from peers.augment_tasks import POLICY, Arrays

R = augment_tasks.Image()
_rng = np.random.default_rng(0)


class Sample(NamedTuple):
    """An image and its mask."""

    image: Image.Image
    mask: Image.Image


Change = Callable[[Sample], Sample]


def prepare(arrays: Arrays) -> Mapping[str, Task]:
    """Images only; noise and normalisation are no business of Pillow's."""
    torch.set_num_threads(num_threads())
    pairs = zip(arrays["image"], arrays["mask"], strict=True)
    samples = [
        Sample(Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))), Image.fromarray(mask))
        for image, mask in pairs
    ]
    return {name: partial(_batch, samples, change) for name, change in _CHANGES.items()}


def _batch(samples: list[Sample], change: Change) -> tuple[Tensor, Tensor]:
    changed = [change(sample) for sample in samples]
    images = torch.from_numpy(np.stack([np.asarray(sample.image) for sample in changed]))
    masks = torch.from_numpy(np.stack([np.asarray(sample.mask) for sample in changed]))
    return images.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format) / 255, masks


def _flip(way: Image.Transpose, sample: Sample) -> Sample:
    return Sample(sample.image.transpose(way), sample.mask.transpose(way))


def _affine(sample: Sample) -> Sample:
    """Rotation, scale, shear and translation about the centre; bilinear, the mask nearest."""
    width, height = sample.image.size
    angle = math.radians(_rng.uniform(-R.degrees, R.degrees))
    slant = math.tan(math.radians(_rng.uniform(-R.shear, R.shear)))
    scale = _rng.uniform(*R.scale)
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    a, b, d, e = cos + slant * sin, slant * cos - sin, sin, cos
    right, down = (_rng.uniform(-R.translate, R.translate) * size for size in (width, height))
    x, y = width / 2 + right, height / 2 + down
    matrix = (a, b, width / 2 - a * x - b * y, d, e, height / 2 - d * x - e * y)
    affine = Image.Transform.AFFINE
    return Sample(
        sample.image.transform(sample.image.size, affine, matrix, Image.Resampling.BILINEAR),
        sample.mask.transform(sample.mask.size, affine, matrix, Image.Resampling.NEAREST, fillcolor=255),
    )


def _resized_crop(sample: Sample) -> Sample:
    box = _box(sample.image.size, R.crop_scale, R.crop_ratio)
    return Sample(
        sample.image.resize(sample.image.size, Image.Resampling.BILINEAR, box),
        sample.mask.resize(sample.mask.size, Image.Resampling.NEAREST, box),
    )


def _color(sample: Sample) -> Sample:
    image = sample.image
    image = ImageEnhance.Brightness(image).enhance(_rng.uniform(1 - R.brightness, 1 + R.brightness))
    image = ImageEnhance.Contrast(image).enhance(_rng.uniform(1 - R.contrast, 1 + R.contrast))
    image = ImageEnhance.Color(image).enhance(_rng.uniform(1 - R.saturation, 1 + R.saturation))
    turn = round(255 * _rng.uniform(-R.hue, R.hue))
    hue, saturation, value = image.convert("HSV").split()
    hue = hue.point([(level + turn) % 256 for level in range(256)])
    return sample._replace(image=Image.merge("HSV", (hue, saturation, value)).convert("RGB"))


def _blur(sample: Sample) -> Sample:
    """By repeated box filters, which come close to a Gaussian one."""
    return sample._replace(image=sample.image.filter(ImageFilter.GaussianBlur(_rng.uniform(*R.sigma))))


def _erase(sample: Sample) -> Sample:
    image = sample.image.copy()
    image.paste((0, 0, 0), _box(image.size, R.erase_scale, R.erase_ratio))
    return sample._replace(image=image)


def _box(
    size: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int]:
    """A part of the image with this share of its area and this ratio of width to height."""
    width, height = size
    area = _rng.uniform(*scale) * width * height
    wider = math.exp(_rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
    wide, high = min(width, round(math.sqrt(area * wider))), min(height, round(math.sqrt(area / wider)))
    left, top = int(_rng.integers(0, width - wide + 1)), int(_rng.integers(0, height - high + 1))
    return left, top, left + wide, top + high


def _policy(sample: Sample) -> Sample:
    if _rng.random() < R.flip_p:
        sample = _flip(Image.Transpose.FLIP_LEFT_RIGHT, sample)
    if _rng.random() < R.affine_p:
        sample = _affine(sample)
    if _rng.random() < R.color_p:
        sample = _color(sample)
    if _rng.random() < R.blur_p:
        sample = _blur(sample)
    return sample


_CHANGES: dict[str, Change] = {
    "HorizontalFlip": partial(_flip, Image.Transpose.FLIP_LEFT_RIGHT),
    "VerticalFlip": partial(_flip, Image.Transpose.FLIP_TOP_BOTTOM),
    "Affine": _affine,
    "RandomResizedCrop": _resized_crop,
    "ColorJitter": _color,
    "GaussianBlur": _blur,
    "Erase": _erase,
    POLICY: _policy,
}


if __name__ == "__main__":
    serve("pillow", prepare)
