"""One measured run: puts the probes in, leads the run through its phases, takes the probes out."""

import contextlib
import gc
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from torch.optim import Optimizer

from stoker.doctor.making._trial import try_samples
from stoker.doctor.making._workers import Board, MadeBatch
from stoker.doctor.mending._overrides import Overrides
from stoker.doctor.probes import _phases, _roots, _tape
from stoker.doctor.probes._compute import CallProbe, ComputeProbe
from stoker.doctor.probes._loop import LoopProbe
from stoker.doctor.probes._replay import DeviceResults
from stoker.doctor.probes._roots import RootFinder
from stoker.doctor.probes._tape import MAX_SPANS, Clock, Swaps, Tape
from stoker.doctor.probes._uncompiled import never_compile
from stoker.doctor.sampling import _frames, _operators, _sampler, _ticker
from stoker.doctor.sampling._idle import busy_ns
from stoker.doctor.sampling._resources import ResourceWatch
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.doctor._record import Event, Line, Moment, Trial

_UNFED_STEPS = 20  # optimizer steps without a batch, after which the optimizer is what marks a step
_UNOPTIMIZED_STEPS = 32  # backward passes without an optimizer, after which parameters are updated by hand
_ACCUMULATED_STEPS = 512  # the same, if an optimizer was made: it may wait for many passes
_IDLE_SHARE = 0.05  # of a core a worker
_IDLE_WINDOW_NS = 30_000_000
_TRIAL_S = 5.0
_WATCH_EVERY_S = 0.2
_READ_EVERY = 1000  # steps: a worker's ring holds 2048 batches

_running: "Session | None" = None


class Stopped(SystemExit):
    """Ends the script when enough is known. Passes `except Exception`; `finally` blocks run."""


