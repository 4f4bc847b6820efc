"""How fast are shuffled batches, against other loaders and against what memory allows?

    python benchmarks/loading.py [--install] [--quick] [--only signals,starvation]

Every loader runs in a process of its own, prepares its files from the same data, and then runs one epoch
at a time when asked, so that epochs of all loaders alternate. An epoch is all shuffled batches; one
element of every tensor is read. Each loader is measured with every number of workers given below and
reported with its best. ``--install`` first makes environments for the loaders that cannot share ours.

The page cache is warm, except in section "cold", where it is emptied of the files before each epoch.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from measuring import RESULTS, Report, Row, interleave, say
from peers import workloads
from peers.driving import BENCHMARKS, Peers, System, install
from peers.workloads import Workload

LIMIT = "limit: "
RATIO = " / "
STARVED = "share of time starved"
WORKERS, THREADS = ("0 workers", "2 workers"), ("1 thread", "2 threads")

TAKE = System(f"{LIMIT}numpy.take", "limits", (*THREADS, "memcpy"), report_all=True)
COPY = replace(TAKE, name=f"{LIMIT}numpy slices")
STOKER = System("Stoker", "stoker_loader", THREADS)
FFCV = System("FFCV", "ffcv_loader", THREADS, "ffcv")
TENSORS = System("TensorDataset in memory", "tensor_dataset", ("0 workers",))
MONAI = System("MONAI CacheDataset", "monai_cache", (*WORKERS, "1 thread"))
H5PY = System("h5py + DataLoader", "h5py_files", WORKERS)
NPY = System(".npy files + DataLoader", "npy_files", WORKERS)
OTHERS = (
    System("LitData", "litdata_loader", WORKERS, "litdata"),
    System("MosaicML Streaming", "streaming_loader", WORKERS, "streaming"),
    System("WebDataset", "webdataset_loader", WORKERS, "webdataset"),
    System("Hugging Face datasets", "huggingface_loader", WORKERS, "huggingface"),
    System("Grain", "grain_loader", ("0 threads", "2 threads", "2 workers"), "grain"),
    System("SPDL", "spdl_loader", THREADS, "spdl"),
)

Values = dict[str, list[float]]  # by system and variant


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    repetitions: int = 5
    signals: int = 60_000
    volumes: int = 600
    images: int = 800
    recordings: int = 3_000
    sessions: tuple[int, int] = (24, 200_000)  # how many, of how many steps
    rows: tuple[int, ...] = (10_000, 1_000_000)
    order: int = 100_000_000
    accelerator_s: float = 2.0  # that a loader must feed it, at least
    openings: int = 5  # of a store, each in a new process


QUICK = Sizes(2, 1_920, 24, 48, 192, (2, 20_000), (1_000, 10_000), 1_000_000, 0.05, 1)


@dataclass(frozen=True)
class Bench:
    """What every section needs."""

    report: Report
    folder: Path
    sizes: Sizes
    peers: Peers

    def place(self, name: str, workload: Workload) -> Workload:
        """The workload with its data, which sections of the same name share."""
        folder = self.folder / name
        return Workload.open(folder) if folder.exists() else workload.write(folder)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--install", action="store_true", help="make the peers' environments, and end")
    parser.add_argument("--quick", action="store_true", help="small data, to try the benchmark")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, of: %(default)s")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(SECTIONS):
        parser.error(f"no section {sorted(unknown)}; there are {', '.join(SECTIONS)}")
    if options.install:
        install()
        return
    folder = Path(tempfile.mkdtemp(prefix="stoker-loading-"))
    peers = Peers(reuse=options.quick)
    report = Report("loading", ("numpy", "torch", "h5py", "monai"))
    try:
        for name in chosen:
            say(name)
            SECTIONS[name](Bench(report, folder, QUICK if options.quick else Sizes(), peers))
            report.write()  # after each section: a run that is stopped leaves what it has
            draw(report.rows, RESULTS / "loading.png")
    finally:
        peers.close()
        shutil.rmtree(folder)


def signals(bench: Bench) -> None:
    """Every loader on short signals."""
    systems = (TAKE, STOKER, FFCV, TENSORS, MONAI, H5PY, NPY, *OTHERS)
    epochs(bench, "signals", workloads.signals(bench.sizes.signals), systems)


def volumes(bench: Bench) -> None:
    """Large samples, small batches."""
    systems = (TAKE, STOKER, FFCV, TENSORS, MONAI, H5PY)
    epochs(bench, "volumes", workloads.volumes(bench.sizes.volumes), systems)


def images(bench: Bench) -> None:
    """Two fields."""
    epochs(bench, "images", workloads.images(bench.sizes.images), (TAKE, STOKER, FFCV, TENSORS, H5PY))


def ragged(bench: Bench) -> None:
    """Samples of unequal length, padded to the longest of their batch."""
    epochs(bench, "ragged", workloads.recordings(bench.sizes.recordings), (COPY, STOKER, H5PY))


def windows(bench: Bench) -> None:
    """Overlapping windows; the bytes of the sessions are fewer than theirs, so there is no memcpy."""
    systems = (replace(COPY, variants=THREADS), STOKER, H5PY)
    epochs(bench, "windows", workloads.windows(*bench.sizes.sessions), systems)


def epochs(bench: Bench, name: str, workload: Workload, systems: Sequence[System]) -> None:
    """Samples/s of every system, and Stoker's ratios to the limit, which is the first, and to others."""
    title = f"{len(workload):,} {workload.title}"
    bench.peers.prepare(systems, bench.place(name, workload).folder)
    values = measure(bench, title, systems, "samples/s")
    mine = values.get(best(values, STOKER))
    for peer, budget in ((FFCV, 1.3), (H5PY, 8)):
        if peer in systems:
            label = f"{STOKER.name}{RATIO}{peer.name} (budget {budget})"
            add_ratio(bench, title, label, mine, values.get(best(values, peer)))
    limit = systems[0]
    for threads in THREADS:
        aim = " (budget 0.8)" if limit == TAKE else ""
        label = f"{STOKER.name}{RATIO}{limit.name}, {threads} each{aim}"
        mine, theirs = (values.get(_label(system, threads)) for system in (STOKER, limit))
        add_ratio(bench, title, label, mine, theirs)


