"""Masks as colours: a class has the same one everywhere, 0 has none, what is ignored is a chequer."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from stoker.augment._geometry import Geometric
from stoker.augment._pipeline import Pipeline

Colours = NDArray[np.float32]

# far from each other and from the greys of images: after Sasha Trubetskoy's list of distinct colours
_PALETTE = np.array(
    [
        (230, 25, 75),
        (60, 180, 75),
        (255, 225, 25),
        (0, 130, 200),
        (245, 130, 48),
        (145, 30, 180),
        (70, 240, 240),
        (240, 50, 230),
        (210, 245, 60),
        (250, 190, 212),
        (0, 128, 128),
        (220, 190, 255),
        (170, 110, 40),
        (255, 250, 200),
        (128, 0, 0),
        (170, 255, 195),
        (128, 128, 0),
        (255, 215, 180),
        (0, 0, 128),
    ],
    np.float32,
) / np.float32(255)
_SEEN_THROUGH, _OUTLINE = 0.3, 0.9
_CHEQUER = (0.1, 0.95)  # greys of the ignored part


def ignored_values(pipeline: Pipeline) -> set[int]:
    """What the pipeline's transforms write into masks where there is nothing."""
    found = {255}
    for transform in pipeline.transforms:
        own = getattr(transform, "ignore", None)
        found |= {own} if isinstance(own, int) else set()
        found |= {transform.sampling.ignore} if isinstance(transform, Geometric) else set()
    return found


def class_colour(number: int) -> tuple[float, float, float]:
    """The colour of a class from 1 on."""
    red, green, blue = _PALETTE[(number - 1) % len(_PALETTE)].tolist()
    return red, green, blue


def coloured(mask: Tensor, ignored: set[int], *, opaque: bool = False) -> Colours:
    """A mask [H, W] as RGBA [H, W, 4], to lie over an image unless opaque."""
    classes = mask.detach().cpu().numpy().astype(np.int64)
    colours = np.zeros((*classes.shape, 4), np.float32)
    colours[..., :3] = _PALETTE[(classes - 1) % len(_PALETTE)]
    inside = np.where(_outlines(classes), _OUTLINE, _SEEN_THROUGH)
    colours[..., 3] = np.where(classes == 0, 0, 1 if opaque else inside)
    outside = np.isin(classes, list(ignored))
    size = max(1, max(classes.shape) // (40 if min(classes.shape) > 8 else 160))  # finer in a band
    down, right = (np.arange(length) // size for length in classes.shape)
    chequer = np.where((down[:, None] + right) % 2, *_CHEQUER)
    colours[outside] = np.stack([chequer] * 3 + [np.ones_like(chequer)], -1)[outside]
    return colours


def classes_in(masks: Sequence[Tensor]) -> list[int]:
    """Every number that occurs in one of the masks, but 0."""
    return sorted({int(number) for mask in masks for number in np.unique(mask.numpy())} - {0})


def _outlines(classes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where another class is near: one element away, or more in a picture that is drawn smaller."""
    near = max(1, max(classes.shape) // 300)
    framed = np.pad(classes, near, mode="edge")
    height, width = classes.shape
    found = np.zeros(classes.shape, np.bool_)
    for down, right in ((0, near), (2 * near, near), (near, 0), (near, 2 * near)):
        found |= framed[down : down + height, right : right + width] != classes
    return found
