"""Where Python stands, looked at a few hundred times a second by a timer (`_ticker.py`).

Each look is put down with the time since the last one, so that the times add up to what has passed: where
the main thread was inside C for long, the line it was called from gets it all. Rely on shares above a few
percent, not on the last digit.
"""

import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Literal

from stoker.doctor._record import Line, Place, Stage
from stoker.doctor.sampling import _frames
from stoker.doctor.sampling._frames import Code, Span
from stoker.doctor.sampling._ticker import Ticker

Process = Literal["loop", "workers", "trial"]

_MAX_STACKS = 20_000  # distinct ones; time at later ones is not put down
_MAX_FRAMES = 100
_TRAINING = {"forward", "backward", "optimizer"}

# file, line, function, callee, stretch of source where the callee is unknown, module
Site = tuple[str, int, str, str, Span, str]


class StackSampler:
    """Samples the stack of the main thread, in which it must be started and stopped.

    Args:
        interval_s: time between two looks. One costs some 25 microseconds, most of it the signal's.
        stage: what the loop is doing at this moment.
        user_root: folder whose files are the user's own; empty: everything that is not installed.
        process: which process the lines are said to be of.
        is_active: asked at each look; while it says no, time is not counted.
        below: look only at frames inside the one that runs this code, as in a worker that was forked in
            the midst of the training loop.
    """

    def __init__(
        self,
        *,
        interval_s: float = 0.005,
        stage: Callable[[], Stage | None],
        user_root: str,
        process: Process = "loop",
        is_active: Callable[[], bool] | None = None,
        below: CodeType | None = None,
    ) -> None:
        self._interval_s = interval_s
        self._stage = stage
        self._user_root = user_root
        self._process: Process = process
        self._is_active = is_active
        self._below = below
        self._is_paused = False
        self._last = 0.0
        self._ticker = Ticker(self._look, interval_s=interval_s)
        # by stage and by id of code and instruction of each frame, innermost first: seconds. The codes
        # are kept, so that the ids stay theirs; code objects themselves would hash slowly
        self._seconds: dict[tuple[Stage | None, tuple[int, ...]], float] = {}
        self._codes: dict[int, tuple[CodeType, str]] = {}  # with the name of the module

    def start(self) -> bool:
        """Begin; False where this process can't be sampled (not its main thread, SIGURG in use)."""
        self._last = time.perf_counter()
        return self._ticker.start()

    def pause(self) -> None:
        """Count nothing until `resume`: the doctor itself is at work in the sampled thread."""
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False

    def stop(self) -> list[Line]:
        """End; the lines by falling time. May be called again."""
        self.stop_looking()
        return self.lines()

    def stop_looking(self) -> None:
        """End, without reading any source."""
        self._ticker.stop()

    def lines(self) -> list[Line]:
        """What was seen so far, by falling time; reads source files.

        A line is in the loop's header where a frame stands at `for … in X:` and that loop's body was
        seen to train. If no training was seen at all, any loop's header counts.
        """
        looks = self._looks()
        loops = {
            loop for look in looks if look.stage in _TRAINING for loop in _loops(look.users, in_header=False)
        }
        merged: dict[tuple[Stage | None, Place, str, str, bool], float] = {}
        for look in looks:
            file, line, function, callee, span, module = look.site()
            in_header = any(not loops or loop in loops for loop in _loops(look.users, in_header=True))
            key = (
                look.stage,
                _frames.place_at(file, line, function),
                callee or _frames.called_in(file, span),
                module,
                in_header,
            )
            merged[key] = merged.get(key, 0.0) + look.seconds
        found = [
            Line(
                process=self._process,
                stage=stage,
                place=place,
                callee=callee,
                module=module,
                in_loop_header=in_header,
                num_samples=max(1, round(seconds / self._interval_s)),
                seconds=seconds,
            )
            for (stage, place, callee, module, in_header), seconds in merged.items()
        ]
        return sorted(found, key=lambda line: -line.seconds)

    def sites(self) -> dict[Site, float]:
        """Seconds so far by the innermost line alone; reads no source, for use in workers."""
        found: dict[Site, float] = {}
        for look in self._looks():
            site = look.site()
            found[site] = found.get(site, 0.0) + look.seconds
        return found

    def _look(self, _signal: int, frame: FrameType | None) -> None:
        """Put down where the main thread stands. Runs in it, between two bytecodes."""
        now = time.perf_counter()
        gap = now - self._last
        if gap < self._interval_s / 2:
            return  # the signal was late: the next look counts this time too
        self._last = now
        if self._is_paused or (self._is_active is not None and not self._is_active()):
            return
        stack: list[int] = []
        put, codes, below = stack.append, self._codes, self._below
        while frame is not None and len(stack) < 2 * _MAX_FRAMES:
            code = frame.f_code
            if code is below:
                break
            number = id(code)
            if number not in codes:
                codes[number] = (code, str(frame.f_globals.get("__name__", "")))
            put(number)
            put(frame.f_lasti)
            frame = frame.f_back
        key = (self._stage(), tuple(stack))
        seconds = self._seconds.get(key)
        if seconds is not None:
            self._seconds[key] = seconds + gap
        elif len(self._seconds) < _MAX_STACKS:
            self._seconds[key] = gap

    def _looks(self) -> list["_Look"]:
        """What was put down, for the stacks on which there is some of the user's code."""
        seen = {
            number: Code(code, _frames.owner_of(code.co_filename, user_root=self._user_root), module)
            for number, (code, module) in self._codes.copy().items()
        }
        looks = []
        for (stage, stack), seconds in self._seconds.copy().items():
            frames = [(seen[number], at) for number, at in zip(stack[::2], stack[1::2], strict=True)]
            look = _Look(stage, _at_operator(frames), seconds)
            if look.users:
                looks.append(look)
        return looks


