"""Time a training script by a clock on its optimizer and nothing else: no doctor, no probes.

A step lasts from the end of one `optimizer.step()` to the end of the next. What a script does between
training epochs under `torch.no_grad()` with a DataLoader is validation, and left out.
"""

import multiprocessing as mp
import os
import runpy
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which the first optimizer step imports: two seconds that no run need spend again
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

_ROUND = 24  # steps: workers that keep in step deliver all at once, so only whole rounds have a mean
_TIMEOUT_S = 180


@dataclass(frozen=True)
class Window:
    """Which steps of a run are timed."""

    seconds: float  # at least; less if the script ends before
    num_warmup: int = 12
    whole_epochs: bool = False  # from one epoch's start to another's, so that starts have their share
    skipped_epochs: int = 0  # in which a cache fills
    hopeless_s: float = float("inf")  # a mean step above this needs no exact figure


def seconds_per_step(script: Path, window: Window) -> float:
    """Run a script until enough steps were seen; its mean step.

    The run has a process of its own, forked from this one: torch is imported, nothing else is warm.
    """
    receiver, sender = mp.Pipe(duplex=False)
    child = mp.get_context("fork").Process(target=_run, args=(script, window, sender))
    child.start()
    sender.close()
    try:
        answer = receiver.recv() if receiver.poll(_TIMEOUT_S) else f"not done in {_TIMEOUT_S} s"
    except EOFError:
        answer = "its process died"
    finally:
        child.join(_TIMEOUT_S)
        child.kill()
        receiver.close()
    if isinstance(answer, str):
        raise RuntimeError(f"{script.name} was not timed: {answer}")  # noqa: TRY004 - a run that failed
    return float(answer)


def _run(script: Path, window: Window, sender: Connection) -> None:
    clock = _Clock(window)
    sys.argv, sys.path[0] = [str(script)], str(script.parent)
    os.chdir(script.parent)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        with clock.watching():
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit:
        pass
    except Exception:  # noqa: BLE001 - whatever the script raises is for the caller
        if clock.result is None:
            sender.send(traceback.format_exc())
            return
    sender.send(clock.result if clock.result is not None else clock.so_far("the script ended too soon"))


class _Clock:
    """Notes when steps end and epochs begin; ends the script when it has seen enough."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.result: float | None = None
        self._num_steps = self._num_epochs = 0
        self._begin: float | None = None
        self._steps_before = 0
        self._last = 0.0
        self._validation: float | None = None
        self._left_out = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the script's steps and epochs."""
        make_iterator = DataLoader.__iter__

        def counted(loader: DataLoader[Any]) -> Any:
            self.iterates()
            return make_iterator(loader)

        DataLoader.__iter__ = counted  # type: ignore[method-assign]
        hook = register_optimizer_step_post_hook(lambda *_: self.steps())
        try:
            yield
        finally:
            hook.remove()
            DataLoader.__iter__ = make_iterator  # type: ignore[method-assign]

    def iterates(self) -> None:
        """A DataLoader begins anew."""
        now = time.perf_counter()
        if not torch.is_grad_enabled():
            self._validation = now
            return
        if self._validation is not None:
            self._left_out += now - self._validation if self._begin is not None else 0.0
            self._validation = None
        self._num_epochs += 1
        if self.window.whole_epochs:
            self._look(now)

    def steps(self) -> None:
        """An optimizer step ended."""
        self._num_steps += 1
        self._last = time.perf_counter()
        if not self.window.whole_epochs and (self._num_steps - self._steps_before) % _ROUND == 0:
            self._look(self._last)
        elif self._begin is not None and self._num_steps - self._steps_before >= _ROUND // 2:
            self._give_up_if_hopeless(self._last)
        if self._begin is None and not self.window.whole_epochs and self._is_warm():
            self._start(self._last)

    def so_far(self, otherwise: str) -> float | str:
        """The mean step until the last one."""
        num = self._num_steps - self._steps_before
        if self._begin is None or num < _ROUND // 2:
            return otherwise
        return (self._last - self._begin - self._left_out) / num

    def _look(self, now: float) -> None:
        if self._begin is None:
            if self._is_warm():
                self._start(now)
        elif now - self._begin - self._left_out >= self.window.seconds:
            self._finish(now)

    def _give_up_if_hopeless(self, now: float) -> None:
        assert self._begin is not None
        mean = (now - self._begin - self._left_out) / (self._num_steps - self._steps_before)
        if mean > self.window.hopeless_s:
            self._finish(now)

    def _is_warm(self) -> bool:
        return (
            self._num_steps >= self.window.num_warmup and self._num_epochs - 1 >= self.window.skipped_epochs
        )

    def _start(self, now: float) -> None:
        self._begin, self._steps_before = now, self._num_steps

    def _finish(self, now: float) -> None:
        assert self._begin is not None
        self.result = (now - self._begin - self._left_out) / (self._num_steps - self._steps_before)
        raise SystemExit(0)
