"""What the probes cost, by running them on nothing."""

from collections import Counter
from statistics import median
from threading import get_ident
from typing import Any

from torch import Tensor, zeros

from stoker.doctor.probes._compute import CallProbe, ComputeProbe
from stoker.doctor.probes._tape import Clock, Swaps, Tape

_ROUNDS, _REPEATS = 5, 400


def overhead_s(tape: Tape, *, clock: Clock, sampler_s: float) -> float:
    """Seconds that the probes took on a tape: so many calls of each, times what one takes.

    `next` carries its own measurement; the median of it, for a preempted process has long ones.
    """
    counts = Counter(span[0] for span in tape.spans)
    num_spans = sum(count for kind, count in counts.items() if kind not in {"next", "stop", "aside"})
    next_ns = median(tape.own) * len(tape.own) if tape.own else 0.0
    call_ns = _cost_of_call(clock) * num_spans
    method_ns = _cost_of_method(clock) * tape.num_method_calls
    return (next_ns + call_ns + method_ns) / 1e9 + sampler_s


def _cost_of_call(clock: Clock) -> float:
    class Nothing:
        def __call__(self) -> None:
            pass

    plain, watched = Nothing(), Nothing()
    plain_ns = _time(plain, clock)
    with Swaps() as swaps:
        CallProbe(Tape(clock), swaps).watch(watched, "forward")
        return max(0.0, _time(watched, clock) - plain_ns)


def _cost_of_method(clock: Clock) -> float:
    tape = Tape(clock)
    tape.pointers = {1}
    tape.thread = get_ident()
    tensor = zeros(1)
    method = ComputeProbe(tape, director=_Nobody()).copying("to", Tensor.to)
    plain_ns = _time(lambda: Tensor.to(tensor, "cpu"), clock)
    return max(0.0, _time(lambda: method(tensor, "cpu"), clock) - plain_ns)


def _time(function: Any, clock: Clock) -> float:
    """Nanoseconds a call, of the best of a few rounds."""
    best = None
    for _ in range(_ROUNDS):
        begin = clock()
        for _ in range(_REPEATS):
            function()
        spent = (clock() - begin) / _REPEATS
        best = spent if best is None else min(best, spent)
    return best or 0.0


class _Nobody:
    is_stopping = False

    def saw_backward(self) -> None: ...
    def ended_backward(self, end: int, cpu: int) -> None: ...
    def ended_step(self, end: int, cpu: int) -> None: ...

    def saw_optimizer(self, _: Any) -> bool:
        return False

    def stop(self) -> None: ...
