"""One measured run of a script in a process of its own: ``python -m stoker.cli._measured REQUEST``.

Runs that are compared must not share a process: imports, allocators, threads and caches of the first
would favour the second.
"""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

from stoker.errors import WorkerDiedError

if TYPE_CHECKING:
    from stoker.doctor._record import Record
    from stoker.doctor.mending._overrides import Overrides
    from stoker.doctor.mending._patch import Edit


@dataclass(frozen=True)
class Request:
    """What to run and what to change about it."""

    target: list[str]  # script or module, and its arguments
    is_module: bool
    steps: int
    warmup: int
    edits: tuple["Edit", ...] = ()
    full: bool = False  # only watch, and let it finish


def measure(request: Request, *, printed: IO[str] | None = None) -> "Record":
    """Run a script in a fresh process; its record. What it prints goes to `printed`, or standard error."""
    with TemporaryDirectory(prefix="stoker-") as folder:
        asked, answered = Path(folder, "request.json"), Path(folder, "record.pickle")
        asked.write_text(json.dumps({**asdict(request), "parent": os.getpid()}))
        command = [sys.executable, "-m", "stoker.cli._measured", str(asked), str(answered)]
        done = subprocess.run(command, check=False, stdout=printed or sys.stderr)  # noqa: S603 - our own interpreter
        if not answered.exists():
            raise WorkerDiedError(
                f"the process that ran {request.target[0]} ended with exit code {done.returncode} and left "
                "no record; what it printed says why"
            )
        record: Record = pickle.loads(answered.read_bytes())  # noqa: S301 - ours, from a private folder
    return record


def _overrides(edits: list[dict[str, Any]]) -> "Overrides":
    import stoker
    from stoker.doctor.mending._overrides import LoaderOverride, Overrides

    threads = [edit["torch_threads"] for edit in edits if edit["torch_threads"]]
    return Overrides(
        loaders=tuple(
            LoaderOverride(
                edit["file"],
                edit["line"],
                edit["keywords"],
                wrap_dataset=stoker.cache if edit["is_cached"] else None,
            )
            for edit in edits
        ),
        torch_threads=threads[-1] if threads else None,
    )


def main(asked: str, answered: str) -> None:
    """Run as the request says and leave the record."""
    from stoker.store._worker_process import die_with

    request = json.loads(Path(asked).read_text())
    die_with(request["parent"])
    from stoker.doctor import examine

    record = examine(
        request["target"],
        module=request["is_module"],
        steps=request["steps"],
        warmup=request["warmup"],
        full=request["full"],
        settings=_overrides(request["edits"]) if request["edits"] else None,
    )
    Path(answered).write_bytes(pickle.dumps(record))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:  # our parent has it too, and tells of it
        sys.exit(130)
