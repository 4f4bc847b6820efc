"""Cardiac CT: a heart's ejection fraction and the state of its aortic valve from a scan of the chest.

_layout.py     the table of studies, labels         _synthetic.py   learnable studies in that layout
_volume.py     orientation, spacing, size (pure)    _source.py      volumes as samples
_prepare.py    volumes as a store                   _splits.py      by patient, kept
_settings.py   settings and profiles                _data.py        packed or raw, as batches with labels
_augment.py    on the device                        _model.py       the network
_task.py       what is minimised                    _metrics.py     what is measured, where labels are known
_stages.py     train, evaluate, predict             _system.py      the recipe
"""

from stoker.recipes.cardiac_ct._settings import CardiacSettings
from stoker.recipes.cardiac_ct._synthetic import write_studies
from stoker.recipes.cardiac_ct._system import RECIPE
from stoker.recipes.cardiac_ct._volume import prepare_volume

__all__ = ["RECIPE", "CardiacSettings", "prepare_volume", "write_studies"]
