"""Heart sounds: from recordings to cycles, contrastive pre-training, classification.

_layouts.py    public collections as lists of recordings    _segmentation.py  S1, systole, S2, diastole
_cycles.py     a recording's cycles, judged                 _prepare.py       cycles into a store
_subsets.py    splits by patient, fractions of labels       _data.py          the store of a run
_synthetic.py  made-up heart sounds (over _synthetic_sets)  _settings.py, _tasks.py, _system.py
learning/      networks, losses, stages: what needs torch
"""

from stoker.recipes.heart_sounds._cycles import CycleSettings, read_cycles
from stoker.recipes.heart_sounds._layouts import Collection, Entry, read_collection
from stoker.recipes.heart_sounds._prepare import CycleSource, prepare
from stoker.recipes.heart_sounds._segmentation import Segmentation, onset_f1, read_states, segment
from stoker.recipes.heart_sounds._settings import HeartSoundSettings
from stoker.recipes.heart_sounds._subsets import labelled, split_patients
from stoker.recipes.heart_sounds._synthetic import CLASSES, Recording, synthesize
from stoker.recipes.heart_sounds._synthetic_sets import (
    write_cinc,
    write_circor,
    write_pascal,
    write_recordings,
)
from stoker.recipes.heart_sounds._system import RECIPE

__all__ = [
    "CLASSES",
    "RECIPE",
    "Collection",
    "CycleSettings",
    "CycleSource",
    "Entry",
    "HeartSoundSettings",
    "Recording",
    "Segmentation",
    "labelled",
    "onset_f1",
    "prepare",
    "read_collection",
    "read_cycles",
    "read_states",
    "segment",
    "split_patients",
    "synthesize",
    "write_cinc",
    "write_circor",
    "write_pascal",
    "write_recordings",
]
