"""The doctor: measures any PyTorch training script, finds why it starves, and proves the cure.

_examine.py     measure a script               _watch.py       watch a loop in one's own process
_session.py     probes in, phases, probes out  _phases.py      how long each phase lasts
_loop.py        probes on DataLoaders          _compute.py     probes on copies, passes, optimizers
_roots.py       which modules a step calls     _replay.py      batches that are given again
_tape.py        what the probes write on       _steps.py       from spans to steps and pauses (pure)
_record.py      what was observed              _assemble.py    from a session to a record
_diagnosis.py   what it means                  _analysis.py    from a record to a diagnosis (pure)
_stages.py      shares of a step (pure)        _causes.py      who is to blame (pure)
_model.py       what a change would bring      _advice.py      which changes are worth it (pure)
_fix.py         apply, measure again           _patch.py       the change as a diff
_check.py       slower beyond noise? (pure)    report/         page, terminal, JSON, trace
"""

from stoker.doctor._analysis import diagnose
from stoker.doctor._check import check, compare
from stoker.doctor._diagnosis import Advice, Cause, Comparison, Diagnosis, Interval
from stoker.doctor._examine import examine
from stoker.doctor._lightning import DoctorCallback
from stoker.doctor._overrides import LoaderOverride, Overrides
from stoker.doctor._record import Record
from stoker.doctor._watch import watch

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
