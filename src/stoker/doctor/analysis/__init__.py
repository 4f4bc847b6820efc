"""From a record to a diagnosis. Pure: no clocks, no files, no processes.

_analysis.py  all of it together         _sound.py     what of a record can be believed
_stages.py    where a step's time goes   _noise.py     averages, and how far they can be trusted
_shares.py    to whom it belongs         _lines.py     the sampler's lines, sorted
_causes.py    who is to blame            _cost.py      what a sample costs
_queue.py     a loader as a queue        _fit.py       fitted to the run     _model.py  with other settings
_outlook.py   what each setting brings   _forecast.py  with its range        _notes.py  what to know besides
_advice.py    what is worth it           _remedies.py, _loop_remedies.py     beyond settings
"""
