import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

# Before torch and NumPy are loaded, here and in the processes that tests start: tests run a process a core,
# and tensors in tests are small, so that further threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

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


def pytest_collection_finish() -> None:
    """Take what all imports made out of the collector's way: it is never garbage, and there is much of it."""
    gc.collect()
    gc.freeze()


_DATA_FILES = (".h5", ".json", ".lock", ".log", ".wav")


def _open_files() -> set[str]:
    """Data files that this process has open. Runs twice a test, thousands of times: no pathlib."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        except OSError:
            continue
        if target.startswith("/") and target.removesuffix(" (deleted)").endswith(_DATA_FILES):
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
        thread.join(60)  # one that is on its way out may finish
        left += [thread.name] if thread.is_alive() else []
    assert not left, f"threads were left over: {left}"
    open_now = _open_files()
    assert open_now <= files, f"files were left open: {open_now - files}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills",
        type=int,
        default=None,
        help="how many times the packer is killed at a random point (default: 36)",
    )


_TIMED = {  # they measure time, and may try again: the machine is not theirs alone
    "cli/test_demo.py",
    "cli/test_doctor_command.py",
    "doctor/test_corpus.py",
    "doctor/test_fix.py",
    "doctor/test_operators.py",
    "doctor/test_our_loader.py",
    "doctor/test_replay.py",
    "doctor/test_sampler.py",
    "doctor/test_session.py",
    "doctor/test_trial.py",
    "doctor/test_watch.py",
    "doctor/test_workers.py",
    "recipes/printer_tcn/test_doctor.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).as_posix() in _TIMED:
            item.add_marker(pytest.mark.timed)
            item.add_marker(pytest.mark.flaky(reruns=2))
