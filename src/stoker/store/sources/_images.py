"""Pictures through Pillow, and masks, which are never treated as pictures."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SourceError, UsageError
from stoker.store.sources._reader import Reader, Sample

GREY_MODES = ("1", "L", "LA")
COLOUR_MODES = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")
MASK_MODES = ("1", "L", "P")


@dataclass(frozen=True, kw_only=True)
class ImageReader(Reader):
    """``x``: uint8 [C, H, W]; grey stays one channel, all else becomes RGB without transparency.

    With ``channels``, 1 for grey or 3 for RGB, all pictures are made to have so many.
    """

    kind: ClassVar[str] = "image"
    suffixes: ClassVar[tuple[str, ...]] = (".png", ".jpg", ".jpeg")
    gives: ClassVar[tuple[str, ...]] = ("x",)
    channel_axis: ClassVar[dict[str, int | None]] = {"x": 0}
    library: ClassVar[str] = "PIL"
    extra: ClassVar[str] = "images"

    channels: Literal[1, 3] | None = None

    def __post_init__(self) -> None:
        if self.channels not in (None, 1, 3):
            raise UsageError(f"channels of images must be 1 (grey) or 3 (RGB), got {self.channels!r}")

    def read(self, path: str) -> Sample:
        """The picture as stored: an EXIF orientation is not applied."""
        from PIL import Image

        with Image.open(path, formats=("PNG", "JPEG")) as image:
            if image.mode not in GREY_MODES + COLOUR_MODES:
                raise SourceError(
                    f"images must have 8 bits a channel, this one has the mode {image.mode!r}; "
                    "save it as .npy to keep its values"
                )
            if (self.channels or (1 if image.mode in GREY_MODES else 3)) == 1:
                return {"x": np.array(image.convert("L"))[np.newaxis]}
            return {"x": np.ascontiguousarray(np.array(image.convert("RGB")).transpose(2, 0, 1))}


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
