"""One call to an asynchronous file system, watched from a thread: is it done, does it still move, end it."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

from stoker.store.remote._patience import Fault

_LOOK_S = 0.05  # between two looks
_END_S = 10.0  # for what was cancelled to clean up


class Transfer:
    """Runs the coroutine on the loop of another thread."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self._ended = threading.Event()
        loop.call_soon_threadsafe(self._start, coroutine)

    def is_done(self) -> bool:
        """Whether it is, after a short wait."""
        return self._ended.wait(_LOOK_S)

    def outcome(self) -> tuple[Any, Fault | None]:
        """When it is done: what it gave, and the fault where it raised an error.

        Libraries keep their errors: raised here, one would keep our callers with it.
        """
        task = self._task
        assert task is not None
        if task.cancelled():
            return None, Fault("the file system's library gave it up")
        error = task.exception()
        return (None, Fault.of(error)) if error is not None else (task.result(), None)

    def cancel(self) -> bool:
        """End it, if it has not ended; whether it surely writes nothing more."""
        if not self._ended.is_set():
            self._loop.call_soon_threadsafe(self._cancel)
        is_over = self._ended.wait(_END_S)
        if is_over and self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                self._task.exception()  # looked at, so that nobody is warned of it
        return is_over

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = self._task = self._loop.create_task(coroutine)
        task.add_done_callback(lambda _: self._ended.set())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
