"""Typed settings, the files and overrides they come from, and what this machine can really give.

_settings.py    the base class of all settings
_load.py        load, resolve and dump: the calls a user makes
_files.py       a file's text to plain data and back, by suffix
_yaml.py        YAML without its traps
_overrides.py   a.b=c applied to plain data
_shape.py       which settings classes and keys may stand at a place
_problems.py    what pydantic found, said as rule, value and remedy
_training.py    the settings of a training run
_profiles.py    a run's settings out of a profile, a file and overrides, and where each came from
_auto.py        what the profile "auto" decides from the machine and the data
profiles/       the profiles, each a file that says what it is for
_machine.py     usable cores and available memory
_cgroup.py      the limits of this process' own control groups
_compiling.py   whether loops can be compiled here, and what compiles them
"""

from stoker.config._auto import Decision, Facts
from stoker.config._compiling import call_kernel, can_compile, kernel, kernel_part
from stoker.config._load import dump, load, resolve
from stoker.config._machine import available_memory_bytes, usable_cores
from stoker.config._profiles import Resolved, profile_names, profile_path, resolve_layers, resolve_training
from stoker.config._settings import Settings
from stoker.config._training import TrainSettings

__all__ = [
    "Decision",
    "Facts",
    "Resolved",
    "Settings",
    "TrainSettings",
    "available_memory_bytes",
    "call_kernel",
    "can_compile",
    "dump",
    "kernel",
    "kernel_part",
    "load",
    "profile_names",
    "profile_path",
    "resolve",
    "resolve_layers",
    "resolve_training",
    "usable_cores",
]
