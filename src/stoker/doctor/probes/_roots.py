"""Which objects a step calls: the models, the losses, the augmentation of a batch.

Found by watching two or three early steps with Python's own profiling hook, which sees every call and
changes nothing: no hook on any module, no graph of the compiler's is touched. Afterwards only the
objects that were found are timed (`_compute.CallProbe`).

    forward   modules that have parameters, called from outside any other module (models, teachers), and
              modules without, if called after a model and their result carries gradients (losses).
              A loss that is a function, such as `F.cross_entropy`, is not seen: it is "other".
    augment   modules without parameters, and objects with `__call__`, that are given a tensor of the
              batch before any model is.
"""

import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any

from torch import nn

from stoker.doctor._record import Stage
from stoker.doctor.probes._compute import CallProbe
from stoker.doctor.probes._replay import pointers_of, tensors_of
from stoker.doctor.probes._tape import Tape

MAX_CALLS_PER_STEP = 200  # one that is called more often in a step is not timed: it would cost too much
MAX_OBJECTS = 64

_MODULE_CALL: CodeType = nn.Module._wrapped_call_impl.__code__  # noqa: SLF001 - what every module's call runs


class RootFinder:
    """Watches whole steps of the thread that calls `begin`, one at a time."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._found: dict[int, tuple[Any, Stage]] = {}
        self._calls: Counter[int] = Counter()
        self._most_calls: Counter[int] = Counter()
        self._outermost: FrameType | None = None  # of the call that is being watched
        self._target: Any = None
        self._model_was_called = False
        self.is_watching = False
        self.num_steps = 0

    @property
    def is_blocked(self) -> bool:
        """Another profiler has the hook."""
        return not self.is_watching and sys.getprofile() is not None

    def begin(self) -> None:
        """Watch from here; a step begins."""
        if sys.getprofile() is None:
            self._model_was_called = False
            self._outermost = None
            self._calls.clear()
            self.is_watching = True
            sys.setprofile(self._look)

    def end(self) -> None:
        """The step is over."""
        if self.is_watching:
            sys.setprofile(None)
            self.is_watching = False
            self.num_steps += 1
            self._outermost = self._target = None
            for number, count in self._calls.items():
                self._most_calls[number] = max(self._most_calls[number], count)

    def put_in(self, probe: CallProbe) -> tuple[list[str], list[str]]:
        """Time what was found; gives the classes of those timed, and of those called too often for it."""
        timed: list[str] = []
        left: list[str] = []
        for number, (target, stage) in list(self._found.items()):
            too_often = self._most_calls[number] > MAX_CALLS_PER_STEP or len(timed) >= MAX_OBJECTS
            (left if too_often else timed).append(type(target).__name__)
            if not too_often:
                probe.watch(target, stage)
        self._found.clear()
        return timed, left

    def _look(self, frame: FrameType, event: str, result: Any) -> None:
        if event == "call":
            if self._outermost is None:
                code = frame.f_code
                if code is _MODULE_CALL or code.co_name == "__call__":
                    self._enter(frame)
        elif event == "return" and frame is self._outermost:
            self._leave(result)

    def _enter(self, frame: FrameType) -> None:
        tape = self._tape
        if tape.stage not in {None, "other", "optimizer"} or tape.backward_depth:
            return  # inside next(), a copy or a backward pass; an optimizer may call a closure
        values = frame.f_locals
        names = frame.f_code.co_varnames[:1]
        target = values.get(names[0]) if names else None
        if target is None or isinstance(target, type) or getattr(target, "__call__", None) is None:  # noqa: B004
            return
        if not isinstance(target, nn.Module):
            is_torchs = type(target).__module__.partition(".")[0] == "torch"
            if self._model_was_called or is_torchs or not self._has_batch(values, target):
                return
        elif _has_parameters(target):
            self._model_was_called = True
            self._note(target, "forward")
        elif not self._model_was_called and self._has_batch(values, target):
            self._note(target, "augment")
        self._outermost, self._target = frame, target

    def _leave(self, result: Any) -> None:
        target, self._outermost, self._target = self._target, None, None
        made = tensors_of(result)
        if not isinstance(target, nn.Module):
            if made:  # of a tensor of the batch, another tensor
                self._note(target, "augment")
        elif self._model_was_called and not _has_parameters(target) and any(x.requires_grad for x in made):
            self._note(target, "forward")

    def _note(self, target: Any, stage: Stage) -> None:
        self._found.setdefault(id(target), (target, stage))
        self._calls[id(target)] += 1

    def _has_batch(self, values: dict[str, Any], target: Any) -> bool:
        given = [value for value in values.values() if value is not target]
        return bool(pointers_of(given) & self._tape.pointers)


def _has_parameters(module: nn.Module) -> bool:
    return next(iter(module.parameters()), None) is not None
