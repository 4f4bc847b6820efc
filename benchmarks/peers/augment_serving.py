"""What an augmenter's process does: make batches of the task it is asked for, and say how long one took.

It prints ``ready {"version": …}`` and then, for each line on standard input, one line of JSON.
``{"variant": TASK, "seconds": 0.1}`` answers the mean ms of a batch over at least that time; with
``"count": "operators"`` or ``"syncs"`` instead it answers how many torch operators one batch dispatches,
or how many of them make the host wait for a device. A task that the augmenter does not offer answers
NaN. ``{"workload": FOLDER}`` goes over to other data, with ``ready`` again.
"""

import gc
import importlib.metadata
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from peers.augment_tasks import POLICY, TASKS, Arrays, read

Task = Callable[[], Any]
"""Makes one batch, or several and gives their number as an int."""

Prepare = Callable[[Arrays], Mapping[str, Task]]

# operators whose result the host needs, or whose shape depends on values
_WAITING = {
    "aten::_local_scalar_dense",
    "aten::equal",
    "aten::is_nonzero",
    "aten::masked_select",
    "aten::nonzero",
    "aten::unique_consecutive",
    "aten::_unique2",
}


def serve(distribution: str, prepare: Prepare) -> None:
    """Answer requests for the tasks that ``prepare`` gives.

    Args:
        distribution: whose version is reported.
        prepare: makes the tasks for these arrays.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # some libraries print
    ready = "ready " + json.dumps({"version": importlib.metadata.version(distribution)})
    tasks = _prepared(prepare, Path(sys.argv[1]))
    print(ready, file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "workload" in request:
            tasks = {}
            gc.collect()
            tasks = _prepared(prepare, Path(request["workload"]))
            reply = ready
        else:
            reply = json.dumps({"answer": _answer(tasks, request)})
        print(reply, file=replies, flush=True)


def num_threads() -> int:
    """How many threads torch may use, as the benchmark says; set them before the first operator."""
    return int(os.environ["OMP_NUM_THREADS"])


def ms_per_batch(task: Task, seconds: float) -> float:
    """The mean over batches that take at least so long together."""
    num_batches = 0
    start = time.perf_counter()
    while num_batches == 0 or time.perf_counter() - start < seconds:
        made = task()
        num_batches += made if isinstance(made, int) else 1
    return 1e3 * (time.perf_counter() - start) / num_batches


def _prepared(prepare: Prepare, folder: Path) -> Mapping[str, Task]:
    arrays = read(folder)
    tasks = prepare(arrays)
    known = {task for kind in arrays for task in TASKS.get(kind, ())}
    unknown = {task for task in tasks if not task.startswith(POLICY)} - known
    assert not unknown, f"no such tasks: {unknown}"
    return tasks


def _answer(tasks: Mapping[str, Task], request: Mapping[str, Any]) -> float:
    task = tasks.get(request["variant"])
    if task is None:
        return math.nan
    if "count" in request:
        task()  # tables that are made once
        return _count(task)[request["count"]]
    return ms_per_batch(task, request["seconds"])


def _count(task: Task) -> dict[str, int]:
    from torch.utils._python_dispatch import TorchDispatchMode

    counts = {"operators": 0, "syncs": 0}

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            del types
            counts["operators"] += 1
            counts["syncs"] += function.name().partition(".")[0] in _WAITING
            return function(*args, **(kwargs or {}))

    with Counting():  # type: ignore[no-untyped-call]
        task()
    return counts
