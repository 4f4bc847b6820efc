"""The accelerator's own time for what the host marks, without ever waiting for it.

A host that launches kernels runs ahead of the device, so its clock says nothing about when a stage
was computed. Each mark therefore also records an event on the current stream. Events are read when
they are done (`query`), and used again. In the device's time the span of a `next()` is true
starvation: its first event is done only when all earlier work is.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

_MAX_PENDING = 256
_NEW_ANCHOR_MS = 1000.0  # elapsed times are single precision: measured from an event not long ago


class DeviceClock:
    """A host clock whose every reading also marks the device's time. Needs a CUDA device.

    Making one waits for the device, once, to tie the two clocks together.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._pool: list[Any] = []
        self._pending: deque[tuple[int, Any]] = deque()
        self._times: list[tuple[int, int]] = []
        torch.cuda.synchronize()
        self._anchor = self._record()
        self._anchor.synchronize()
        self._anchor_ns = clock()

    def __call__(self) -> int:
        host = self._clock()
        if not torch.cuda.is_current_stream_capturing():
            self._pending.append((host, self._record()))
            if len(self._pending) > _MAX_PENDING:
                self._read()
        return host

    def times(self) -> dict[int, int]:
        """The device's time for every mark, by the host's. For the end: waits for the last event."""
        if self._pending:
            self._pending[-1][1].synchronize()
            self._read()
        return in_order(self._times)

    def _record(self) -> Any:
        event = self._pool.pop() if self._pool else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _read(self) -> None:
        while self._pending and self._pending[0][1].query():
            host, event = self._pending.popleft()
            elapsed_ms = self._anchor.elapsed_time(event)
            time = self._anchor_ns + round(elapsed_ms * 1e6)
            self._times.append((host, time))
            if elapsed_ms > _NEW_ANCHOR_MS:
                self._pool.append(self._anchor)
                self._anchor, self._anchor_ns = event, time
            else:
                self._pool.append(event)


def in_order(times: list[tuple[int, int]]) -> dict[int, int]:
    """Device times that never go back in the order of the host's.

    A copy on a stream of its own may be done before work that was launched earlier: then it was hidden
    behind that work and took no time of its own.
    """
    found: dict[int, int] = {}
    latest = 0
    for host, time in sorted(times):
        latest = max(latest, time)
        found[host] = latest
    return found
