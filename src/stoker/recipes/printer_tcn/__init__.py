"""Hidden states of a 3-D printer: tracking errors and the quality of what is laid down.

_layout.py     layers as the simulation writes them   _synthetic.py    a simulated printer that writes them
_axis.py       an axis, exactly, at any sample rate   _laws.py         what quality depends on
_motion.py     moves of a nozzle (pure)               _mat.py          a layer as a .mat file or a table
_prepare.py    layers as a store                      _scaler.py       means and deviations, and back
_data.py       a normalised store as windows          _settings.py     settings and profiles
_model.py      the network                            _physics.py      residuals of dynamics and laws
_task.py       what is minimised                      _metrics.py      what is measured, in O(1) memory
_stages.py     train, evaluate, predict               _predictions.py  what is predicted, as a file
_system.py     the recipe
"""

from stoker.recipes.printer_tcn._axis import Axis
from stoker.recipes.printer_tcn._layout import COLUMNS, FEATURES, STATES, TARGETS
from stoker.recipes.printer_tcn._scaler import Scaler
from stoker.recipes.printer_tcn._settings import PrinterSettings
from stoker.recipes.printer_tcn._synthetic import write_parts
from stoker.recipes.printer_tcn._system import RECIPE

__all__ = [
    "COLUMNS",
    "FEATURES",
    "RECIPE",
    "STATES",
    "TARGETS",
    "Axis",
    "PrinterSettings",
    "Scaler",
    "write_parts",
]
