"""How fast is packing, against the work it cannot avoid? How fast are re-runs and verification?

    python benchmarks/packing.py [--quick]

The limit of packing is reading and transforming alone, in as many plain processes as there are
cores, writing nothing. A second limit also writes each process' output as raw bytes into one file,
which is what any packer must do at least. On Dask, the same packing runs on a cluster of as many
processes; the budget is its rate against that of local processes.
"""

import argparse
import contextlib
import functools
import multiprocessing as mp
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.signal

import stoker
from measuring import Report, interleave, peak_memory, say, seconds_of
from stoker.config import usable_cores
from stoker.recipes.heart_sounds import write_recordings
from stoker.store import verify
from stoker.store.sources import FolderSource

LENGTH = 20_000  # 4 s at 5 kHz


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small data, to try the benchmark")
    quick = parser.parse_args().quick
    report = Report("packing", ("numpy", "h5py", "xxhash", "scipy", "monai", "distributed"))
    folder = Path(tempfile.mkdtemp(prefix="stoker-packing-"))
    try:
        recordings(report, folder, num_per_class=40 if quick else 800, repetitions=2 if quick else 5)
        on_dask(report, folder, num_samples=2000 if quick else 480_000, repetitions=2 if quick else 5)
        verifying(report, folder, num_samples=2000 if quick else 60_000, repetitions=5)
        memory(report, folder, sizes=(500, 2000) if quick else (20_000, 80_000, 160_000))
        for num_files in (1000,) if quick else (10_000, 100_000):
            small_files(report, folder, num_files)
    finally:
        shutil.rmtree(folder)
    report.write()


def prepare(sample: dict[str, Any]) -> dict[str, Any]:
    """What heart-sound pipelines do to a recording: resample, band-pass, standardise, fit."""
    signal = scipy.signal.resample_poly(sample["x"], 5, 4, axis=-1)
    bands = scipy.signal.butter(4, [25, 400], "bandpass", fs=5000, output="sos")
    signal = scipy.signal.sosfiltfilt(bands, signal, axis=-1)
    signal = (signal - signal.mean()) / signal.std()
    fitted = np.zeros((1, LENGTH), np.float32)
    fitted[:, : min(LENGTH, signal.shape[-1])] = signal[:, :LENGTH]
    return {"x": fitted, "y": sample["y"]}


def recordings(report: Report, folder: Path, *, num_per_class: int, repetitions: int) -> None:
    """Wav files through a real transform: rate against the limit, and the unchanged re-run."""
    data = folder / "recordings"
    num_files = write_recordings(data, num_per_class=num_per_class)
    source = Repeated(FolderSource(data, labels="folder"), 2)
    count = len(source)
    workload = f"{num_files} wav files, twice over, resample + filter"
    say(workload)
    target = folder / "recordings.stoker"

    def pack() -> float:
        shutil.rmtree(target, ignore_errors=True)
        return count / seconds_of(lambda: stoker.pack(source, target, transform=prepare))

    def again() -> float:
        anew = Repeated(FolderSource(data, labels="folder"), 2)
        return seconds_of(lambda: stoker.pack(anew, target, transform=prepare))

    runs: dict[str, Callable[[], float]] = {
        "limit": lambda: count / seconds_of(lambda: _transform_alone(source, usable_cores())),
        "raw": lambda: count / seconds_of(lambda: _transform_alone(source, usable_cores(), out=folder)),
        "stoker": pack,
        "again": again,
    }
    peer = _monai_cache(source, folder / "monai")
    if peer is not None:
        runs["monai"] = lambda: count / seconds_of(peer)
    values = interleave(runs, repetitions)
    report.add(
        workload,
        f"read + transform alone, {usable_cores()} processes",
        values["limit"],
        "samples/s",
    )
    report.add(workload, "the same + raw write and fsync", values["raw"], "samples/s")
    report.add(workload, "stoker pack", values["stoker"], "samples/s")
    if peer is not None:
        report.add(workload, "MONAI PersistentDataset, first pass", values["monai"], "samples/s")
    ratios = [ours / limit for ours, limit in zip(values["stoker"], values["limit"], strict=True)]
    report.add(workload, "stoker pack / read + transform alone (budget 0.9)", ratios, "ratio")
    ratios = [ours / raw for ours, raw in zip(values["stoker"], values["raw"], strict=True)]
    report.add(workload, "stoker pack / the same + raw write", ratios, "ratio")
    shares = [t * rate / count for t, rate in zip(values["again"], values["stoker"], strict=True)]
    report.add(workload, "unchanged re-run", [1000 * t for t in values["again"]], "ms")
    report.add(workload, "unchanged re-run / first run (budget 0.02)", shares, "share")


