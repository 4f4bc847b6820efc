"""Predicted masks as palette PNGs of the images' own sizes, and a picture of some of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

import stoker
from stoker.recipes.face_parsing._classes import IGNORE, PALETTE
from stoker.recipes.face_parsing._grid import Row, draw_grid
from stoker.train import Trainer


def write_predictions(
    folder: Path, trainer: Trainer, loader: stoker.Loader, store: stoker.Store, *, grid: int
) -> Mapping[str, float]:
    """Write masks/NAME.png for every face, and grid.png; counts what was written.

    Masks that an earlier prediction left there are removed.
    Logits, not classes, are brought to the size of the image, so that edges stay smooth. A batch is in
    memory at a time.
    """
    masks = folder / "masks"
    masks.mkdir(parents=True, exist_ok=True)
    shown = {number * (len(store) - 1) // max(1, grid - 1) for number in range(min(grid, len(store)))}
    for old in masks.glob("*.png"):
        old.unlink()
    names = _names(store)
    rows: list[Row] = []
    num_right = num_known = 0
    for batch in loader:
        logits = trainer.predict([batch])
        for row, place in enumerate(batch["index"].tolist()):
            size = (int(batch["height"][row]), int(batch["width"][row]))
            _write_mask(masks / f"{names[place]}.png", _classes(logits[row : row + 1], size))
            guess, truth = _classes(logits[row : row + 1], None), batch["mask"][row].cpu().numpy()
            num_right += int(((guess == truth) & (truth != IGNORE)).sum())
            num_known += int((truth != IGNORE).sum())
            if place in shown:
                image = batch["image"][row].cpu().numpy().transpose(1, 2, 0)
                rows.append(Row(names[place], image, guess, truth if (truth != IGNORE).any() else None))
    if rows:
        draw_grid(rows, folder / "grid.png")
    counts = {"masks": float(len(store))}
    return counts | ({"accuracy": num_right / num_known} if num_known else {})


def _names(store: stoker.Store) -> list[str]:
    """The files' names; with the folder's where two have one name."""
    keys = [store.key(i) for i in range(len(store))]
    short = [key.rpartition("/")[2] for key in keys]
    return short if len(set(short)) == len(short) else [key.replace("/", "-") for key in keys]


def _classes(logits: torch.Tensor, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    """The likeliest class of each pixel, [H, W]."""
    if size is not None and size != tuple(logits.shape[-2:]):
        logits = functional.interpolate(logits, size, mode="bilinear", align_corners=False)
    found: NDArray[np.uint8] = logits[0].argmax(0).to(torch.uint8).numpy()
    return found


def _write_mask(path: Path, mask: NDArray[Any]) -> None:
    from PIL import Image

    picture = Image.fromarray(mask)
    picture.putpalette(PALETTE)
    picture.save(path)
