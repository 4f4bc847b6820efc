"""Live progress: a bar in a terminal, plain lines elsewhere; nothing on ranks other than the first."""

import sys
import time
from collections.abc import Callable
from typing import Any, Self, TextIO

_LINE_EVERY_S = 10.0


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def begin(self, step: int, total: int | None) -> None:
        """Nothing."""

    def update(self, step: int, detail: str) -> None:
        """Nothing."""

    def line(self, text: str) -> None:
        """Nothing."""


class Display(Silent):
    """Shows steps, throughput and remaining time on standard error (or `stream`)."""

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._bar: Any = _bar(self._stream) if self._stream.isatty() else None
        self._total: int | None = None
        self._first_step = 0
        self._start = self._last_line = clock()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, step: int, total: int | None) -> None:
        """A run of `total` steps (None: unknown) starts, or goes on after some."""
        self._total, self._first_step = total, step
        self._start = self._last_line = self._clock()
        if self._bar is not None:
            self._bar.add_task("training", total=total, completed=step, detail="")

    def update(self, step: int, detail: str) -> None:
        """Show how far it is."""
        now = self._clock()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, detail=detail)
        elif now - self._last_line >= _LINE_EVERY_S:
            self._last_line = now
            of_total = "" if self._total is None else f" of {self._total}"
            self.line(f"step {step}{of_total}: {detail}{self._left(step, now)}")

    def line(self, text: str) -> None:
        """A line that stays."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def _left(self, step: int, now: float) -> str:
        done = step - self._first_step
        if self._total is None or done < 1:
            return ""
        return f", {(self._total - step) * (now - self._start) / done:,.0f} s left"


def _bar(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
        console=Console(file=stream),
        transient=True,
    )
