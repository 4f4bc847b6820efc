"""What every benchmark shares: repeated interleaved measurements, and a report that says on what."""

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pictures import draw_ratios

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One figure: the median of repetitions and the range they span."""

    workload: str
    system: str
    value: float
    unit: str
    repetitions: int
    low: float
    high: float


@dataclass
class Report:
    """The rows of one benchmark; written as JSON and as a Markdown table."""

    name: str
    libraries: tuple[str, ...]
    command: str = ""  # what writes it; by default the script of its name
    rows: list[Row] = field(default_factory=list)
    versions_elsewhere: dict[str, str] = field(default_factory=dict)  # in other environments

    def add(self, workload: str, system: str, values: list[float], unit: str) -> float:
        """Add a figure and give its median."""
        middle = statistics.median(values)
        self.rows.append(Row(workload, system, middle, unit, len(values), min(values), max(values)))
        return middle

    def add_missing(self, workload: str, system: str) -> None:
        """Say that a figure could not be had here."""
        self.rows.append(Row(workload, system, 0.0, "missing", 0, 0.0, 0.0))

    def write(self) -> None:
        """Print the table and write ``results/NAME.json``, ``results/NAME.md`` and, of ratios, a picture."""
        RESULTS.mkdir(exist_ok=True)
        data = {
            "schema_version": 1,
            "benchmark": self.name,
            "machine": machine(),
            "versions": versions(self.libraries) | self.versions_elsewhere,
            "commit": commit(),
            "rows": [vars(row) for row in self.rows],
        }
        (RESULTS / f"{self.name}.json").write_text(json.dumps(data, indent=1) + "\n")
        (RESULTS / f"{self.name}.md").write_text(self._markdown(data))
        title = f"{self.name.replace('_', ' ')}: ratios and ranges; a tick is a budget, red means missed"
        draw_ratios(self.rows, RESULTS / f"{self.name}.png", title=title)
        table = Table("workload", "system", "value", "unit", "low", "high", "runs", box=box.SIMPLE)
        for row in self.rows:
            numbers = (_figure(row.value), row.unit, _figure(row.low), _figure(row.high))
            table.add_row(row.workload, row.system, *numbers, str(row.repetitions))
        Console(width=140).print(table)

    def _markdown(self, data: Mapping[str, Any]) -> str:
        facts = ", ".join(f"{key} {value}" for key, value in data["machine"].items())
        used = ", ".join(f"{key} {value}" for key, value in data["versions"].items())
        lines = [
            f"# {self.name.replace('_', ' ').capitalize()}",
            "",
            f"Written by `python benchmarks/{self.command or self.name + '.py'}` at commit {data['commit']}.",
            f"Machine: {facts}. Versions: {used}. Median of the runs, with the range they span.",
            "",
            "| workload | system | value | unit | low | high | runs |",
            "|---|---|--:|---|--:|--:|--:|",
        ]
        for row in self.rows:
            numbers = f"{_figure(row.value)} | {row.unit} | {_figure(row.low)} | {_figure(row.high)}"
            lines.append(f"| {row.workload} | {row.system} | {numbers} | {row.repetitions} |")
        return "\n".join(lines) + "\n"


def interleave(runs: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, list[float]]:
    """Run each of ``runs`` in turn, again and again, so that a noisy minute hits them all."""
    values: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            values[name].append(run())
    return values


def seconds_of(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def peak_memory(*, children: bool = True) -> Iterator[dict[str, int]]:
    """The peak memory of this process and its children together, by sampling every 5 ms.

    Proportional set size: a page shared by forked processes counts once in all. ``start_bytes`` is
    what there was at the start. A library that starts a command shares all its memory with it for a
    moment, which counts twice: leave out the children where they do none of the work.
    """
    start_bytes = _tree_bytes(os.getpid(), children=children)
    peak = {"num_bytes": start_bytes, "start_bytes": start_bytes}
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(0.005):
            peak["num_bytes"] = max(peak["num_bytes"], _tree_bytes(os.getpid(), children=children))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        finished.set()
        watcher.join()


def machine() -> dict[str, str | int]:
    """What the figures were measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor() or platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def versions(libraries: tuple[str, ...]) -> dict[str, str]:
    """Versions of the libraries that were measured; ``missing`` where one is not installed."""
    found = {}
    for name in ("stoker", *libraries):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def commit() -> str:
    """The commit that was measured."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"


def say(text: str) -> None:
    """A line on what is measured now."""
    print(f"· {text}", file=sys.stderr, flush=True)


def misses(row: Row) -> bool:
    """Whether a row with a budget in its name does not keep it: a least ratio, a most of anything else."""
    _, found, budget = row.system.rpartition("(budget ")
    if not found or not row.repetitions:
        return False
    aim = float(budget.rstrip(")"))
    return row.value < aim if row.unit == "ratio" else row.value > aim


def _tree_bytes(pid: int, *, children: bool) -> int:
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                total += int(line.split()[1]) * 1024
        born = Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if children else []
    except OSError:  # it ended meanwhile
        return total
    return total + sum(_tree_bytes(int(child), children=True) for child in born)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
