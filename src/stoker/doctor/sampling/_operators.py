"""How many operators a step issues, which modules issue them, and where the host asks for values.

For the few steps inside `count_operators`, three observers are at work, and removed after:

- torch's own record of every operator, on all threads of the backward pass (the old profiler interface,
  which unlike the new one prints nothing and does not start Kineto). Compiled models stay compiled: their
  graphs issue what they issue.
- Python's profiling hook, which notes when a module's `forward` begins and ends. Hooks on modules would
  do too, but compiled models may be compiled again for them.
- Tensor methods that hand a value to Python, which note the user's line.

Counted are top-level operators only: `aten::linear`, not the `addmm` inside it. Those of the backward
pass are included, and put down to the module whose forward pass made them necessary: the innermost one
that is not a layer of torch's. Left out are what
optimizers and DataLoaders issue, which have stages of their own.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Protocol, cast

from stoker.doctor._record import Operators
from stoker.doctor.sampling import _frames

OUTSIDE = "outside modules"  # the loop itself: most often the loss
GRADIENTS = "gradients of parameters"  # added up at the end of the backward pass

_MODULE = "stoker module "  # begins the names of our own ranges
_LEFT_OUT = ("Optimizer.", "enumerate(DataLoader)")  # ranges that torch itself records
_BACKWARD = "autograd::engine::evaluate_function"
_SYNCS = {
    "item": ".item()",
    "cpu": ".cpu()",
    "numpy": ".numpy()",
    "tolist": ".tolist()",
    "__float__": "float()",
    "__int__": "int()",
    "__bool__": "bool()",
    "__index__": "index()",
}


class Mark(Protocol):
    """The beginning or end of a range, as torch's profiler records it."""

    def kind(self) -> str: ...
    def name(self) -> str: ...
    def sequence_nr(self) -> int: ...


@dataclass
class OperatorCount:
    """What was seen; complete when `count_operators` is left."""

    by_module: Counter[str] = field(default_factory=Counter)
    host_syncs: Counter[str] = field(default_factory=Counter)
    is_counted: bool = False

    def result(self, num_steps: int, seconds: float) -> Operators | None:
        """The figures of one step; None where the operators could not be counted.

        Args:
            num_steps: how many steps were counted.
            seconds: time inside forward and backward of as many steps *without* counting, which slows
                them down.
        """
        number = sum(self.by_module.values())
        if not self.is_counted or num_steps < 1:
            return None
        return Operators(
            per_step=number / num_steps,
            seconds_per_operator=seconds / number if number else 0.0,
            by_module={name: count / num_steps for name, count in self.by_module.most_common()},
            host_syncs={name: count / num_steps for name, count in self.host_syncs.most_common()},
        )


@contextmanager
def count_operators() -> Iterator[OperatorCount]:
    """Count the operators of the steps inside; leave it in the thread in which it was entered.

    Where another profiler is at work, nothing is counted.
    """
    count = OperatorCount()
    if sys.getprofile() is not None or not _start_recording():
        yield count
        return
    modules = _ModuleRanges()
    threads: list[list[Mark]] = []
    try:
        with _noting_syncs(count.host_syncs):
            sys.setprofile(modules)
            try:
                yield count
            finally:
                if sys.getprofile() is modules:
                    sys.setprofile(None)
    finally:
        modules.close()
        threads = _stop_recording()
    count.by_module.update(count_marks(threads))
    count.is_counted = True


def count_marks(threads: Iterable[Iterable[Mark]]) -> Counter[str]:
    """Top-level operators by module, from the ranges that each thread has begun ("push") and ended.

    Forward and backward operators share sequence numbers: the backward ones are put down to the module
    that was under way when the number was last seen forward.
    """
    counts: Counter[str] = Counter()
    owners: dict[int, str] = {}  # module, by sequence number
    pending: Counter[int] = Counter()  # backward operators whose forward comes from another thread
    for marks in threads:
        _count_thread(marks, counts, owners, pending)
    for sequence, number in pending.items():
        counts[owners.get(sequence, OUTSIDE) if sequence >= 0 else GRADIENTS] += number
    return counts


