"""A picture to look at: faces beside their masks, and what each colour means."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoker.recipes.face_parsing._classes import CLASSES, COLOURS, PALETTE

if TYPE_CHECKING:
    from PIL import Image

_EDGE, _GAP, _TEXT = 192, 6, 14  # pixels


class Row(NamedTuple):
    """One face."""

    name: str
    image: NDArray[np.uint8]  # [H, W, 3]
    predicted: NDArray[np.uint8]  # [H, W]
    truth: NDArray[np.uint8] | None  # None where it is not known


def draw_grid(rows: list[Row], path: Path) -> None:
    """Image, prediction, prediction over the image, truth if it is known; two faces side by side."""
    from PIL import Image, ImageDraw

    columns = 4 if any(row.truth is not None for row in rows) else 3
    across = 2 if len(rows) > 1 else 1
    wide, high = columns * (_EDGE + _GAP) + 2 * _GAP, _EDGE + _TEXT + 2 * _GAP
    num_lines = (len(rows) + across - 1) // across
    legend_columns = max(1, across * wide // 130)
    legend_lines = (len(CLASSES) + legend_columns - 1) // legend_columns
    top = (legend_lines + 1) * (_TEXT + 4) + 2 * _GAP
    canvas = Image.new("RGB", (across * wide, top + num_lines * high), "white")
    pen = ImageDraw.Draw(canvas)
    for number, (name, colour) in enumerate(zip(CLASSES, COLOURS, strict=True)):
        x, y = _GAP + number % legend_columns * 130, _GAP + number // legend_columns * (_TEXT + 4)
        pen.rectangle((x, y, x + _TEXT, y + _TEXT), fill=colour, outline="black")
        pen.text((x + _TEXT + 4, y + 1), f"{number} {name}", fill="black")
    shown = "image, prediction, both" + (", truth where it is known" if columns == 4 else "")
    pen.text((_GAP, top - _TEXT - _GAP), f"from left to right: {shown}", fill="black")
    for number, row in enumerate(rows):
        left, line = _GAP + number % across * wide, top + number // across * high
        pen.text((left, line), row.name[:40], fill="black")
        face = _fitted(Image.fromarray(row.image))
        predicted = _fitted(_coloured(row.predicted))
        panels = [face, predicted, Image.blend(face, predicted, 0.5)]
        if row.truth is not None:
            panels.append(_fitted(_coloured(row.truth)))
        for place, panel in enumerate(panels):
            canvas.paste(panel, (left + place * (_EDGE + _GAP), line + _TEXT + 2))
    canvas.save(path)


def _coloured(mask: NDArray[np.uint8]) -> "Image.Image":
    from PIL import Image

    picture = Image.fromarray(mask)
    picture.putpalette(PALETTE)
    return picture.convert("RGB")


def _fitted(picture: "Image.Image") -> "Image.Image":
    """Of one size for all; enlarged without smoothing, so that pixels can be told apart."""
    from PIL import Image

    small = max(picture.size) < _EDGE
    how = Image.Resampling.NEAREST if small else Image.Resampling.BILINEAR
    return picture.resize((_EDGE, _EDGE), how)
