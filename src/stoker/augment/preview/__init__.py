"""Pictures of what a pipeline does to samples, with what was drawn for each.

_figure.py   the grid: samples below each other, their views side by side
_panels.py   one field of one sample: signal, image or volume
_masks.py    masks as colours               _scales.py   what is shown on one scale
_words.py    parameters as lines of text
"""

from stoker.augment.preview._figure import preview

__all__ = ["preview"]
