"""One face decoded: the image and its mask as bytes of the training size, one lying over the other.

Both are resized about the centre of pixels, so a place in the one is the same place in the other: images by
Pillow's bilinear filter, which averages over all pixels that fall into one when it shrinks, masks by the
nearest pixel, which never makes up a class.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import BadSampleError, MissingExtraError
from stoker.recipes.face_parsing._classes import IGNORE, NUM_CLASSES
from stoker.recipes.face_parsing._layout import Face

if TYPE_CHECKING:
    from PIL import Image

Bytes = NDArray[np.uint8]

_IMAGE_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
_MASK_MODES = ("1", "L", "P")


def read_face(face: Face, size: int) -> dict[str, Any]:
    """Read image [3, size, size] and mask [size, size] in uint8, the mask IGNORE where there is none.

    Beside them `height` and `width` of the image as it was, `part`, `labelled`, and `pixels` [19], how
    many of the mask each class has.

    Raises:
        BadSampleError: a file that cannot be read, a mask of another shape or with other classes.
    """
    image, (width, height) = _read_image(face, size)
    mask = _read_mask(face, size, width / height)
    counts = np.bincount(mask.reshape(-1), minlength=IGNORE + 1)[:NUM_CLASSES]
    return {
        "image": image,
        "mask": mask,
        "height": np.int32(height),
        "width": np.int32(width),
        "part": face.part,
        "labelled": np.uint8(face.mask is not None),
        "pixels": counts.astype(np.int32),
    }


def _read_image(face: Face, size: int) -> tuple[Bytes, tuple[int, int]]:
    opened = _open(face.key, face.image)
    if opened.mode not in _IMAGE_MODES:
        raise BadSampleError(face.key, f"images must have 8 bits a channel, this one has {opened.mode!r}")
    coloured = opened.convert("RGB")
    if coloured.size != (size, size):
        from PIL import Image

        coloured = coloured.resize((size, size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.array(coloured).transpose(2, 0, 1)), opened.size


def _read_mask(face: Face, size: int, aspect: float) -> Bytes:
    if face.mask is None:
        return np.full((size, size), IGNORE, np.uint8)
    whole: Bytes | None = None
    for number, path in face.mask_files():
        opened = _open(face.key, path)
        if abs(opened.width / opened.height / aspect - 1) > 0.01:
            shape = f"{opened.width} x {opened.height}"
            raise BadSampleError(face.key, f"the mask {path.name} has another shape than the image: {shape}")
        if number is None:
            whole = _classes(face.key, path, opened)
            continue
        drawn = np.array(opened.convert("L")) != 0
        if whole is None:
            whole = np.zeros(drawn.shape, np.uint8)
        if whole.shape != drawn.shape:
            raise BadSampleError(face.key, f"the mask {path.name} has another size than those of other parts")
        whole[drawn] = number
    assert whole is not None
    return _nearest(whole, size)


def _nearest(mask: Bytes, size: int) -> Bytes:
    """A mask [H, W] as [size, size], each pixel that which lies under its centre."""
    from PIL import Image

    return np.array(Image.fromarray(mask).resize((size, size), Image.Resampling.NEAREST))


def _classes(key: str, path: Path, opened: "Image.Image") -> Bytes:
    if opened.mode not in _MASK_MODES:
        raise BadSampleError(
            key,
            f"the mask {path.name} must be a palette or 8-bit grey image, it has the mode {opened.mode!r}",
        )
    mask = np.array(opened).astype(np.uint8, copy=False)
    strange = mask[(mask >= NUM_CLASSES) & (mask != IGNORE)]
    if strange.size:
        raise BadSampleError(
            key,
            f"the mask {path.name} must have the classes 0 to {NUM_CLASSES - 1} (or {IGNORE} for unknown), "
            f"{strange.size} pixels have others, such as {strange[0]}",
        )
    return mask


def _open(key: str, path: Path) -> "Image.Image":
    """The picture, decoded."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("reading images", extra="images", library="PIL") from error
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as opened:
            opened.load()
            return opened.copy()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadSampleError(key, f"{path.name} cannot be read: {error}") from error