class Session:
    """Probes for as long as it is entered. One at a time in a process.

    Args:
        steps: to measure, after `warmup`; None for all there are, if it only watches.
        is_passive: only watch, do not replay, profile or stop anything.
        clock: of the main process, ns; that of other processes is `time.perf_counter_ns`.
    """

    def __init__(
        self,
        *,
        steps: int | None,
        warmup: int,
        is_passive: bool,
        settings: Overrides,
        user_root: str,
        clock: Clock,
    ) -> None:
        self.tape = Tape(clock)
        self.user_root = user_root
        self.origin = clock()
        self.phases: list[tuple[int, str]] = [(self.origin, "warmup")]
        self.num_steps = 0
        self.forward_since: int | None = None
        self.timed_classes: list[str] = []
        self.device: Any = None
        self.lines: list[Line] = []
        self.moments: list[Moment] = []
        self.events: list[Event] = []
        self.trials: list[Trial] = []
        self.not_observed: dict[str, str] = {}
        self.num_profiled = 0
        self.counter: Any = None
        self.sampler: Any = None
        self.is_complete = False  # all phases are through
        self.holds_loaders = not is_passive
        self.is_keeping = not is_passive
        self.is_replaying = False
        self.is_stopping = False
        self.goal = _phases.warmup(warmup)
        self._steps = _phases.ENDLESS if steps is None else steps
        self._is_passive = is_passive
        self._settings = settings
        self._phase_steps = 0
        self._phase_begin: int | None = None
        self._last_boundary, self._last_step_s = self.origin, 0.0
        self._marker: int | None = None
        self._num_batches_before = self._num_unfed = self._num_unoptimized = 0
        self._most_unoptimized = _UNOPTIMIZED_STEPS
        self._busy_before: tuple[int, int] | None = None
        self._pointers: set[int] = set()
        self._swaps = Swaps()
        self._counting: contextlib.ExitStack | None = None
        self._finder = RootFinder(self.tape)
        self._calls = CallProbe(self.tape, self._swaps)
        self._folder = Path(tempfile.gettempdir())
        self._moments: Any = None
        self.made: list[MadeBatch] = []

    def __enter__(self) -> Self:
        global _running  # noqa: PLW0603 - torch's classes are the process's: so is the one who patches them
        if _running is not None:
            raise UsageError("a run is being watched already: end it before another is begun in this process")
        _running = self
        swaps = self._swaps
        try:
            swaps.callback(_no_longer_running)
            never_compile(_frames, _operators, _roots, _sampler, _tape, _ticker, sys.modules[__name__])
            self._folder = Path(tempfile.mkdtemp(prefix="stoker-doctor-"))
            swaps.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self.board = Board.create(self._folder, user_root=self.user_root)
            swaps.callback(self.board.close)
            swaps.enter(self.board.installed())
            self.loop = LoopProbe(
                self.tape,
                director=self,
                board=self.board,
                settings=self._settings,
                user_root=self.user_root,
            )
            self.compute = ComputeProbe(self.tape, director=self)
            self.loop.install(swaps)
            self.compute.install(swaps)
            swaps.enter(self._settings.threads())
            swaps.callback(self._calls.release)
            swaps.callback(self._end_watches)
            self._watch_resources()
        except BaseException:
            swaps.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._swaps.close()

    # -- what the probes tell ---------------------------------------------------------------------------

    def saw_backward(self) -> None:
        """A backward pass begins."""
        if self.loop.fresh:
            self.loop.saw_backward()
        if not self.tape.has_optimized:
            self._num_unoptimized += 1
            if self._num_unoptimized == _UNOPTIMIZED_STEPS and _has_optimizer():
                self._most_unoptimized = _ACCUMULATED_STEPS
            if self._is_by_hand():
                self.tape.stepped = True

    def ended_backward(self, end: int, cpu: int) -> None:
        """A backward pass is over: it marks a step where there is neither a loader nor an optimizer."""
        if self._is_by_hand() and not self.loop.is_fed():
            self.tape.rest = self.tape.stage = "other"
            self.boundary(end, cpu)

    def _is_by_hand(self) -> bool:
        return not self.tape.has_optimized and self._num_unoptimized > self._most_unoptimized

    def saw_optimizer(self, optimizer: Any) -> bool:
        """An optimizer has stepped; whether a step ends with it, as no loader tells where one begins."""
        if self._marker is None:
            self._marker = id(optimizer)
            self.device = _device_of(optimizer)
        if self._marker != id(optimizer):
            return False
        if self._num_batches_before != self.loop.num_batches:
            self._num_batches_before, self._num_unfed = self.loop.num_batches, 0
        else:
            self._num_unfed += 1
        return self._num_unfed > _UNFED_STEPS or not self.loop.is_fed()

    def ended_step(self, end: int, cpu: int) -> None:
        """The end of a step, at this time and processor time."""
        self.tape.rest = self.tape.stage = "other"
        self.boundary(end, cpu)

    def boundary(self, now: int, cpu: int) -> tuple[int, int]:
        """A step is over, at this time and processor time. Gives those at which the next one begins.

        Raises:
            Stopped: it was the last that was needed.
        """
        tape = self.tape
        tape.stepped = False
        self.num_steps += 1
        self._phase_steps += 1
        if self._phase_begin is None:
            self._phase_begin = now
        self._last_step_s, self._last_boundary = (now - self._last_boundary) / 1e9, now
        is_early = self.num_steps <= _phases.FIRST_STEPS
        is_over = self._phase_steps >= self.goal.min_steps and (
            self.goal.is_reached(self._phase_steps, (now - self._phase_begin) / 1e9) or self._is_idle(now)
        )
        is_full = self.num_steps % _READ_EVERY == 0 or len(tape.spans) > MAX_SPANS
        if not (is_early or is_over or is_full):
            return now, cpu
        if is_early:
            self._find_out()
        if is_full:
            self.board.empty_regions()
        if is_over:
            self._advance()
        if len(tape.spans) > MAX_SPANS:
            tape.is_open = False
            self.not_observed["later steps"] = f"only the first {self.num_steps} are kept"
        after, cpu_after = tape.now(), time.process_time_ns()
        tape.spans.append(("aside", now, after, -1, -1, -1, False, False, True, None, cpu, 0, cpu_after))
        if self.is_stopping:
            self.stop()
        if self._phase_steps == 0:
            self.phases.append((after, self.goal.phase))
            self._phase_begin = after
        return after, cpu_after

    def stop(self) -> None:
        """Raise what ends the script, as often as it goes on."""
        raise Stopped(0)

    # -- the phases -------------------------------------------------------------------------------------

    def _find_out(self) -> None:
        """In the first steps: what the step calls, and which device it computes on."""
        if self.num_steps == 1:
            self.compute.install_copies(self._swaps)
            self.loop.install_others(self._swaps)
        self._finder.end()
        if self.num_steps in _phases.WATCHED_STEPS:
            self._finder.begin()
        elif self.num_steps == _phases.WATCHED_STEPS[-1] + 1:
            if self._finder.num_steps == 0:
                self.not_observed["forward"] = "another profiler holds Python's profiling hook"
                return
            self.timed_classes, left = self._finder.put_in(self._calls)
            self.forward_since = self.tape.clock()
            if left:
                self.not_observed["forward"] = f"{', '.join(left)} is called too often in a step to be timed"
            elif not self.timed_classes:
                self.not_observed["forward"] = "no module is called in a step"
            if self.device is not None and self.device.type == "cuda":
                from stoker.doctor.probes._cuda import DeviceClock

                self.tape.now = DeviceClock(self.tape.clock)

    def _advance(self) -> None:
        """The phase is over: begin the next one."""
        num_steps, self._phase_steps = self._phase_steps, 0
        match self.goal.phase, self.is_replaying, self.compute.results is not None:
            case "warmup", _, _:
                self.is_keeping = False
                self._begin_normal()
            case "normal", _, _ if self._is_passive:
                self._end_sampling()
                self.tape.is_open = False
            case "normal", _, _:
                self._end_sampling()
                self._begin_counting()
                self.goal = _phases.profile()
            case "profile", _, _:
                self.num_profiled = num_steps
                self._end_counting()
                self._begin_host_replay()
            case "settle", True, False:
                self.goal = _phases.replay("host", self._steps)
            case "host", _, _:
                self._begin_device_replay()
            case "settle", True, True:
                self.goal = _phases.replay("device", self._steps)
            case _:
                self._conclude()

    def _begin_normal(self) -> None:
        trained = [seen.settings for seen in self.loop.loaders.all if seen.trains]
        num_buffered = max(
            (each["num_workers"] * (each["prefetch_factor"] or 0) for each in trained), default=0
        )
        tape = self.tape
        self.sampler = _sampler.StackSampler(
            interval_s=_phases.look_every(self._last_step_s, is_passive=self._is_passive),
            stage=lambda: tape.stage,
            user_root=self.user_root,
        )
        self.sampler.start()
        if self._is_passive:
            self.goal = _phases.watch(self._steps)
        else:
            self.goal = _phases.normal(self._steps, num_buffered=num_buffered)

    def _watch_resources(self) -> None:
        with self._noting("resources"):
            self._moments = ResourceWatch(interval_s=_WATCH_EVERY_S, begin_ns=self.origin)
            self._moments.start()

    def _begin_counting(self) -> None:
        with self._noting("operators"):
            self._counting = contextlib.ExitStack()
            self.counter = self._counting.enter_context(_operators.count_operators())

    def _end_counting(self) -> None:
        if self._counting is not None:
            with self._noting("operators"):
                self._counting.close()
            self._counting = None

    def _begin_host_replay(self) -> None:
        self._pointers = self.loop.begin_replay()
        if self.loop.can_replay():
            self.is_replaying = True
            self.goal = _phases.settle()
            self._busy_before = None
            return
        in_place = any(kept.in_place for kept in self.loop.kept.values())
        self.not_observed["host replay"] = (
            "the loop changes its batches in place"
            if in_place
            else "no batch of a DataLoader could be kept to be given again"
        )
        self._conclude()

    def _begin_device_replay(self) -> None:
        if not any(span[0] == "copy" for span in self.tape.spans):
            self.not_observed["device replay"] = "no batch is copied, so it would be the same"
            self._conclude()
            return
        self.compute.results = DeviceResults(self._pointers)
        self.goal = _phases.refill(max(len(kept) for kept in self.loop.kept.values()))

    def _conclude(self) -> None:
        """All is measured that needs the loop: try samples, then stop."""
        self.compute.results = None
        self.is_complete = True
        self.try_samples()
        self.is_stopping = True

    def try_samples(self) -> None:
        """Make samples of the training set again, here and now."""
        loader = self.loop.training
        if loader is None:
            self.not_observed.setdefault("trial", "no DataLoader was trained on")
            return
        with self._noting("trial"):
            number = str(self.loop.loaders.get(loader).number)  # its name is known only at the end
            clock = self.tape.clock
            trial, lines = try_samples(
                loader,
                name=number,
                budget_s=_TRIAL_S,
                clock=lambda: clock() / 1e9,
                user_root=self.user_root,
            )
            self.trials.append(trial)
            self.lines += lines

    def _is_idle(self, now: int) -> bool:
        """True when settling is over: the workers have come to rest."""
        if self.goal.phase != "settle" or self.compute.results is not None:
            return False
        pids = self.loop.worker_pids()
        if not pids:
            return True
        before, self._busy_before = self._busy_before, self._busy_before or (now, busy_ns(pids))
        if before is None or now - before[0] < _IDLE_WINDOW_NS:
            return False
        self._busy_before = (now, busy_ns(pids))
        share = (self._busy_before[1] - before[1]) / (now - before[0])
        return share < _IDLE_SHARE * len(pids)

    # -- the end ----------------------------------------------------------------------------------------

    def _end_sampling(self) -> None:
        if self.sampler is not None:
            self.lines += self.sampler.stop()
            self.sampler = None

    def _end_watches(self) -> None:
        self._finder.end()
        self._end_sampling()
        self._end_counting()
        if self._moments is not None:
            self.moments = self._moments.stop()
        self.tape.is_open = False
        self.made = self.board.read()
        self.lines += self.board.read_lines()

    @contextlib.contextmanager
    def _noting(self, subject: str) -> Iterator[None]:
        """Our own extras must not end the user's run: what goes wrong in them is noted."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - also the user's data set, made to run again
            self.not_observed[subject] = f"{type(error).__name__}: {error}"


def _no_longer_running() -> None:
    global _running  # noqa: PLW0603
    _running = None


def _has_optimizer() -> bool:
    """True where the script holds an optimizer of torch's, though it may not have stepped yet."""
    return any(issubclass(type(each), Optimizer) for each in gc.get_objects())


def _device_of(optimizer: Any) -> Any:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return parameter.device
    return None
