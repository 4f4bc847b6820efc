"""Synthetic faces with exact masks, in the layouts of real ones.

A face is a drawing of ellipses in coordinates of its own, u to the right and v down, which is turned, scaled
and moved as a whole. What is painted over what is known for every pixel, so the mask is exact. Colours of
skin, hair, cloth and background are drawn for each face, so that no colour alone gives a class away; left
and right are those of the picture.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.recipes._raw import make_up
from stoker.recipes.face_parsing._classes import CLASSES, PALETTE
from stoker.recipes.face_parsing._settings import SyntheticSettings

Floats = NDArray[np.float64]
Where = NDArray[np.bool_]
_NUMBER = {name: number for number, name in enumerate(CLASSES)}


def make_synthetic(folder: Path, settings: SyntheticSettings, *, seed: int) -> None:
    """Write the faces that the settings ask for, unless the folder has just these already."""
    facts = {"seed": seed, **settings.model_dump()}
    make_up(folder, facts, what="faces", write=partial(write_faces, **facts))


def write_faces(
    folder: Path,
    *,
    num_train: int = 240,
    num_test: int = 40,
    size: int = 128,
    layout: Literal["folders", "celebamask"] = "folders",
    seed: int = 0,
) -> int:
    """Write faces of size x size pixels and their masks; gives how many.

    "folders" has those for training and those for the test apart; "celebamask" has images twice as large
    and a binary mask for each part, with all faces in one folder.
    """
    for number in range(num_train + num_test):
        rng = np.random.default_rng([seed, number])
        if layout == "celebamask":
            image, mask = draw_face(2 * size, rng)
            _write_parts(folder, number, image, mask[1::2, 1::2])
        else:
            part = "train" if number < num_train else "test"
            name = xxhash.xxh3_128_hexdigest(f"{seed} {number}".encode())
            _write_pair(folder / part, name, *draw_face(size, rng))
    return num_train + num_test


def draw_face(size: int, rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """An image [size, size, 3] and its mask [size, size], both uint8."""
    from PIL import Image, ImageFilter

    u, v = _coordinates(size, rng)
    mask = np.zeros((size, size), np.uint8)
    colours = rng.uniform(30, 225, (1, 3)) * np.ones((size, size, 1))
    colours = colours * (1 + 0.2 * np.sin(rng.uniform(2, 7) * u + rng.uniform(0, 6)))[..., None]
    for name, where, colour in _shapes(u, v, rng):
        mask[where] = _NUMBER[name]
        colours[where] = colour
    _draw_pupils(mask, u, v, colours)
    shade = 1 - 0.18 * (u**2 + v**2) + rng.uniform(-0.15, 0.15) * u + rng.uniform(-0.15, 0.15) * v
    drawn = Image.fromarray(np.clip(colours * shade[..., None], 0, 255).astype(np.uint8))
    soft = np.array(drawn.filter(ImageFilter.GaussianBlur(size / 256))).astype(np.float64)
    noisy = soft + rng.normal(0, rng.uniform(1, 5), soft.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8), mask


def _coordinates(size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The u and v of every pixel's centre; the head is about two high."""
    place = (np.arange(size) + 0.5) * 2 / size - 1
    x = place[None, :] - rng.uniform(-0.1, 0.1)
    y = place[:, None] - rng.uniform(-0.1, 0.1)
    angle, zoom = np.deg2rad(rng.uniform(-12, 12)), rng.uniform(0.85, 1.15)
    u = (np.cos(angle) * x + np.sin(angle) * y) / zoom
    v = (np.cos(angle) * y - np.sin(angle) * x) / zoom
    return u, v


