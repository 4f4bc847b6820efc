"""EMG to pose: the angles of a hand's joints from electrodes at the wrist.

_layout.py     sessions of the emg2pose layout      _synthetic.py    learnable sessions in it
_data.py       sessions as windows, statistics      _prepare.py      sessions as a store
_settings.py   settings and profiles                _augment.py      on the device
_model.py      the network                          _hand.py         angles to fingertips
_task.py       what is minimised                    _metrics.py      what is measured, in O(1) memory
_stages.py     train, evaluate, predict             _predictions.py  what is predicted, as a file
_system.py     the recipe
"""

from stoker.recipes.emg_pose._layout import FINGERS, GROUPS, JOINTS
from stoker.recipes.emg_pose._settings import EmgSettings
from stoker.recipes.emg_pose._synthetic import write_sessions
from stoker.recipes.emg_pose._system import RECIPE

__all__ = ["FINGERS", "GROUPS", "JOINTS", "RECIPE", "EmgSettings", "write_sessions"]