def _count_thread(
    marks: Iterable[Mark], counts: Counter[str], owners: dict[int, str], pending: Counter[int]
) -> None:
    names: list[str] = []  # of the ranges that are open
    modules: list[str] = []
    sequences: list[int] = []  # of the open backward nodes
    num_left_out = num_operators = 0  # how many such ranges are open
    for mark in marks:
        kind = mark.kind()
        if kind == "push":
            name = mark.name()
            names.append(name)
            if name.startswith(_MODULE):
                modules.append(name.removeprefix(_MODULE))
            elif name.startswith(_LEFT_OUT):
                num_left_out += 1
            elif name.startswith(_BACKWARD):
                sequences.append(-1)  # told by the node inside
            elif _is_operator(name):
                if not num_operators and not num_left_out:
                    if sequences and not modules:
                        pending[sequences[-1]] += 1
                    else:
                        counts[modules[-1] if modules else OUTSIDE] += 1
                num_operators += 1
                if not sequences and mark.sequence_nr() >= 0:
                    # operators that need no gradient show the number that is to be given next
                    owners[mark.sequence_nr()] = modules[-1] if modules else OUTSIDE
            elif sequences and mark.sequence_nr() >= 0:
                sequences[-1] = mark.sequence_nr()
        elif kind == "pop" and names:  # else it was begun before us
            name = names.pop()
            if name.startswith(_MODULE):
                modules.pop()
            elif name.startswith(_LEFT_OUT):
                num_left_out -= 1
            elif name.startswith(_BACKWARD):
                sequences.pop()
            elif _is_operator(name):
                num_operators -= 1


def _is_operator(name: str) -> bool:
    """Such as "aten::add", or a custom operator's "mine::scan"; not a node of the backward graph."""
    return "::" in name and not name.startswith(("autograd::", "torch::", "profiler::"))


class _ModuleRanges:
    """Python's profiling hook: a range in torch's record for each forward pass of a module."""

    def __init__(self) -> None:
        import torch

        self._module = torch.nn.Module
        self._range: Any = torch.autograd.profiler.record_function
        self._open: list[tuple[FrameType, Any]] = []

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_name == "forward" and code.co_argcount:
                owner = frame.f_locals.get(code.co_varnames[0])
                # a layer of torch's is the tool of the module that calls it
                if isinstance(owner, self._module) and not (self._open and _is_torchs(owner)):
                    name = _MODULE + type(owner).__name__
                    self._open.append((frame, self._range(name).__enter__()))
        elif event == "return" and self._open and self._open[-1][0] is frame:
            self._open.pop()[1].__exit__(None, None, None)

    def close(self) -> None:
        while self._open:
            self._open.pop()[1].__exit__(None, None, None)


@contextmanager
def _noting_syncs(counts: Counter[str]) -> Iterator[None]:
    """Count the calls of tensor methods that wait for a value, by the user's line."""
    import torch

    tensor: Any = torch.Tensor
    before = {name: vars(tensor).get(name) for name in _SYNCS}
    for name, label in _SYNCS.items():
        setattr(tensor, name, _noting(getattr(tensor, name), label, counts))
    try:
        yield
    finally:
        for name, method in before.items():
            if method is None:
                delattr(tensor, name)  # it is inherited
            else:
                setattr(tensor, name, method)


def _noting(method: Callable[..., Any], label: str, counts: Counter[str]) -> Callable[..., Any]:
    main = threading.get_ident()

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == main:
            place = _caller(sys._getframe(1))  # noqa: SLF001
            if place is not None:
                counts[f"{label} {place}"] += 1
        return method(self, *args, **kwargs)

    return noting


def _caller(frame: FrameType | None) -> str | None:
    """Who wants the value: file and line; None where it is torch itself, for instance an optimizer."""
    while frame is not None:
        code = frame.f_code
        if not (_is_tensors_own(code) or _frames.owner_of(code.co_filename, user_root="") == "stoker"):
            break
        frame = frame.f_back
    if frame is None or frame.f_globals.get("__name__", "").split(".")[0] == "torch":
        return None
    return f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}"


def _is_torchs(value: object) -> bool:
    return type(value).__module__.split(".")[0] == "torch"


def _is_tensors_own(code: CodeType) -> bool:
    """Formatting and conversion, which stand between the user's line and the method."""
    return code.co_filename.endswith(("torch/_tensor.py", "torch/_tensor_str.py"))


def _start_recording() -> bool:
    from torch._C import _autograd, _profiler

    make_config: Any = _profiler.ProfilerConfig
    nothing_more = [False] * 5  # no shapes, memory, stacks, flops, TorchScript modules
    experimental = _profiler._ExperimentalConfig()  # noqa: SLF001
    config = make_config(_profiler.ProfilerState.CPU, *nothing_more, experimental)
    try:
        _autograd._enable_profiler_legacy(config)  # noqa: SLF001
    except RuntimeError:
        return False  # somebody is profiling
    return True


def _stop_recording() -> list[list[Mark]]:
    from torch._C import _autograd

    threads: Any = _autograd._disable_profiler_legacy()  # noqa: SLF001
    return cast(list[list[Mark]], threads)
