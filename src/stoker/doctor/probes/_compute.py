"""Probes on what a step does with its batch: copies, forward and backward passes, the optimizer.

Tensor methods are replaced on the class for as long as the probes are in, from the first batch on:
what is imported before sees torch as it is. A copy counts where the tensor, or a view of it, came from
one of the last two batches and the result lies in other memory; moving a model is none.
"""

import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from stoker.doctor._record import Stage
from stoker.doctor.probes._replay import DeviceResults, address_of
from stoker.doctor.probes._tape import Swaps, Tape

COPYING = ("to", "cuda", "float", "double", "half", "bfloat16", "long")


class StepDirector(Protocol):
    """Who is told about passes and optimizer steps."""

    is_stopping: bool

    def saw_backward(self) -> None: ...
    def ended_backward(self, end: int, cpu: int) -> None: ...
    def saw_optimizer(self, optimizer: Any, /) -> bool: ...
    def ended_step(self, end: int, cpu: int) -> None: ...
    def stop(self) -> None: ...


class ComputeProbe:
    """Sees the loop from the side of its computations."""

    def __init__(self, tape: Tape, *, director: StepDirector) -> None:
        self.tape = tape
        self.results: DeviceResults | None = None  # set while copies are replayed
        self._director = director

    def install(self, swaps: Swaps) -> None:
        """Put in the probes on passes and optimizers until `swaps` closes."""
        # what Tensor.backward calls too
        swaps.swap(torch.autograd, "backward", self._backward(torch.autograd.backward))
        swaps.swap(torch.autograd, "grad", self._backward(torch.autograd.grad))
        swaps.swap(torch.amp.GradScaler, "step", self._scaled_step(torch.amp.GradScaler.step))
        before = register_optimizer_step_pre_hook(self._before_step)
        swaps.callback(before.remove)
        after = register_optimizer_step_post_hook(self._after_step)
        swaps.callback(after.remove)

    def install_copies(self, swaps: Swaps) -> None:
        """Put in the probes on Tensor methods that copy."""
        for name in COPYING:
            swaps.swap(Tensor, name, self.copying(name, getattr(Tensor, name)))
        swaps.swap(Tensor, "copy_", self._copy_into(Tensor.copy_))

    def copying(self, name: str, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The method `name` of tensors, with a look at what it copies."""
        tape = self.tape

        def method(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if type(tensor) is not Tensor or not tape.pointers:
                return original(tensor, *args, **kwargs)
            tape.num_method_calls += 1
            pointer = address_of(tensor)
            if pointer not in tape.pointers or get_ident() != tape.thread:
                return original(tensor, *args, **kwargs)
            results, key = self.results, None
            if results is not None and results.holds(pointer):
                key = _key(name, pointer, tensor, args, kwargs)
                found = results.get(key)
                if found is not None:
                    tape.pointers.add(address_of(found))
                    return found
            before, tape.stage = tape.stage, "copy"
            begin = tape.now()
            try:
                result = original(tensor, *args, **kwargs)
            finally:
                end = tape.now()
                tape.stage = before
            made = address_of(result)
            if result is not tensor and made != pointer:
                tape.spans.append(("copy", begin, end))
                if result.device.type == "cpu":  # it may be copied on
                    tape.pointers.add(made)
                    tape.last_pointers.add(made)
                if key is not None and results is not None:
                    results.put(key, result, tensor)
            return result

        return _named(method, original)

    def _copy_into(self, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        tape = self.tape

        def copy_(target: Tensor, source: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if type(source) is not Tensor or type(target) is not Tensor or not tape.pointers:
                return original(target, source, *args, **kwargs)
            tape.num_method_calls += 1
            pointer = address_of(source)
            if pointer not in tape.pointers or get_ident() != tape.thread:
                return original(target, source, *args, **kwargs)
            results = self.results
            if results is not None and results.holds(pointer):
                key = ("copy_", address_of(target), target.shape, source.shape)
                if results.get(key) is not None:
                    return target  # a batch of this shape lies in it already; which one makes no odds
                results.put(key, source, target)
            before, tape.stage = tape.stage, "copy"
            begin = tape.now()
            try:
                return original(target, source, *args, **kwargs)
            finally:
                tape.spans.append(("copy", begin, tape.now()))
                tape.stage = before

        return _named(copy_, original)

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        tape, director = self.tape, self._director

        def backward(*args: Any, **kwargs: Any) -> Any:
            if tape.backward_depth or not tape.is_open or get_ident() != tape.thread:
                return original(*args, **kwargs)
            director.saw_backward()
            tape.backward_depth = 1
            before, tape.stage = tape.stage, "backward"
            begin = tape.now()
            try:
                result = original(*args, **kwargs)
            finally:
                end = tape.now()
                cpu = 0 if tape.has_optimized else time.process_time_ns()  # where none has, passes mark steps
                tape.spans.append(("backward", begin, end, -1, -1, -1, False, False, True, None, cpu))
                tape.stage = before
                tape.backward_depth = 0
            if not tape.has_optimized:
                director.ended_backward(end, cpu)
            return result

        return _named(backward, original)

    def _scaled_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        # a scaler that meets an infinity skips the optimizer, and with it the optimizer's hooks
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._before_step(optimizer)
            try:
                return original(scaler, optimizer, *args, **kwargs)
            finally:
                self._after_step(optimizer)

        return _named(step, original)

    def _before_step(self, *_: Any) -> None:
        tape = self.tape
        if not tape.is_open:
            return
        if get_ident() != tape.thread:
            if tape.has_optimized:
                return
            tape.thread = get_ident()  # the loop is where the first optimizer steps
        if self._director.is_stopping:
            self._director.stop()
        tape.has_optimized = True
        if tape.optimizer_depth == 0:
            tape.stage = "optimizer"
            tape.optimizer_begin = tape.now()
        tape.optimizer_depth += 1

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        tape = self.tape
        if not tape.is_open or tape.optimizer_depth == 0 or get_ident() != tape.thread:
            return
        tape.optimizer_depth -= 1
        if tape.optimizer_depth == 0:
            begin, end = tape.optimizer_begin, tape.now()
            marks = self._director.saw_optimizer(optimizer)
            cpu = time.process_time_ns() if marks else 0
            number = id(optimizer)
            tape.spans.append(("optimizer", begin, end, -1, -1, -1, False, False, True, None, cpu, number))
            tape.stage = tape.rest
            tape.stepped = True
            if marks:
                self._director.ended_step(end, cpu)


class CallProbe:
    """Times calls of chosen objects: models, losses, augmentations.

    `__call__` is replaced on their classes and looks which object it is called for: the objects
    themselves are as they were, to `state_dict`, pickle, deepcopy and the compiler.
    """

    def __init__(self, tape: Tape, swaps: Swaps) -> None:
        self._tape = tape
        self._swaps = swaps
        self._stages: dict[int, Stage] = {}
        self._objects: list[Any] = []  # so that no other object gets the same id
        self._classes: set[type] = set()

    def watch(self, target: Any, stage: Stage) -> None:
        """Time calls of this object from now on."""
        kind = type(target)
        if kind not in self._classes:
            try:
                self._swaps.swap(kind, "__call__", self._timed(kind.__call__))
            except (TypeError, AttributeError):  # a class that cannot be changed
                return
            self._classes.add(kind)
        self._stages[id(target)] = stage
        self._objects.append(target)

    def release(self) -> None:
        self._stages.clear()
        self._objects.clear()

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        tape, stages = self._tape, self._stages

        def __call__(target: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            stage = stages.get(id(target))
            if stage is None or tape.forward_depth or tape.backward_depth or get_ident() != tape.thread:
                return original(target, *args, **kwargs)
            tape.forward_depth = 1
            before, tape.stage = tape.stage, stage
            begin = tape.now()
            try:
                return original(target, *args, **kwargs)
            finally:
                tape.spans.append((stage, begin, tape.now()))
                tape.forwarded = tape.forwarded or stage == "forward"
                tape.stage = before
                tape.forward_depth = 0

        return _named(__call__, original)


def _key(name: str, pointer: int, tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What two equal copies have in common; None where an argument is a tensor."""
    if any(isinstance(value, Tensor) for value in (*args, *kwargs.values())):
        return None
    view = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
    return name, pointer, view, args, tuple(kwargs.items())


def _named(function: Callable[..., Any], original: Any) -> Callable[..., Any]:
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        if hasattr(original, attribute):
            setattr(function, attribute, getattr(original, attribute))
    return function
