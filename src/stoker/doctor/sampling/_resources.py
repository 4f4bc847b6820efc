"""Memory, processor and accelerator use over time, read from /proc by a thread."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from stoker.doctor._record import Moment

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SLOW_READ_S = 0.005  # proportional memory of a big process takes the kernel long: then ask less often
_SLOW_READ_SHARE = 0.01  # of the time, at most
_MAX_MOMENTS = 4096  # then every second one is dropped, and half as many are taken from there on


class ResourceWatch:
    """Watches this process, its descendants, and the machine's cores, from `start` to `stop`.

    Args:
        interval_s: time between two moments; it doubles when a long run has filled the memory set aside.
        begin_ns: `time.perf_counter_ns` of what counts as time 0; None: the call of `start`.
    """

    def __init__(self, *, interval_s: float = 0.2, begin_ns: int | None = None) -> None:
        self._interval_s = interval_s
        self._begin_ns = begin_ns
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._moments: list[Moment] = []
        self._memory = MemoryReader()
        self._accelerator = _accelerator()

    def start(self) -> None:
        if self._begin_ns is None:
            self._begin_ns = time.perf_counter_ns()
        self._thread = threading.Thread(target=self._run, name="stoker-resources", daemon=True)
        self._thread.start()

    def stop(self) -> list[Moment]:
        """End the thread; the moments in order. May be called again."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        return list(self._moments)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _run(self) -> None:
        before = Sight.of_now()
        while not self._is_over.wait(self._interval_s):
            now = Sight.of_now()
            own, workers = self._memory.read(list(now.processes))
            assert self._begin_ns is not None
            self._moments.append(
                Moment(
                    time_s=now.time_s - self._begin_ns / 1e9,
                    memory_bytes=own + workers,
                    worker_memory_bytes=workers,
                    core_use=core_use(before.cores, now.cores),
                    process_cpu=cpu_use(before, now),
                    accelerator_use=self._accelerator() if self._accelerator is not None else None,
                )
            )
            before = now
            if len(self._moments) >= _MAX_MOMENTS:
                del self._moments[::2]
                self._interval_s *= 2


@dataclass(frozen=True)
class Sight:
    """The raw counters at one time."""

    time_s: float
    cores: list[tuple[int, int]]  # busy and all ticks since the machine started, of each core
    processes: dict[int, int]  # processor ticks, by process number; this process first

    @classmethod
    def of_now(cls) -> "Sight":
        processes = {}
        for process in [os.getpid(), *descendants(os.getpid())]:
            with contextlib.suppress(OSError, IndexError, ValueError):  # it may end while we look
                processes[process] = cpu_ticks(Path(f"/proc/{process}/stat").read_text())
        cores = core_ticks(Path("/proc/stat").read_text())
        return cls(time_s=time.perf_counter(), cores=cores, processes=processes)


def core_ticks(text: str) -> list[tuple[int, int]]:
    """Busy and total ticks of each core, from /proc/stat."""
    found = []
    for line in text.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(field) for field in fields[:8]]  # the guests' time after these is in the user's
            found.append((sum(ticks) - sum(ticks[3:5]), sum(ticks)))  # idle, and waiting for a disk
    return found


def core_use(before: list[tuple[int, int]], now: list[tuple[int, int]]) -> tuple[float, ...]:
    """Share of each core that was in use between two readings, 0 to 1."""
    return tuple(
        min(1.0, max(0.0, (busy - busy_before) / (total - total_before))) if total > total_before else 0.0
        for (busy_before, total_before), (busy, total) in zip(before, now, strict=False)
    )


def cpu_ticks(text: str) -> int:
    """User and system ticks of a process, from its /proc/…/stat; its name may hold anything."""
    fields = text.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def cpu_use(before: Sight, now: Sight) -> float:
    """Cores that the tree kept busy; a process that is new has run since it was begun."""
    ticks = sum(count - before.processes.get(process, 0) for process, count in now.processes.items())
    return max(0.0, ticks * _TICK_S / max(now.time_s - before.time_s, 1e-9))


def descendants(process: int) -> list[int]:
    """The processes that this one has begun, and theirs."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread may end while we look
            for child in task.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


class MemoryReader:
    """Memory of processes: proportional, so that pages shared by workers count once.

    Asking for it makes the kernel walk the page tables. Where that takes longer than a few milliseconds
    it is asked again only when one percent of the time is enough for it, and until then the change of the
    resident pages is added. A process that does not tell counts with its resident pages.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Memory] = {}

    def read(self, processes: list[int]) -> tuple[int, int]:
        """Bytes of the first process, and of all the others together."""
        sizes = [self._read_one(process, len(processes)) for process in processes]
        for process in self._known.keys() - set(processes):
            del self._known[process]
        return (sizes[0] if sizes else 0), sum(sizes[1:])

    def _read_one(self, process: int, num_processes: int) -> int:
        begin, resident, known = time.perf_counter(), _resident(process), self._known.get(process)
        if known is not None and begin < known.not_before_s:
            return max(0, known.size + resident - known.resident)
        size = _proportional(process)
        took_s = time.perf_counter() - begin
        pause_s = took_s / _SLOW_READ_SHARE * num_processes if took_s > _SLOW_READ_S else 0.0
        size = resident if size is None else size
        self._known[process] = _Memory(size, resident, begin + pause_s)
        return size


@dataclass(frozen=True)
class _Memory:
    size: int
    resident: int  # at the same time
    not_before_s: float  # when to ask again


def _proportional(process: int) -> int | None:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return None
    found = [line for line in text.splitlines() if line.startswith("Pss:")]
    return int(found[0].split()[1]) * 1024 if found else None


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _accelerator() -> Callable[[], float | None] | None:
    """A function that gives NVML's utilisation, or None where there is no NVML or no device.

    torch is not asked: it would begin to use the device, which a script may want to do after it forks.
    """
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]

        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
        if visible.isdecimal():
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(visible))
        else:
            handle = pynvml.nvmlDeviceGetHandleByUUID(visible)
    except Exception:  # noqa: BLE001 - a driver that does not match its library raises its own kinds
        return None

    def use() -> float | None:
        try:
            return float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
        except pynvml.NVMLError:
            return None

    return use
