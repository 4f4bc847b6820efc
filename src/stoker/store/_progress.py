"""Progress of a long job: a bar with rate and remaining time, or plain lines without a terminal."""

import logging
import sys
import time
from types import TracebackType
from typing import Any, Protocol, Self

_LINE_EVERY_S = 10.0

logger = logging.getLogger("stoker")


class Progress(Protocol):
    """Told how far a job is; every count is a total so far."""

    def update(self, num_done: int, num_bytes: int, num_skipped: int) -> None:
        """Show it."""


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, num_done: int, num_bytes: int, num_skipped: int) -> None:
        """Nothing."""


class Display:
    """Shows progress on standard error; a context manager, so that the bar always goes away."""

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._start = self._last_line = time.monotonic()
        self._bar = _bar(title, total) if sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, num_done: int, num_bytes: int, num_skipped: int) -> None:
        """Show how far it is."""
        elapsed = max(1e-9, time.monotonic() - self._start)
        detail = f"{num_done / elapsed:,.0f} samples/s, {num_bytes / elapsed / 1e6:,.0f} MB/s"
        if num_skipped:
            detail += f", {num_skipped} skipped"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=num_done, detail=detail)
        elif time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            left = (self._total - num_done) * elapsed / max(1, num_done)
            logger.info(
                "%s: %d of %d samples, %s, %.0f s left",
                self._title,
                num_done,
                self._total,
                detail,
                left,
            )


def _bar(title: str, total: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    bar = RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task(title, total=total, detail="")
    return bar
