"""Tests that measure time run alone, one after the other, and may try again: the machine is not theirs.

`make test` runs everything else first, a process a core, and these afterwards.
"""

from pathlib import Path

import pytest

_TIMED = {
    "test_corpus.py",
    "test_fix.py",
    "test_operators.py",
    "test_replay.py",
    "test_sampler.py",
    "test_session.py",
    "test_trial.py",
    "test_watch.py",
    "test_workers.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.path.name in _TIMED:
            item.add_marker(pytest.mark.timed)
            item.add_marker(pytest.mark.flaky(reruns=2))
