"""Watch a training loop of one's own, in one's own process."""

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker.doctor._record import Record
from stoker.doctor.mending._overrides import Overrides
from stoker.doctor.probes._assemble import fill
from stoker.doctor.probes._made_at import user_frame
from stoker.doctor.probes._script import project_of
from stoker.doctor.probes._session import Session
from stoker.doctor.sampling._cores import machine
from stoker.errors import UsageError


@contextmanager
def watch(
    steps: int | None = None, *, warmup: int = 4, clock: Callable[[], int] = time.perf_counter_ns
) -> Iterator[Record]:
    """Watch whatever trains inside, and fill the record at the end. Changes nothing.

        with stoker.doctor.watch() as record:
            train()

    Works around any loop over DataLoaders, also one that Accelerate or Lightning runs. DataLoaders and
    models may be made inside or before; of workers that already run, nothing is seen.

    Args:
        steps: to measure; None for all inside. The loop runs on in either case.
        warmup: steps before that are not measured; at least four.
        clock: nanoseconds; for tests.

    Raises:
        UsageError: a run is being watched in this process already, or a count that cannot be.
    """
    if steps is not None and steps < 1:
        raise UsageError(f"steps must be at least 1, got {steps}: leave it out to measure all of them")
    frame = user_frame(sys._getframe(2), user_root="")  # noqa: SLF001 - past contextlib
    root = str(project_of(Path(frame.f_code.co_filename).resolve().parent)) if frame else ""
    record = Record(command=list(sys.argv), machine=machine("cpu"), started_in=str(Path.cwd()))
    session = Session(
        steps=steps, warmup=warmup, is_passive=True, settings=Overrides(), user_root=root, clock=clock
    )
    session.__enter__()
    try:
        yield record
    except BaseException as error:
        record.ended, record.exit_code = "crashed", 1
        record.error = "".join(traceback.format_exception(error))
        raise
    finally:
        session.__exit__(None, None, None)
        fill(record, session)
