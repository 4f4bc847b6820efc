"""Pictures through Pillow, and masks, which are never treated as pictures."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SourceError
from stoker.store.sources._reader import Reader, Sample

GREY_MODES = ("1", "L", "LA")
COLOUR_MODES = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")
MASK_MODES = ("1", "L", "P")


@dataclass(frozen=True, kw_only=True)
class ImageReader(Reader):
    """``x``: uint8 [C, H, W]; grey stays one channel, all else becomes RGB without transparency."""

    kind: ClassVar[str] = "image"
    suffixes: ClassVar[tuple[str, ...]] = (".png", ".jpg", ".jpeg")
    gives: ClassVar[tuple[str, ...]] = ("x",)
    channel_axis: ClassVar[dict[str, int | None]] = {"x": 0}
    library: ClassVar[str] = "PIL"
    extra: ClassVar[str] = "images"

    def read(self, path: str) -> Sample:
        """The picture as stored: an EXIF orientation is not applied."""
        from PIL import Image

        with Image.open(path, formats=("PNG", "JPEG")) as image:
            if image.mode in GREY_MODES:
                return {"x": np.array(image.convert("L"))[np.newaxis]}
            if image.mode in COLOUR_MODES:
                return {"x": np.ascontiguousarray(np.array(image.convert("RGB")).transpose(2, 0, 1))}
            raise SourceError(
                f"images must have 8 bits a channel, this one has the mode {image.mode!r}; "
                "save it as .npy to keep its values"
            )


def read_mask(path: str) -> NDArray[np.uint8]:
    """The mask, [H, W]: palette index or grey value as stored; a 1-bit mask gives 0 and 1."""
    from PIL import Image

    with Image.open(path, formats=("PNG", "JPEG")) as image:
        if image.mode not in MASK_MODES:
            raise SourceError(
                f"mask {Path(path).name!r} must be a palette or 8-bit grey image, it has the mode "
                f"{image.mode!r}"
            )
        return np.array(image).astype(np.uint8, copy=False)
