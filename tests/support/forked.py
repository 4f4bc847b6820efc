"""Work in real processes that are forked from this one, which has imported torch and Stoker already."""

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import NoReturn

from stoker.store._worker_process import die_with

Done = subprocess.CompletedProcess[str]


class Forked:
    """A child that does the work and ends; its exit code is 1 for an exception, negative for a signal."""

    def __init__(self, work: Callable[[], object], **environment: object) -> None:
        self._output = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115 - closed by `wait`
        self._alive, held = os.pipe()  # which ends when nobody holds its other end
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            die_with(parent)
            os.environ |= {name: str(value) for name, value in environment.items()}
            for descriptor, file in enumerate(self._output, start=1):
                os.dup2(file.fileno(), descriptor)
            _work_and_exit(work)
        os.close(held)

    def wait(self) -> Done:
        """How it ended and what it wrote, when its own children are gone too. To be called once."""
        _, status = os.waitpid(self.pid, 0)
        with os.fdopen(self._alive) as end:
            end.read()
        texts = []
        for file in self._output:
            with file:
                file.seek(0)
                texts.append(file.read())
        return Done([], os.waitstatus_to_exitcode(status), *texts)


def forked(work: Callable[[], object]) -> Done:
    """Do it in a child and wait for it."""
    return Forked(work).wait()


def _work_and_exit(work: Callable[[], object]) -> NoReturn:
    code = 1
    try:
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - this process ends here, and its parent is told
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # nothing of the test run's own that waits for the interpreter's end
