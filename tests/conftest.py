import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# The gate must give one answer to one commit. `HYPOTHESIS_PROFILE=explore` looks for new examples.
hypothesis.settings.register_profile("gate", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", max_examples=500, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start, also where a shell runs us in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_files() -> set[str]:
    """Regular files that this process has open, but for the interpreter's own."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith("/") and Path(target.removesuffix(" (deleted)")).suffix in {
            ".h5",
            ".json",
            ".lock",
            ".log",
            ".wav",
        }:
            found.add(target)
    return found


@pytest.fixture(autouse=True)
def _nothing_left_over() -> Iterator[None]:
    """Fail a test that leaves a thread, a child process or an open data file behind."""
    threads, files = set(threading.enumerate()), _open_files()
    yield
    assert not multiprocessing.active_children(), "a child process was left over"
    left = []
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)  # one that is on its way out may finish
        left += [thread.name] if thread.is_alive() else []
    assert not left, f"threads were left over: {left}"
    assert _open_files() <= files, f"files were left open: {_open_files() - files}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills",
        type=int,
        default=None,
        help="how many times the packer is killed at a random point (default: 36)",
    )
