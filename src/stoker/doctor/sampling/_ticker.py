"""Calls a function in the main thread every few milliseconds, between two of its bytecodes.

Why not a thread: one that wants to look at the main thread's stack must first get the interpreter's lock,
and gets it where the main thread lets go of it: at a tensor operator, hardly ever in the Python loop that
takes all the time. It then blames the wrong line.

So a timer of the operating system sends a signal to the main thread, and Python calls us at its next safe
point: at the end of the call or of the turn of the loop under way, where the frame still stands at the
line in question. (An operator such as `a @ b` has no such point: its time is seen at the next call, and
`_sampler` takes it back.)
The signal is SIGURG: nobody uses it, it is ignored by default, so that a library that resets all handlers
does no harm, and system calls are restarted after it. Forked children have no timer.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Tick = Callable[[int, FrameType | None], None]  # a signal handler: given the frame that was interrupted

_CLOCK_MONOTONIC = 1
_SIGEV_THREAD_ID = 4

_running: tuple[int, Tick] | None = None  # process and handler of the timer that was started last


class _SignalEvent(ctypes.Structure):
    """struct sigevent of Linux with 64-bit pointers."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("padding", ctypes.c_char * 44),
    )


class _Period(ctypes.Structure):
    """struct itimerspec."""

    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


class Ticker:
    """A timer; one may run at a time. Start and stop it in the main thread.

    The function must be short. Under `torch.compile` one that runs between two bytecodes of a model would
    be taken for the model's own and compiled: it is marked to be left alone.
    """

    def __init__(self, tick: Tick, *, interval_s: float) -> None:
        self._tick = tick
        self._interval_ns = max(1, int(interval_s * 1e9))
        self._timer: ctypes.c_void_p | None = None
        self._process = 0
        self._before: Any = None

    def start(self) -> bool:
        """Begin; False where it can't: not in the main thread, no such timers, or the signal is in use."""
        global _running  # noqa: PLW0603 - a signal's handler is the process's
        if threading.current_thread() is not threading.main_thread():
            return False
        self._before = signal.getsignal(signal.SIGURG)
        if _running is not None and self._before == _running[1] and _running[0] != os.getpid():
            self._before = signal.SIG_DFL  # inherited: our parent's timer is not ours
        if self._before not in {signal.SIG_DFL, signal.SIG_IGN}:
            return False
        event = _SignalEvent(signal=signal.SIGURG, notify=_SIGEV_THREAD_ID, thread=threading.get_native_id())
        timer = ctypes.c_void_p()
        library = ctypes.CDLL(None)
        if not hasattr(library, "timer_create"):
            return False
        if library.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
            return False
        _running = (os.getpid(), self._tick)
        leave_alone(self._tick)
        signal.signal(signal.SIGURG, self._tick)
        signal.siginterrupt(signal.SIGURG, False)  # noqa: FBT003
        self._timer, self._process = timer, os.getpid()
        seconds, nanoseconds = divmod(self._interval_ns, 1_000_000_000)
        period = _Period(seconds, nanoseconds, seconds, nanoseconds)
        library.timer_settime(timer, 0, ctypes.byref(period), None)
        return True

    def stop(self) -> None:
        """End; no tick comes after this."""
        if self._timer is None:
            return
        if self._process == os.getpid():  # a forked child has the object, not the timer
            ctypes.CDLL(None).timer_delete(self._timer)
        if signal.getsignal(signal.SIGURG) == self._tick:
            signal.signal(signal.SIGURG, self._before)
        self._timer = None


def leave_alone(function: Callable[..., Any]) -> None:
    """Have torch's compiler neither compile nor count this Python function, nor what it calls."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    compiler: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    if code is None or compiler is None:
        return
    if hasattr(compiler, "set_code_exec_strategy"):
        skip = compiler._FrameAction.SKIP  # noqa: SLF001 - there is no public way
        compiler.set_code_exec_strategy(code, compiler._FrameExecStrategy(skip, skip))  # noqa: SLF001
    elif hasattr(compiler, "skip_code"):  # torch before 2.7
        compiler.skip_code(code)