def _at_operator(frames: list[tuple[Code, int]]) -> list[tuple[Code, int]]:
    """The stack while the operator ran whose time was seen only when a function began after it."""
    if len(frames) < 2 or not _frames.has_just_begun(frames[0][0].code, frames[0][1]):
        return frames
    caller, call = frames[1]
    operator = _frames.operator_before(caller.code, call)
    return frames if operator is None else [(caller, operator), *frames[2:]]


class _Look:
    """One stack, and the time that was spent on it."""

    def __init__(self, stage: Stage | None, frames: list[tuple[Code, int]], seconds: float) -> None:
        owners = [code.owner for code, _ in frames]
        innermost = owners.index("user") if "user" in owners else len(frames)
        self.stage = stage
        self.seconds = seconds
        self.users = [frame for frame in frames[innermost:] if frame[0].owner == "user"]
        self._under = tuple(code for code, _ in frames[:innermost][::-1] if code.owner == "library")
        # the nearest forward pass that the user's line is in; or, if none, the innermost under it
        forwards = [code for code, _ in [*frames[innermost:], *frames[:innermost]] if code.is_forward]
        self._module = forwards[0].class_name if forwards else ""

    def site(self) -> Site:
        code, at = self.users[0]
        span = _frames.span_of(code.code, at)
        unknown: Span = (None, None, None, None)
        return (
            code.code.co_filename,
            span[0] or code.code.co_firstlineno,
            code.name,
            _frames.callee_of(self._under),
            unknown if self._under else span,
            self._module,
        )


def _loops(frames: list[tuple[Code, int]], *, in_header: bool) -> list[tuple[str, int]]:
    """The `for` statements in whose header, or else body, these frames stand; by file and line."""
    return [
        (code.code.co_filename, header.start)
        for code, at in frames
        for header, body in _frames.for_statements(code.code.co_filename)
        if _frames.span_of(code.code, at)[0] in (header if in_header else body)
    ]
