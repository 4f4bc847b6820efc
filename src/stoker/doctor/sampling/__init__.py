"""What is looked at from time to time: lines, operators, memory, cores.

_sampler.py  where Python stands       _ticker.py     the timer that asks     _frames.py  whose code it is
_operators.py  what a step issues      _resources.py  memory and processors   _cores.py   what we may use
_idle.py     whether workers rest
"""