def cold(bench: Bench) -> None:
    """Files that are not in the page cache.

    A store larger than the memory it may use would need a memory cgroup, which is the machine's and not
    a benchmark's to make. Instead the files leave the page cache before each epoch.
    """
    anew = System(
        "Stoker",
        "stoker_loader",
        ("opened anew, shuffled", "opened anew, quasi-random"),  # what is mapped would stay
        report_all=True,
    )
    workload = bench.place("signals", workloads.signals(bench.sizes.signals))
    title = f"{len(workload):,} {workload.title}, not in the page cache"
    bench.peers.prepare((anew, H5PY), workload.folder)
    drop = partial(leave_page_cache, workload.folder / "packed.stoker", workload.folder / "h5py.h5")
    measure(bench, title, (anew, H5PY), "samples/s", before=drop)


def starvation(bench: Bench) -> None:
    """How long an accelerator waits for data if its step takes so long."""
    systems = (STOKER, H5PY, NPY)
    workload = bench.place("signals", workloads.signals(bench.sizes.signals))
    bench.peers.prepare(systems, workload.folder)
    for step_ms in (1, 5, 20, 100):
        title = f"steps of {step_ms} ms, batches of {workload.batch_size} {workload.title}"
        wanted = max(2, round(1000 * bench.sizes.accelerator_s / step_ms))
        num_steps = min(wanted, len(workload) // workload.batch_size - 1)
        request = {"step_ms": step_ms, "num_steps": num_steps}
        measure(bench, title, systems, STARVED, request=request, warm_up=step_ms == 1)


def scale(bench: Bench) -> None:
    """What a large number of samples costs before the first batch is there."""
    names = {"stoker": "Stoker", "dataloader": "h5py + DataLoader(RandomSampler)"}
    megabytes: dict[tuple[str, int], float] = {}
    small, large = bench.sizes.rows
    for size in bench.sizes.rows:
        workload = bench.place(f"rows-{size}", workloads.rows(size))
        title = f"{size:,} {workload.title}"
        bench.peers.prepare((STOKER, H5PY), workload.folder)  # which writes their files
        order = bench.sizes.order if size == large else None
        answers = first_batches(workload.folder, bench.sizes.openings, order=order)
        for key, name in names.items():
            budget = " (budget 200)" if key == "stoker" else ""
            bench.report.add(title, f"{name}, open to first batch{budget}", answers[f"{key} batch ms"], "ms")
            label = f"{name}, peak anonymous memory"
            megabytes[key, size] = bench.report.add(title, label, answers[f"{key} batch MB"], "MB")
    for key, name in names.items():
        growth = 1e6 * (megabytes[key, large] - megabytes[key, small]) / (large - small)
        label = f"{name}, memory a sample more" + (" (budget 16)" if key == "stoker" else "")
        bench.report.add(f"from {small:,} to {large:,} rows", label, [growth], "bytes")
    title = f"order of {bench.sizes.order:,} samples"
    for key, name in {"stoker": "Stoker", "dataloader": "RandomSampler"}.items():
        bench.report.add(title, f"{name}, peak anonymous memory", answers[f"{key} order MB"], "MB")
        bench.report.add(title, f"{name}, to its first sample", answers[f"{key} order ms"], "ms")


SECTIONS: dict[str, Callable[[Bench], None]] = {
    section.__name__: section
    for section in (signals, volumes, images, ragged, windows, cold, starvation, scale)
}


def measure(
    bench: Bench,
    workload: str,
    systems: Sequence[System],
    unit: str,
    *,
    request: Mapping[str, float] | None = None,
    before: Callable[[], None] | None = None,
    warm_up: bool = True,
) -> Values:
    """Ask all variants of all systems in turn, after a warm-up each, and report them."""

    def ask(system: System, variant: str) -> float:
        if before is not None:
            before()
        return bench.peers.ask(system, variant, request or {})

    runs = {
        _label(system, variant): partial(ask, system, variant)
        for system in systems
        for variant in system.variants
    }
    interleave(runs, int(warm_up))
    values = interleave(runs, bench.sizes.repetitions)
    values = {label: found for label, found in values.items() if not any(map(math.isnan, found))}
    for system in systems:
        if system in bench.peers.missing:
            bench.report.add_missing(workload, system.name)
            continue
        if system.environment is not None:
            bench.report.versions_elsewhere[system.name] = bench.peers.version(system)
        every = [_label(system, variant) for variant in system.variants]
        for label in every if system.report_all else [best(values, system, lowest=unit == STARVED)]:
            bench.report.add(workload, label, values[label], unit)
    return values


def best(values: Values, system: System, *, lowest: bool = False) -> str:
    """The label of the system's best variant, by the median; none of ``values`` if it is missing."""
    labels = [label for variant in system.variants if (label := _label(system, variant)) in values]
    choose = min if lowest else max
    return choose(labels, key=lambda label: statistics.median(values[label]), default=system.name)


def add_ratio(
    bench: Bench, workload: str, label: str, mine: list[float] | None, theirs: list[float] | None
) -> None:
    """The ratio of figures that were measured one soon after the other."""
    if mine is None or theirs is None:
        bench.report.add_missing(workload, label)
        return
    ratios = [ours / peer for ours, peer in zip(mine, theirs, strict=True)]
    bench.report.add(workload, label, ratios, "ratio")


def first_batches(folder: Path, repetitions: int, *, order: int | None) -> Values:
    """The answers, in ms and MB, of ``peers/first_batch.py``, each from a process of its own.

    The cost of the order alone is asked for in the last repetition only: it is large and does not vary.
    """
    script = str(BENCHMARKS / "peers" / "first_batch.py")
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    values: Values = defaultdict(list)
    for repetition in range(repetitions):
        also = [] if order is None or repetition < repetitions - 1 else [str(order)]
        for system in ("stoker", "dataloader"):
            command = [sys.executable, script, system, str(folder), *also]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            for what, cost in json.loads(done.stdout).items():
                values[f"{system} {what} ms"].append(1e3 * cost["seconds"])
                values[f"{system} {what} MB"].append(cost["memory_bytes"] / 1e6)
    return values


def leave_page_cache(*paths: Path) -> None:
    """Make these files, or those in these folders, leave it, as far as nobody has touched them mapped."""
    for path in (file for given in paths for file in [given, *given.rglob("*")] if file.is_file()):
        opened = os.open(path, os.O_RDONLY)
        os.fsync(opened)  # what is not written yet would stay
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(opened)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Bars of samples/s: a panel a workload, in two columns of about equal height."""
    panels: dict[str, list[Row]] = {}
    for row in rows:
        if row.unit in {"samples/s", "missing"} and RATIO not in row.system:
            panels.setdefault(row.workload, []).append(row)
    panels = {title: panel for title, panel in panels.items() if any(row.value for row in panel)}
    if not panels:
        return
    try:
        from matplotlib.figure import Figure
    except ImportError:
        say("no chart: matplotlib is missing")
        return
    columns: list[list[list[Row]]] = [[], []]
    for panel in panels.values():
        min(columns, key=_height).append(panel)
    columns = [column for column in columns if column]
    figure = Figure((7.5 * len(columns), 0.26 * max(map(_height, columns)) + 0.5), layout="constrained")
    figure.suptitle("Shuffled batches, samples/s (log scale; median and range)", fontsize=12)
    parts = figure.subfigures(1, len(columns), squeeze=False)[0]
    for part, column in zip(parts, columns, strict=True):
        room = max(map(_height, columns)) - _height(column)
        heights = [*(_height([panel]) for panel in column), *([room] if room else [])]
        grid = part.add_gridspec(len(heights), 1, height_ratios=heights)
        for place, panel in enumerate(column):
            _draw_panel(part.add_subplot(grid[place]), panel)
    figure.savefig(path, dpi=130)


def _draw_panel(axes: Any, panel: list[Row]) -> None:
    from matplotlib.ticker import NullFormatter

    ordered = sorted(panel, key=lambda row: row.value)
    least = min((row.low for row in ordered if row.value), default=1.0)
    most = max((row.high for row in ordered), default=1.0)
    for place, row in enumerate(ordered):
        limit, ours = row.system.startswith(LIMIT), row.system.startswith("Stoker")
        colour = "#d1495b" if ours else "white" if limit else "#8fa9bf"
        hatch, edge = ("////", "#777777") if limit else (None, colour)
        if row.value:
            axes.barh(place, row.value, color=colour, edgecolor=edge, hatch=hatch, height=0.72)
            axes.plot([row.low, row.high], [place, place], color="#222222", linewidth=1.2)
        text = f" {row.value:,.0f}" if row.value else " missing"
        weight = "bold" if ours else "normal"
        axes.text(max(row.high, least / 2), place, text, va="center", fontsize=8, fontweight=weight)
    axes.set_yticks(range(len(ordered)), [row.system for row in ordered], fontsize=8)
    axes.set_ylim(-0.7, len(ordered) - 0.3)
    axes.set_xscale("log")
    axes.set_xlim(min(least / 2, most / 20), most * 3)  # room for the figures
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title(panel[0].workload, fontsize=9, loc="left")
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _height(column: Sequence[Sequence[Row]]) -> float:
    return sum(len(panel) + 2.5 for panel in column)


def _label(system: System, variant: str) -> str:
    return f"{LIMIT}memcpy" if variant == "memcpy" else f"{system.name}, {variant}"


if __name__ == "__main__":
    main()
