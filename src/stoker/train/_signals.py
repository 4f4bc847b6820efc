"""SIGTERM and SIGINT as a wish to stop that is granted between two steps."""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

_SAME_PRESS_S = 0.5  # a launcher passes on the Ctrl-C that its workers have had from the terminal already


class StopSignals:
    """While it is entered, the first SIGTERM or SIGINT only sets `requested`; a second SIGINT stops at once.

    Handlers can be set in the main thread alone; in any other this does nothing. A signal that the
    program ignores stays ignored. Afterwards the handlers are those of before.

    Processes that are forked meanwhile inherit the handlers: in those, SIGTERM does what it did before, and
    SIGINT nothing, since a Ctrl-C comes to all and the parent ends its workers.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.requested = 0  # the number of the signal
        self._clock = clock
        self._since = 0.0
        self._process = os.getpid()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:
                    self._before[number] = before
                    signal.signal(number, self._receive)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before.clear()

    def _receive(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signal's signature
        if os.getpid() != self._process:
            if number == signal.SIGTERM:
                signal.signal(number, self._before[number])
                signal.raise_signal(number)
        elif self.requested == 0:
            self.requested, self._since = number, self._clock()
        elif number == signal.SIGINT and self._clock() - self._since > _SAME_PRESS_S:
            raise KeyboardInterrupt
