"""Face parsing: skin, hair, eyes and all else of a face, pixel by pixel.

_classes.py    the 19 classes, their colours       _layout.py       faces and masks in folders
_images.py     one face as bytes                   _prepare.py      all of them as a store
_synthetic.py  drawn faces with exact masks        _data.py         who is for what, batches
_settings.py   settings and profiles               _augment.py      on the device, image and mask together
_model.py      the network                         _loss.py         cross-entropy, Dice, focal
_task.py       what is minimised and measured      _stages.py       train, evaluate, predict
_predictions.py, _grid.py  masks as files, and a picture of them    _system.py  the recipe
"""

from stoker.recipes.face_parsing._classes import CLASSES, COLOURS, IGNORE, MIRRORED, PALETTE
from stoker.recipes.face_parsing._settings import FaceSettings
from stoker.recipes.face_parsing._synthetic import draw_face, write_faces
from stoker.recipes.face_parsing._system import RECIPE

__all__ = [
    "CLASSES",
    "COLOURS",
    "IGNORE",
    "MIRRORED",
    "PALETTE",
    "RECIPE",
    "FaceSettings",
    "draw_face",
    "write_faces",
]