def _shapes(u: Floats, v: Floats, rng: np.random.Generator) -> list[tuple[str, Where, Floats]]:
    """Name, place and colour of every part, in the order in which they are painted."""
    skin = rng.uniform(90, 235) * np.array([1.0, rng.uniform(0.72, 0.86), rng.uniform(0.55, 0.75)])
    hair, cloth, hat, metal = (rng.uniform(15, 215, 3) for _ in range(4))
    lips = skin * np.array([1.0, rng.uniform(0.45, 0.7), rng.uniform(0.5, 0.8)])
    wide, long_hair = rng.uniform(0.41, 0.48), rng.random() < 0.5
    eye_v, brow_v, mouth_v = rng.uniform(-0.05, 0.02), rng.uniform(-0.19, -0.14), rng.uniform(0.38, 0.45)
    eye_u, opened = rng.uniform(0.17, 0.21), rng.uniform(0.0, 0.04)

    def oval(cu: float, cv: float, ru: float, rv: float) -> Where:
        return ((u - cu) / ru) ** 2 + ((v - cv) / rv) ** 2 < 1

    mouth = oval(0, mouth_v, 0.17, 0.05 + opened)
    fringe = -0.3 + rng.uniform(-0.08, 0.05) + 0.25 * u**2 + rng.uniform(-0.15, 0.15) * u
    crown = oval(0, -0.12, wide + 0.14, 0.66)
    streaks = (1 + 0.12 * np.sin(rng.uniform(25, 45) * u))[..., None] * hair
    face = oval(0, 0.08, wide, 0.56)
    shapes: list[tuple[str, Where, Floats]] = [
        ("hair", crown | (oval(0, 0.25, wide + 0.16, 0.75) if long_hair else crown), hair),
        ("neck", (np.abs(u) < 0.21) & (v > 0.3) & (v < 1.1), skin * 0.85),
        ("cloth", oval(0, 1.45, 1.05, 0.62), cloth),
    ]
    if rng.random() < 0.3:
        ring = oval(0, 0.66, 0.24, 0.2) & ~oval(0, 0.64, 0.22, 0.17) & (v > 0.66)
        shapes.append(("neck_l", ring, metal))
    for side, at in (("l", -1.0), ("r", 1.0)):
        shapes.append((f"{side}_ear", oval(at * (wide + 0.02), 0.04, 0.075, 0.14), skin * 0.95))
    if rng.random() < 0.3:
        drops = oval(-(wide + 0.04), 0.21, 0.05, 0.065) | oval(wide + 0.04, 0.21, 0.05, 0.065)
        shapes.append(("ear_r", drops, metal))
    shapes += [
        ("skin", face, skin),
        ("nose", oval(0, 0.16, 0.075, 0.15), skin * 0.9),
        ("u_lip", mouth & (v < mouth_v), lips),
        ("l_lip", mouth & (v >= mouth_v), lips * 1.08),
    ]
    if opened > 0.012:
        shapes.append(("mouth", oval(0, mouth_v, 0.12, opened), np.array([70.0, 20.0, 25.0])))
    for side, at in (("l", -1.0), ("r", 1.0)):
        shapes.append((f"{side}_brow", oval(at * eye_u, brow_v, 0.12, 0.034), hair * 0.7))
        shapes.append((f"{side}_eye", oval(at * eye_u, eye_v, 0.09, 0.052), np.full(3, 225.0)))
    if rng.random() < 0.25:
        shapes.append(("eye_g", _glasses(oval, u, v, eye_u, eye_v), metal * 0.6))
    front = crown & (v < fringe)
    shapes.append(("hair", front, streaks[front]))
    if rng.random() < 0.2:
        shapes.append(("hat", oval(0, -0.2, wide + 0.2, 0.66) & (v < -0.36), hat))
    return shapes


def _glasses(oval: Callable[..., Where], u: Floats, v: Floats, eye_u: float, eye_v: float) -> Where:
    frames = np.zeros(v.shape, bool)
    for at in (-eye_u, eye_u):
        frames |= oval(at, eye_v, 0.155, 0.125) & ~oval(at, eye_v, 0.12, 0.09)
    bridge: Where = (np.abs(v - eye_v) < 0.02) & (np.abs(u) < eye_u - 0.12)
    return frames | bridge


def _draw_pupils(mask: NDArray[np.uint8], u: Floats, v: Floats, colours: Floats) -> None:
    """A dark disc in the middle of what is seen of each eye; the mask stays."""
    for name in ("l_eye", "r_eye"):
        eye = mask == _NUMBER[name]
        if eye.any():
            near = (u - u[eye].mean()) ** 2 + (v - v[eye].mean()) ** 2 < 0.04**2
            colours[eye & near] = 40


def _write_pair(folder: Path, name: str, image: NDArray[np.uint8], mask: NDArray[np.uint8]) -> None:
    from PIL import Image

    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(folder / "images" / f"{name}.jpg", quality=92)
    labelled = Image.fromarray(mask)
    labelled.putpalette(PALETTE)
    labelled.save(folder / "masks" / f"{name}.png")


def _write_parts(folder: Path, number: int, image: NDArray[np.uint8], mask: NDArray[np.uint8]) -> None:
    from PIL import Image

    images = folder / "CelebA-HQ-img"
    masks = folder / "CelebAMask-HQ-mask-anno" / str(number // 2000)
    for each in (images, masks):
        each.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(images / f"{number}.jpg", quality=92)
    for each in np.unique(mask[mask > 0]):
        part = Image.fromarray(np.where(mask == each, 255, 0).astype(np.uint8))
        part.save(masks / f"{number:05d}_{CLASSES[each]}.png")
