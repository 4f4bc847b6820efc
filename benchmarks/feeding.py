"""What an accelerator would see of a pipeline: for how long it waits, and what feeding it costs.

The accelerator is emulated: a step takes wall time, until a deadline, and no processor time. It waits from
its second step on; how long the first batch takes is another question.
"""

import contextlib
import functools
import itertools
import multiprocessing as mp
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from measuring import Report, interleave, peak_memory
from peers.serving import starved_share

Epoch = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Accelerator:
    """How long a step takes, and where that is from."""

    step_s: float
    source: str
    num_steps: int  # that it is watched for


def add_fed(
    report: Report, workload: str, pipelines: Mapping[str, Epoch], accelerator: Accelerator, repetitions: int
) -> None:
    """Add rows of the share of waiting, of cores that are busy meanwhile, and of memory.

    Memory comes first: workers that stay from one epoch to the next are their process' own.
    """
    grown = {
        name: [_memory_of(pipeline, accelerator.num_steps) / 1e6 for _ in range(min(3, repetitions))]
        for name, pipeline in pipelines.items()
    }
    cores: dict[str, list[float]] = {name: [] for name in pipelines}

    def fed(name: str) -> float:
        start, start_cpu = time.perf_counter(), _processor_s()
        share = starved_share(pipelines[name], accelerator.step_s, accelerator.num_steps)
        cores[name].append((_processor_s() - start_cpu) / (time.perf_counter() - start))
        return share

    # the first turn is left out: workers that it forks share our memory, which is copied when next written to
    waited = interleave({name: functools.partial(fed, name) for name in pipelines}, 1 + repetitions)
    title = f"an accelerator with steps of {1000 * accelerator.step_s:.0f} ms ({accelerator.source})"
    for name in pipelines:
        report.add(workload, f"{name}: share of time that {title} waits", waited[name][1:], "share")
        report.add(workload, f"{name}: cores busy meanwhile", cores[name][1:], "cores")
        title_of_memory = f"{name}: peak memory, with its workers, beyond the process before"
        report.add(workload, title_of_memory, grown[name], "MB")


def _memory_of(pipeline: Epoch, num_steps: int) -> int:
    """By how many bytes of anonymous memory a process grows that takes so many batches of a new epoch.

    It is a forked one, so that no pipeline leaves something to the next.
    """
    answer, asked = mp.Pipe(duplex=False)

    def take() -> None:
        torch.set_num_threads(1)  # those of the parent do not live here
        with peak_memory() as peak:
            for _ in itertools.islice(pipeline(), num_steps):
                pass
        asked.send(peak["num_bytes"] - peak["start_bytes"])

    process = mp.get_context("fork").Process(target=take)
    process.start()
    asked.close()  # so that one which fails ends our waiting
    grown: int = answer.recv()
    process.join()
    return grown


def _processor_s() -> float:
    """Of this process, of children that have ended, and of those that live."""
    ended = os.times()
    return ended.user + ended.system + ended.children_user + ended.children_system + _living_s(os.getpid())


def _living_s(pid: int) -> float:
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # threads and children may end meanwhile
            for child in (thread / "children").read_text().split():
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / ticks + _living_s(int(child))
    return total
