"""What does the trainer cost, against a loop by hand, Lightning and Accelerate?

    python benchmarks/training.py [--quick] [--only overhead,memory] [--threads 1]

`overhead` trains the same model four ways in one process, which take turns; ``peers/train_loops.py``
says what each does. A figure is the mean time between two batches asked of the loader, over an epoch
without its first steps, so that setting up and tearing down are left out. Overheads and shares compare
figures of the same repetition. `memory` trains each way in a process of its own, `metrics` measures
accumulators with more and more samples, and `waiting` tells what the trainer says of a loader that is
known to make it wait.
"""

import argparse
import functools
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import stoker
from measuring import Report, interleave, misses, say, seconds_of
from peers import train_memory
from peers.train_loops import LOOPS, Job
from stoker.train import Supervised, classification_metrics

BENCHMARKS = Path(__file__).parent

_HAND, _STOKER = list(LOOPS)[:2]
_LONG_STEP_MS = 20
_MEASURED_BATCH = 1000


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    repetitions: int = 11
    tiny_steps: int = 4000
    long_steps: int = 120
    num_val: tuple[int, ...] = (1000, 4000, 16000)
    memory_runs: int = 3
    num_measured: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    waiting_steps: int = 100


QUICK = Sizes(2, 300, 10, (200, 800), 1, (10_000, 50_000), 10)


@dataclass(frozen=True)
class Bench:
    """What every section needs."""

    report: Report
    folder: Path
    sizes: Sizes


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps, to try the benchmark")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, of: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(SECTIONS):
        parser.error(f"no section {sorted(unknown)}; there are {', '.join(SECTIONS)}")
    torch.set_num_threads(options.threads)
    folder = Path(tempfile.mkdtemp(prefix="stoker-training-"))
    report = Report("training", ("torch", "torchmetrics", "lightning", "accelerate"))
    try:
        for name in chosen:
            say(name)
            SECTIONS[name](Bench(report, folder, QUICK if options.quick else Sizes()))
    finally:
        shutil.rmtree(folder)
    report.write()
    for row in report.rows:
        if misses(row):
            say(f"misses its budget: {row.workload}: {row.system} is {row.value:.3g} {row.unit}")


def overhead(bench: Bench) -> None:
    """Time of a step, the four ways: of a model that takes none, and of one that takes 20 ms."""
    tiny = functools.partial(_layers, 16, 1)
    values = _step_times(bench, "a tiny model", tiny, 16, bench.sizes.tiny_steps)
    for name in list(LOOPS)[1:]:
        extra = [(mine - by_hand) * 1e6 for mine, by_hand in _pairs(values, name)]
        aim = " (budget 50)" if name == _STOKER else ""
        bench.report.add("a tiny model", f"{name}, more than the loop by hand{aim}", extra, "µs a step")
    title = f"a step that waits {_LONG_STEP_MS} ms for an emulated accelerator"
    values = _step_times(bench, title, _Accelerated, 16, bench.sizes.long_steps)
    for name in list(LOOPS)[1:]:
        share = [(mine / by_hand - 1) * 100 for mine, by_hand in _pairs(values, name)]
        aim = " (budget 2)" if name == _STOKER else ""
        bench.report.add(title, f"{name}, more than the loop by hand{aim}", share, "%")


def memory(bench: Bench) -> None:
    """Peak memory of a run by each profile, and of a loop that keeps what it evaluates."""
    for num_val in bench.sizes.num_val:
        folder = bench.folder / f"memory-{num_val}"
        train_memory.write(folder, num_val)
        title = f"512 training and {num_val} validation signals [4, 1000], predictions [4, 1000]"
        for way in ("low_memory", "default", "high_performance", train_memory.KEEPING):
            peaks = [_peak(folder, way) for _ in range(bench.sizes.memory_runs)]
            name = way if way == train_memory.KEEPING else f"profile {way}"
            own = [peak["own_bytes"] / 1e6 for peak in peaks]
            bench.report.add(title, f"{name}, beyond the libraries", own, "MB")
            resident = [peak["resident_bytes"] / 1e6 for peak in peaks]
            bench.report.add(title, f"{name}, resident, with mapped files", resident, "MB")
        shutil.rmtree(folder)


def metrics(bench: Bench) -> None:
    """What accumulators hold and how long an update takes, after more and more samples."""
    from torchmetrics.classification import BinaryAUROC

    systems: dict[str, Callable[[], Any]] = {
        "Stoker, all values, binned": lambda: classification_metrics(2),
        "Stoker, all values, exact": lambda: classification_metrics(2, exact=True),
        "torchmetrics, AUROC alone, exact": BinaryAUROC,
    }
    slow = {"torchmetrics, AUROC alone, 4096 thresholds": functools.partial(BinaryAUROC, thresholds=4096)}
    for num_samples in bench.sizes.num_measured:
        title = f"{num_samples} binary predictions in batches of {_MEASURED_BATCH}"
        least = num_samples == min(bench.sizes.num_measured)  # what is slow holds the same for any number
        runs = {
            name: functools.partial(_measured, make, num_samples)
            for name, make in (systems | slow if least else systems).items()
        }
        held = {name: run()[1] for name, run in runs.items()}  # which warms it up
        times = interleave({name: functools.partial(_first, run) for name, run in runs.items()}, 3)
        for name, found in times.items():
            bench.report.add(title, f"{name}, held", [held[name] / 1e6], "MB")
            bench.report.add(title, f"{name}, update", found, "µs a batch")