def on_dask(report: Report, folder: Path, *, num_samples: int, repetitions: int) -> None:
    """A Dask cluster of this machine's processes against processes without one: slow samples and fast.

    The cluster is that of ``--scheduler local:N``, which Dask does not profile; it is there beforehand, as
    one that many runs share.
    """
    from stoker.store.dask._cluster import connected

    source = Repeated(FolderSource(folder / "recordings", labels="folder"), 8)
    noise = np.random.default_rng(0).standard_normal((512, 1, 4000)).astype(np.float32)
    workloads: dict[str, tuple[Any, Callable[[Any], Any] | None]] = {
        f"{len(source.source)} wav files, eight times over, resample + filter": (source, prepare),
        f"{num_samples} samples of [1, 4000] float32, no transform": (Constant(noise, num_samples), None),
    }
    target = folder / "dask.stoker"

    def pack(source: Any, transform: Any, **where: Any) -> float:
        shutil.rmtree(target, ignore_errors=True)
        return len(source) / seconds_of(lambda: stoker.pack(source, target, transform=transform, **where))

    with contextlib.ExitStack() as stack:
        begun = time.perf_counter()
        client = stack.enter_context(connected(f"local:{usable_cores()}")).client
        seconds = time.perf_counter() - begun
        report.add("a Dask cluster here", f"starting {usable_cores()} processes", [seconds], "s")
        for workload, (given, transform) in workloads.items():
            say(f"{workload}, on Dask")
            pack(given, transform, scheduler=client)  # workers import what they need
            runs: dict[str, Callable[[], float]] = {
                "local": functools.partial(pack, given, transform),
                "dask": functools.partial(pack, given, transform, scheduler=client),
            }
            values = interleave(runs, repetitions)
            report.add(workload, "stoker pack, local processes", values["local"], "samples/s")
            report.add(workload, "stoker pack on Dask, as many workers", values["dask"], "samples/s")
            ratios = [dask / local for dask, local in zip(values["dask"], values["local"], strict=True)]
            report.add(workload, "stoker pack on Dask / local processes (budget 0.9)", ratios, "ratio")
    shutil.rmtree(target)


def verifying(report: Report, folder: Path, *, num_samples: int, repetitions: int) -> None:
    """Verification against reading the same files, both from page cache."""
    workload = f"{num_samples} samples of [1, 4000] float32"
    say(workload)
    target = folder / "verify.stoker"
    noise = np.random.default_rng(0).standard_normal((512, 1, 4000)).astype(np.float32)
    stoker.pack(Constant(noise, num_samples), target)
    num_gb = sum(file.stat().st_size for file in target.rglob("*.h5")) / 1e9

    def read() -> float:
        return num_gb / seconds_of(lambda: _read_all(target))

    runs = {
        "read": read,
        "full": lambda: num_gb / seconds_of(lambda: verify(target)),
        "quick": lambda: num_gb / seconds_of(lambda: verify(target, quick=True)),
    }
    values = interleave(runs, repetitions)
    report.add(workload, "reading the files, 1 thread", values["read"], "GB/s")
    report.add(workload, "stoker verify --quick", values["quick"], "GB/s")
    report.add(workload, "stoker verify", values["full"], "GB/s")
    ratios = [ours / read for ours, read in zip(values["full"], values["read"], strict=True)]
    report.add(workload, "stoker verify / reading", ratios, "ratio")
    shutil.rmtree(target)


def memory(report: Report, folder: Path, *, sizes: tuple[int, ...]) -> None:
    """Peak memory of the whole process tree against the number of samples."""
    noise = np.random.default_rng(0).standard_normal((512, 1, 4000)).astype(np.float32)
    for size in sizes:
        say(f"memory of packing {size} samples")
        target = folder / "memory.stoker"
        with peak_memory() as peak:
            stoker.pack(Constant(noise, size), target)
        shutil.rmtree(target)
        workload = f"{size} samples of [1, 4000] float32"
        report.add(workload, "stoker pack, peak memory of all processes", [peak["num_bytes"] / 1e6], "MB")


