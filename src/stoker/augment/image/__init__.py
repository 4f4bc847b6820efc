"""Transforms of images [B, C, H, W] and of masks [B, H, W] or [B, C, H, W] that lie over them.

Images come as uint8, and leave as float32 from 0 to 1; or they come as floats and keep their dtype.
Colour, blur, noise and erasing never touch a mask, geometry moves it with its image.

_flips.py   HorizontalFlip, VerticalFlip      _colour.py   ColorJitter
_affine.py  Affine, RandomResizedCrop         _hue.py      its turn of the hue
_blur.py    GaussianBlur                      _noise.py    GaussianNoise, Erase
_levels.py  Normalize                         _fields.py   uint8 to float, what an image and a mask may be
"""

from stoker.augment.image._affine import Affine, RandomResizedCrop
from stoker.augment.image._blur import GaussianBlur
from stoker.augment.image._colour import ColorJitter
from stoker.augment.image._flips import HorizontalFlip, VerticalFlip
from stoker.augment.image._levels import Normalize
from stoker.augment.image._noise import Erase, GaussianNoise

__all__ = [
    "Affine",
    "ColorJitter",
    "Erase",
    "GaussianBlur",
    "GaussianNoise",
    "HorizontalFlip",
    "Normalize",
    "RandomResizedCrop",
    "VerticalFlip",
]