def waiting(bench: Bench) -> None:
    """The share of time that the trainer says it waited, beside what the loader took by its own clock."""
    for load_ms in (0, 2, 20, 60):
        title = f"a loader that takes {load_ms} ms, a step that takes {_LONG_STEP_MS} ms"
        found = [_waited(load_ms, bench.sizes.waiting_steps) for _ in range(3)]
        bench.report.add(title, "the loader's own clock", [truth for truth, _ in found], "share")
        bench.report.add(title, "Stoker, data_wait_fraction", [said for _, said in found], "share")


SECTIONS: dict[str, Callable[[Bench], None]] = {
    section.__name__: section for section in (overhead, memory, metrics, waiting)
}


class _Ready(Dataset[Any]):
    """Batches that are there already; notes when the first and the last of the timed steps begin."""

    def __init__(self, size: int, num_steps: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._batches = [
            {"x": torch.randn(8, size, generator=generator), "y": torch.randn(8, 1, generator=generator)}
            for _ in range(8)
        ]
        self._num_steps = num_steps
        self._first, self._last = num_steps // 8, num_steps - 1  # a peer may ask one batch ahead
        self._began_s = self._ended_s = 0.0

    def __len__(self) -> int:
        return self._num_steps

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        if step == self._first:
            self._began_s = time.perf_counter()
        elif step == self._last:
            self._ended_s = time.perf_counter()
        return self._batches[step % len(self._batches)]

    def seconds_a_step(self) -> float:
        """Of the epoch that was asked for last."""
        return (self._ended_s - self._began_s) / (self._last - self._first)


def _layers(size: int, depth: int) -> nn.Module:
    torch.manual_seed(0)
    hidden = [part for _ in range(depth - 1) for part in (nn.Linear(size, size), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(size, 1))


class _Accelerated(nn.Module):
    """A tiny model whose forward pass lets the host wait, as for an accelerator's results."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = _layers(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        _wait(_LONG_STEP_MS)
        return cast(Tensor, self.layers(x))


def _step_times(
    bench: Bench, title: str, make_model: Callable[[], nn.Module], size: int, num_steps: int
) -> dict[str, list[float]]:
    """Seconds a step of each loop, by repetition; reported."""

    def run(name: str, num_steps: int = num_steps) -> float:
        batches = _Ready(size, num_steps)
        loader = DataLoader(batches, batch_size=None)
        gc.collect()
        LOOPS[name](Job(make_model, loader, bench.folder))
        return batches.seconds_a_step()

    for name in LOOPS:
        run(name, num_steps=20)  # what is imported and made once
    values = interleave({name: functools.partial(run, name) for name in LOOPS}, bench.sizes.repetitions)
    for name, found in values.items():
        bench.report.add(title, name, [seconds * 1e6 for seconds in found], "µs a step")
    return values


def _pairs(values: dict[str, list[float]], name: str) -> Iterator[tuple[float, float]]:
    return zip(values[name], values[_HAND], strict=True)


def _peak(folder: Path, way: str) -> dict[str, int]:
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS), "TMPDIR": str(folder)}
    command = [sys.executable, str(BENCHMARKS / "peers" / "train_memory.py"), str(folder), way]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{way} failed: {done.stderr[-2000:]}")
    peak: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return peak


def _measured(make: Callable[[], Any], num_samples: int) -> tuple[float, int]:
    """Microseconds a batch, and the bytes that the metric holds at the end."""
    metric = make()
    scores = torch.randn(num_samples, generator=torch.Generator().manual_seed(0))
    targets = (scores > 0).long()
    batches = list(
        zip(torch.split(scores, _MEASURED_BATCH), torch.split(targets, _MEASURED_BATCH), strict=True)
    )
    took_s = seconds_of(lambda: [metric.update(*batch) for batch in batches])
    return took_s / len(batches) * 1e6, _held_bytes(metric)


def _first(run: Callable[[], tuple[float, int]]) -> float:
    return run()[0]


def _held_bytes(metric: Any) -> int:
    held = [part for value in metric.metric_state.values() for part in _listed(value)]
    return sum(part.numel() * part.element_size() for part in held)


def _listed(value: Any) -> list[Tensor]:
    return value if isinstance(value, list) else [value]


def _waited(load_ms: float, num_steps: int) -> tuple[float, float]:
    """The share of an epoch in which the loader made the trainer wait, and what the trainer says it was."""
    loader = _Slow(load_ms, num_steps)
    with stoker.Trainer(
        nn.Linear(2, 1), _Waiting(nn.MSELoss()), log=None, device="cpu", progress=False
    ) as trainer:
        (row,) = trainer.fit(loader, epochs=1).history
    return loader.waited_s / loader.epoch_s, float(row["data_wait_fraction"])


class _Slow:
    """Takes its time for each batch, and notes it."""

    def __init__(self, load_ms: float, num_steps: int) -> None:
        self._load_ms, self._num_steps = load_ms, num_steps
        self.waited_s = self.epoch_s = 0.0

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        began_s = time.perf_counter()
        for _ in range(self._num_steps):
            asked_s = time.perf_counter()
            _wait(self._load_ms)
            self.waited_s += time.perf_counter() - asked_s
            yield {"x": torch.zeros(4, 2), "y": torch.zeros(4, 1)}
        self.epoch_s = time.perf_counter() - began_s


class _Waiting(Supervised):
    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Any]:
        _wait(_LONG_STEP_MS)
        return super().loss(model, batch)


def _wait(milliseconds: float) -> None:
    """As a disk or a device makes one wait: without the processor, to a deadline."""
    end = time.perf_counter() + milliseconds / 1000
    while (left := end - time.perf_counter()) > 0:
        time.sleep(left)


if __name__ == "__main__":
    main()
