"""What a loader's process does: prepare its files, then run an epoch for every line it is sent.

It prints ``ready {"version": …}`` and then, for each line on standard input, one line of JSON.
A request is ``{"variant": "2 workers"}``, which answers samples/s of one epoch; with ``step_ms`` and
``num_steps`` it is an emulated accelerator, which answers the share of time it waited for data.
An empty line is an epoch of the first variant. ``{"workload": FOLDER}`` goes over to another one, with
``ready`` again. The process ends when its input does.
"""

import gc
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from peers.workloads import Workload

Epoch = Callable[[], Iterable[Any]]
"""Starts one shuffled epoch; gives its batches: tensors or arrays, alone, in a sequence or a dict."""


def serve(distribution: str, prepare: Callable[[Workload], Mapping[str, Epoch]]) -> None:
    """Answer requests for epochs of the variants that ``prepare`` gives.

    Args:
        distribution: whose version is reported.
        prepare: writes what the loader reads, if it is not there yet.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # some libraries print
    ready = "ready " + json.dumps({"version": importlib.metadata.version(distribution)})
    variants = prepare(Workload.open(Path(sys.argv[1])))
    print(ready, file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line.strip() or "{}")
        if "workload" in request:
            variants = {}
            gc.collect()  # loaders, with their workers and mappings
            variants = prepare(Workload.open(Path(request["workload"])))
            reply = ready
        else:
            reply = json.dumps(_answer(variants, request))
        print(reply, file=replies, flush=True)


def samples_per_s(epoch: Epoch) -> float:
    """Of one epoch, from its first request to its last batch."""
    num_samples = 0
    start = time.perf_counter()
    for batch in epoch():
        num_samples += touch(batch)
    return num_samples / (time.perf_counter() - start)


def starved_share(epoch: Epoch, step_s: float, num_steps: int) -> float:
    """The share of time that a device waits for data if a step takes it ``step_s``, from the second on.

    The device is emulated: a step takes wall time, until a deadline, and no processor time.
    """
    batches = iter(epoch())
    touch(next(batches))
    waited_s = 0.0
    start = time.perf_counter()
    for _ in range(num_steps):
        before = time.perf_counter()
        touch(next(batches))
        after = time.perf_counter()
        waited_s += after - before
        time.sleep(max(0.0, after + step_s - time.perf_counter()))
    return waited_s / (time.perf_counter() - start)


def touch(batch: Any) -> int:
    """Read one element of every tensor of the batch; gives its number of samples.

    Through NumPy: indexing a tensor would take longer than some loaders take for a batch.
    """
    if isinstance(batch, dict):
        batch = batch.values()
    elif not isinstance(batch, list | tuple):
        batch = (batch,)
    for values in batch:
        array = values.numpy() if hasattr(values, "numpy") else values
        array.item(0)
    return len(array)


def _answer(variants: Mapping[str, Epoch], request: Mapping[str, Any]) -> dict[str, float]:
    epoch = variants[request.get("variant", next(iter(variants)))]
    if "step_ms" in request:
        return {"starved": starved_share(epoch, request["step_ms"] / 1000, request["num_steps"])}
    return {"samples_per_s": samples_per_s(epoch)}