def small_files(report: Report, folder: Path, num_files: int) -> None:
    """Many small files and no transform: the packer's own cost a file."""
    workload = f"{num_files} npy files of 1 kB"
    say(workload)
    data, target = folder / "small", folder / "small.stoker"
    for i in range(num_files):
        path = data / f"{i // 1000:03d}" / f"{i:06d}.npy"
        if i % 1000 == 0:
            path.parent.mkdir(parents=True)
        np.save(path, np.full(220, i, np.float32))
    read = seconds_of(lambda: _transform_alone(FolderSource(data), usable_cores(), transform=False))
    with peak_memory() as peak:
        first = seconds_of(lambda: stoker.pack(FolderSource(data), target))
    runs = {
        "again": lambda: seconds_of(lambda: stoker.pack(FolderSource(data), target)),
        "stat": lambda: seconds_of(lambda: _stat_all(data)),
    }
    values = interleave(runs, 5)
    again, stat = values["again"], values["stat"]
    report.add(workload, f"reading alone, {usable_cores()} processes", [num_files / read], "samples/s")
    report.add(workload, "stoker pack", [num_files / first], "samples/s")
    report.add(workload, "stoker pack, peak memory of all processes", [peak["num_bytes"] / 1e6], "MB")
    report.add(workload, "unchanged re-run", [1000 * t for t in again], "ms")
    report.add(workload, "listing and os.stat of every file alone", [1000 * t for t in stat], "ms")
    report.add(workload, "unchanged re-run / first run (budget 0.02)", [t / first for t in again], "share")
    report.add(workload, "listing and os.stat alone / first run", [t / first for t in stat], "share")
    shutil.rmtree(data)
    shutil.rmtree(target)


class Repeated:
    """A source of files, several times over."""

    def __init__(self, source: Any, times: int) -> None:
        self.source = source
        self.times = times

    def __len__(self) -> int:
        return self.times * len(self.source)

    def __getitem__(self, i: int) -> Any:
        return self.source[i % len(self.source)]

    def key(self, i: int) -> str:
        """The file's, and which time it is."""
        return f"{i // len(self.source)}/{self.source.key(i % len(self.source))}"

    def fingerprint(self, i: int) -> Any:
        """The file's."""
        return self.source.fingerprint(i % len(self.source))


class Constant:
    """A large data set out of little memory."""

    def __init__(self, samples: Any, count: int) -> None:
        self.samples = samples
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": self.samples[i % len(self.samples)], "y": i}

    def fingerprint(self, i: int) -> int:
        """Constant: this data never changes."""
        return i


def _stat_all(folder: Path) -> None:
    """The least that any packer does to learn that no file changed."""
    for parent in os.scandir(folder):
        for entry in os.scandir(parent):
            entry.stat()


def _transform_alone(
    source: Any, num_processes: int, *, transform: bool = True, out: Path | None = None
) -> None:
    """Read (and transform, and write) every sample in plain forked processes."""
    context = mp.get_context("fork")
    for old in () if out is None else out.glob("*.raw"):
        old.unlink()  # else it would write into memory that is still warm, as no packer does

    def work(first: int) -> None:
        with open(os.devnull if out is None else out / f"{first}.raw", "wb") as file:  # noqa: PTH123
            for i in range(first, len(source), num_processes):
                sample = source[i]
                if transform:
                    file.write(prepare(sample)["x"])
            if out is not None:
                file.flush()
                os.fsync(file.fileno())

    processes = [context.Process(target=work, args=(n,)) for n in range(num_processes)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _monai_cache(source: Any, folder: Path) -> Callable[[], None] | None:
    """MONAI's cache on disk, filled once by a DataLoader with a worker a core."""
    try:
        from monai.data import PersistentDataset
    except ImportError:
        return None
    from torch.utils.data import DataLoader

    samples = [{"number": i} for i in range(len(source))]

    def fill() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        cached = PersistentDataset(samples, lambda item: prepare(source[item["number"]]), folder)
        for _ in DataLoader(cached, batch_size=64, num_workers=usable_cores()):
            pass

    return fill


def _read_all(path: Path) -> None:
    buffer = bytearray(1 << 22)
    for file in path.rglob("*.h5"):
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass


if __name__ == "__main__":
    main()
