"""Does a run get what `stoker plan` says? One and two processes with emulated accelerators on this machine.

    python benchmarks/planning.py [--quick]

Rates are measured as the command does. Then each rank reads its part of shuffled batches and, for every
batch, waits as long as an accelerator would compute; ranks start together and do not wait for each other.
A plan's error is that of the samples a second of all ranks.
"""

import argparse
import multiprocessing as mp
import shutil
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from measuring import Report, say
from stoker.config import available_memory_bytes, usable_cores
from stoker.loader._capacity import Demand, Supply, plan_feeding
from stoker.loader._rates import gathered_per_s

BATCH = 64


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data, few steps")
    quick = parser.parse_args().quick
    report = Report("planning", ("torch", "numpy"))
    folder = Path(tempfile.mkdtemp(prefix="stoker-planning-"))
    try:
        path = folder / "signals.stoker"
        noise = np.random.default_rng(0).standard_normal((256, 1, 4000)).astype(np.float32)
        samples = [{"x": noise[i % 256], "y": i} for i in range(2000 if quick else 40_000)]
        stoker.pack(samples, path)
        for step_ms in (10.0, 0.0):
            for num_ranks in (1, 2):
                say(f"{num_ranks} ranks, steps of {step_ms} ms")
                compare(report, path, num_ranks, step_ms, repetitions=1 if quick else 5)
    finally:
        shutil.rmtree(folder)
    report.write()


def compare(report: Report, path: Path, num_ranks: int, step_ms: float, *, repetitions: int) -> None:
    """Plan and run, in turns."""
    achieved, planned = [], []
    for _ in range(repetitions):
        planned.append(_planned(path, num_ranks, step_ms))
        achieved.append(_run(path, num_ranks, step_ms))
    workload = f"{num_ranks} rank(s), steps of {step_ms:g} ms"
    report.add(workload, "stoker plan", planned, "samples/s")
    report.add(workload, "achieved", achieved, "samples/s")
    ratios = [real / plan for real, plan in zip(achieved, planned, strict=True)]
    report.add(workload, "achieved / planned", ratios, "ratio")


def _planned(path: Path, num_ranks: int, step_ms: float) -> float:
    store = stoker.open(path)
    supply = Supply(
        data_bytes=store.manifest.num_bytes,
        sample_bytes=store.manifest.num_bytes / len(store),
        num_shards=len(store.manifest.shards),
        num_cores=usable_cores(),
        gathered_per_s=gathered_per_s(store, batch_size=BATCH, seconds=0.5),
        cache_bytes=available_memory_bytes(),
        storage_bytes_per_s=1.0,  # all of it is in memory
        is_shared=False,
    )
    demand = Demand(num_ranks, num_ranks, BATCH, max(step_ms / 1000, 1e-6))
    return plan_feeding(demand, supply).later_epochs.samples_per_s


def _run(path: Path, num_ranks: int, step_ms: float) -> float:
    context = mp.get_context("spawn")
    barrier, answers = context.Barrier(num_ranks), context.Queue()
    ranks = [
        context.Process(target=_rank, args=(path, rank, num_ranks, step_ms, barrier, answers))
        for rank in range(num_ranks)
    ]
    for process in ranks:
        process.start()
    rates = [answers.get(timeout=120) for _ in ranks]
    for process in ranks:
        process.join()
    return float(sum(rates))


def _rank(path: Path, rank: int, num_ranks: int, step_ms: float, barrier: Barrier, answers: Any) -> None:
    """One rank: its samples a second over about a second, after a first epoch."""
    threads = max(1, usable_cores() // num_ranks)
    with stoker.Loader(
        stoker.open(path), BATCH, rank=rank, world_size=num_ranks, num_workers=threads
    ) as loader:
        for _ in loader:
            pass
        barrier.wait()
        num_samples, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < 1.0:
            for batch in loader:
                num_samples += len(batch["index"])
                if step_ms:
                    time.sleep(step_ms / 1000)
        answers.put(num_samples / (time.perf_counter() - begin))


if __name__ == "__main__":
    main()
