"""The doctor: measures any PyTorch training script, finds why it starves, and proves the cure.

_examine.py    measure a script          _watch.py, _lightning.py  watch a loop of one's own
_record.py     what was observed         _diagnosis.py             what it means: the two seams, plain data
probes/        see the loop              making/                   see how samples are made
sampling/      lines, operators, memory  analysis/                 from a record to a diagnosis (pure)
mending/       apply, patch              _check.py                 slower beyond noise? (pure)
report/        page, terminal, trace     _json.py                  report.json
"""

from stoker.doctor._check import check, compare
from stoker.doctor._diagnosis import Advice, Cause, Comparison, Diagnosis, Interval
from stoker.doctor._examine import examine
from stoker.doctor._lightning import DoctorCallback
from stoker.doctor._record import Record
from stoker.doctor._watch import watch
from stoker.doctor.analysis._analysis import diagnose
from stoker.doctor.mending._overrides import LoaderOverride, Overrides

__all__ = [
    "Advice",
    "Cause",
    "Comparison",
    "Diagnosis",
    "DoctorCallback",
    "Interval",
    "LoaderOverride",
    "Overrides",
    "Record",
    "check",
    "compare",
    "diagnose",
    "examine",
    "watch",
]
