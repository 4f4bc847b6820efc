"""Changes to a script: applied in memory, measured again, written as a diff.

_overrides.py  settings applied in the script's process    _fix.py      apply, measure, keep what helps
_patch.py      the same as a diff for ``git apply``        _rewrite.py  one call in a source text
"""
