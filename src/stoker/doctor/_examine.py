"""Measure a script: the way in."""

import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from stoker.doctor._record import Event, Place, Record
from stoker.doctor._words import error_line
from stoker.doctor.mending._overrides import Overrides
from stoker.doctor.probes._assemble import fill
from stoker.doctor.probes._made_at import place_at
from stoker.doctor.probes._script import Ending, root_of, run_script
from stoker.doctor.probes._session import Session
from stoker.doctor.sampling._cores import machine
from stoker.doctor.sampling._frames import owner_of
from stoker.errors import UsageError

_WORKER_DEATH = re.compile(r"DataLoader worker \(pid.*|Caught \w+ in DataLoader worker process \d+")


def examine(
    target: list[str],
    *,
    module: bool = False,
    steps: int = 60,
    warmup: int = 10,
    full: bool = False,
    settings: Overrides | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Record:
    """Run an unmodified script in this process and measure its training.

    The script is stopped when enough is known: after `warmup` steps, `steps` measured ones (fewer if
    they are very slow), a few whose operators are counted, some with batches that are given again, and a
    trial of single samples. Its own output goes where it always goes. Its modules, arguments and working
    directory are gone afterwards; what it did to torch (threads, seeds, default types) stays.

    Args:
        target: the script's path, or the module's name, and then its arguments.
        module: it is a module, as of `python -m`.
        steps: to measure. At least as many are as batches may lie ready in the loader's buffers.
        warmup: steps before; at least four.
        full: let the script run to its end and only watch: nothing is replayed, profiled or stopped,
            random numbers are as without us, and the exit code is the script's.
        settings: DataLoader settings and thread counts to run it with instead of its own.
        clock: nanoseconds; for tests.

    Raises:
        UsageError: there is no such script; a run is being watched in this process already; a count that
            cannot be.
        KeyboardInterrupt: of the user's; everything is as it was before.
    """
    if steps < 1 or warmup < 0:
        raise UsageError(f"steps must be at least 1 and warmup at least 0, got {steps} and {warmup}")
    command = [*(["-m"] if module else []), *target]
    record = Record(command=command, machine=machine("cpu"), started_in=str(Path.cwd()))
    session = Session(
        steps=None if full else steps,
        warmup=warmup,
        is_passive=full,
        settings=settings or Overrides(),
        user_root=root_of(target, module=module) if target else "",
        clock=clock,
    )

    def after() -> None:
        if session.loop.training is not None and not session.trials:
            session.try_samples()

    with session:
        try:
            ending = run_script(target, module=module, after=after)
        finally:
            session.loop.end_workers()
    fill(record, session)
    _note_ending(record, ending, root=session.user_root)
    ending.exception = None  # its frames hold the script's loaders
    gc.collect()  # functions and their module hold each other: workers would live on
    return record


def _note_ending(record: Record, ending: Ending, *, root: str) -> None:
    record.ended, record.exit_code, record.error = ending.how, ending.exit_code, ending.error
    if ending.how != "crashed" or ending.exception is None:
        return
    died = _WORKER_DEATH.search(ending.error or "")
    place = _place_of_crash(ending.exception.__traceback__, root=root)
    text = f"The script crashed: {error_line(ending.error or '')}"
    if died:
        record.events.append(Event(record.seconds, "worker died", died.group(0), place))
    record.events.append(Event(record.seconds, "crash", text, place))


def _place_of_crash(trace: TracebackType | None, *, root: str) -> Place | None:
    """The innermost line of the user's own code."""
    place = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if owner_of(code.co_filename, user_root=root) == "user":
            place = place_at(code.co_filename, trace.tb_lineno, code.co_qualname)
        trace = trace.tb_next
    return place
