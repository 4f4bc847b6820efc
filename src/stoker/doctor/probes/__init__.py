"""Probes in the process that trains: they see the loop, and lead it through its phases.

_session.py  probes in, phases, probes out     _phases.py    how long each phase lasts
_loop.py     DataLoaders, made and iterated    _loaders.py   which there are, and their settings
_compute.py  copies, passes, optimizers        _roots.py     which modules a step calls
_replay.py   batches that are given again      _cuda.py      the accelerator's own time
_tape.py     what all of them write on         _steps.py     from spans to steps and pauses (pure)
_script.py   a script run as Python would      _assemble.py  from a session to a record
_made_at.py  lines and names of the user's     _overhead.py, _uncompiled.py  our own cost; torch.compile
"""
