"""What does being watched cost a training loop? Stoker's doctor, torch.profiler and py-spy side by side.

    python benchmarks/doctor_overhead.py [--quick]

One loop runs in one process, in turns bare and under each of the watchers, so that a noisy minute hits
them all. Of a turn, its first steps left out, two figures are taken: the quickest tenth of its steps, in
which the machine was least disturbed by others, and the median step. A row "added" is the median over turns
of a watcher's figure minus the mean of the bare turns before and after it. A step of 50 ms sleeps for most
of it, as one that waits for an accelerator does. py-spy samples the process tree from outside at 100 Hz.
"""

import argparse
import contextlib
import gc
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import stoker.doctor
from measuring import Report, say

_UNTIMED = 12  # steps at the start of a turn: workers start, the doctor looks for the model


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few turns, to try the benchmark")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    report = Report("doctor_overhead", ("torch", "py-spy"))
    for model_name, model, num_steps in (("small model", small(), 200), ("model of 200 layers", large(), 50)):
        for num_workers in (0,) if quick else (0, 2, 4):
            loop = Loop(model, step_s=0.0, num_workers=num_workers, num_steps=num_steps)
            compare(report, f"{model_name}, {num_workers} workers", loop, 3 if quick else 11)
    for num_workers in (0,) if quick else (0, 4):
        loop = Loop(small(), step_s=0.05, num_workers=num_workers, num_steps=30)
        compare(report, f"steps of 50 ms, {num_workers} workers", loop, 2 if quick else 7)


def small() -> nn.Module:
    """Two layers: a step of well below a millisecond."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def large() -> nn.Module:
    """Many small modules: what a watcher that hooks every module pays for most."""
    layers = [layer for _ in range(100) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(64, 10))


class Turn(NamedTuple):
    """Seconds of a step: at the quickest tenth of an epoch's, and the median."""

    quick_s: float
    median_s: float


class Loop:
    """A plain training loop."""

    def __init__(self, model: nn.Module, *, step_s: float, num_workers: int, num_steps: int) -> None:
        self.step_s = step_s
        self._model, self._optimizer = model, torch.optim.SGD(model.parameters(), lr=1e-3)
        num_samples = 16 * (num_steps + _UNTIMED)
        data = TensorDataset(torch.randn(num_samples, 64), torch.randint(0, 10, (num_samples,)))
        self._loader = DataLoader(
            data, batch_size=16, shuffle=True, num_workers=num_workers, persistent_workers=num_workers > 0
        )

    def run(self) -> Turn:
        """An epoch, its first steps left out."""
        times: list[float] = []
        for x, y in self._loader:
            loss = nn.functional.cross_entropy(self._model(x), y)
            if self.step_s:  # a sleep of 0 gives the core away, for as long as others want it
                time.sleep(self.step_s)
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            times.append(time.perf_counter())
        steps = sorted(b - a for a, b in zip(times[_UNTIMED:], times[_UNTIMED + 1 :], strict=False))
        return Turn(steps[len(steps) // 10], statistics.median(steps))


@contextlib.contextmanager
def torch_profiler() -> Iterator[None]:
    """As its documentation shows it, recording every step; no stacks, no shapes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        yield


@contextlib.contextmanager
def py_spy(command: str) -> Iterator[None]:
    """Attached from outside while the loop runs."""
    folder = Path(tempfile.mkdtemp(prefix="stoker-py-spy-"))
    options = ["--pid", str(os.getpid()), "--rate", "100", "--subprocesses", "--nonblocking"]
    target = ["--output", str(folder / "profile.svg"), "--duration", "600"]
    process = subprocess.Popen(
        [command, "record", *options, *target], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield
    finally:
        process.terminate()
        process.communicate()
        shutil.rmtree(folder)


def watchers() -> dict[str, Callable[[], AbstractContextManager[object]]]:
    """Whoever is compared, and can run here."""
    found: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "stoker doctor": stoker.doctor.watch,
        "torch.profiler": torch_profiler,
    }
    spy = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if spy is not None:
        found["py-spy, 100 Hz"] = lambda: py_spy(spy)
    return found


def compare(report: Report, workload: str, loop: Loop, turns: int) -> None:
    """Take turns; add a row a watcher, and write what there is so far."""
    say(workload)
    others = watchers()
    if "py-spy, 100 Hz" not in others:
        report.add_missing(workload, "py-spy, 100 Hz")
    loop.run()
    bare: list[Turn] = []
    added: dict[str, list[Turn]] = {name: [] for name in others}
    for _ in range(turns):
        for name, watcher in others.items():
            before = loop.run()
            with watcher():
                watched = loop.run()
            after = loop.run()
            bare += [before, after]
            added[name].append(
                Turn(*(w - (a + b) / 2 for w, a, b in zip(watched, before, after, strict=True)))
            )
            gc.collect()
    report.add(workload, "bare, quick step", [1e3 * turn.quick_s for turn in bare], "ms")
    step_s = report.add(workload, "bare, median step", [1e3 * turn.median_s for turn in bare], "ms") / 1e3
    for name, turns_of_it in added.items():
        is_ours = name == "stoker doctor"
        budget = " (budget 50)" if is_ours else ""
        quick = [1e6 * turn.quick_s for turn in turns_of_it]
        report.add(workload, f"{name}, added to a quick step{budget}", quick, "µs")
        median = [1e6 * turn.median_s for turn in turns_of_it]
        report.add(workload, f"{name}, added to the median step{budget}", median, "µs")
        share = [100 * turn.median_s / step_s for turn in turns_of_it]
        budget = " (budget 1)" if is_ours and loop.step_s else ""
        report.add(workload, f"{name}, added to the median step{budget}", share, "%")
    report.write()


if __name__ == "__main__":
    main()
