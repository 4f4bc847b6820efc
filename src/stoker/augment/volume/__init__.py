"""Transforms of volumes [B, C, D, H, W]; a sample's channels share its parameters.

Masks [B, D, H, W] or [B, C, D, H, W] follow the movements and see nothing else. Volumes of whole
numbers, such as CT in Hounsfield units, become float32 where values are computed.

_affine.py      Affine3D                    _crop.py      Crop
_flip.py        Flip                        _texture.py   noise and blur
_intensity.py   scale, shift, gamma         _axes.py      one setting for three axes, layouts
"""

from stoker.augment.volume._affine import Affine3D
from stoker.augment.volume._crop import Crop
from stoker.augment.volume._flip import Flip
from stoker.augment.volume._intensity import Gamma, IntensityScale, IntensityShift
from stoker.augment.volume._texture import GaussianBlur, GaussianNoise

__all__ = [
    "Affine3D",
    "Crop",
    "Flip",
    "Gamma",
    "GaussianBlur",
    "GaussianNoise",
    "IntensityScale",
    "IntensityShift",
]
