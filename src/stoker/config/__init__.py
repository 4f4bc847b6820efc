"""Typed settings, the files and overrides they come from, and what this machine can really give.

_settings.py    the base class of all settings
_load.py        load, resolve and dump: the calls a user makes
_files.py       a file's text to plain data and back, by suffix
_yaml.py        YAML without its traps
_overrides.py   a.b=c applied to plain data
_shape.py       which settings classes and keys may stand at a place
_problems.py    what pydantic found, said as rule, value and remedy
_machine.py     usable cores and available memory
_cgroup.py      the limits of this process' own control groups
"""

from stoker.config._load import dump, load, resolve
from stoker.config._machine import available_memory_bytes, usable_cores
from stoker.config._settings import Settings

__all__ = [
    "Settings",
    "available_memory_bytes",
    "dump",
    "load",
    "resolve",
    "usable_cores",
]
