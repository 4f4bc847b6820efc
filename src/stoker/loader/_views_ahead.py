"""A process beside the training: of low priority, and gone when its parent is."""

import os
import signal
import weakref
from collections.abc import Callable
from typing import NoReturn

from stoker.store._worker_process import die_with

_LEAST_PRIORITY = 19


class Beside:
    """Runs ``work`` in a forked process; what it raises is lost, so it must not matter.

    ``close``, the end of this process or a forgotten object kill it, at any point of its work.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _run(work, parent)
        self._pid = pid
        self._parent = parent
        self._end = weakref.finalize(self, _kill, pid, parent)

    @property
    def running(self) -> bool:
        """Whether it is still at work."""
        if self._end.alive and (os.getpid() != self._parent or _has_ended(self._pid)):
            self._end.detach()
        return self._end.alive

    def close(self) -> None:
        """Kill it, if it is still at work."""
        self._end()


def _run(work: Callable[[], object], parent: int) -> NoReturn:
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: the parent acts
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with(parent)
        os.nice(_LEAST_PRIORITY)
        work()
    finally:
        os._exit(0)


def _kill(pid: int, parent: int) -> None:
    if os.getpid() == parent and not _has_ended(pid):  # a forked copy of us has no say
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # somebody else waited for it
        return True
