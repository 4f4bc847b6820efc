"""How fast is augmentation, against loops over samples and against other libraries?

    python benchmarks/augmenting.py [--install] [--quick] [--only policy,images] [--threads 2]

Every augmenter runs in a process of its own, gets the same data, and makes batches of one task when
asked, so that all of them alternate. A figure is the mean time of a batch over at least 0.1 s, and a
batch is complete: a tensor of all samples, with new random parameters each time. Torch has the same
number of threads everywhere; NumPy, SciPy and Pillow use one, or two processes where that is said.

A row "x times as fast as" divides two figures of the same repetition. What is equal to what, and by
which ranges, is in ``peers/augment_tasks.py`` and in the peers' files. ``--install`` first makes the
environment of the libraries that are not in ours.
"""

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from measuring import Report, interleave, misses, say
from peers import augment_tasks
from peers.augment_tasks import CHANNEL_TASKS, IMAGE_TASKS, POLICY, SIGNAL_TASKS, VOLUME_TASKS
from peers.driving import ENVIRONMENTS, Peers, System

STOKER = System("Stoker", "augment_stoker", ())
LOOP = System("torch, loop over samples", "augment_torch_loop", ())
NUMPY = System("NumPy/SciPy per sample", "augment_numpy", ())
PIL = System("Pillow per sample", "augment_pil", ())
MONAI = System("MONAI per sample", "augment_monai", ())
KORNIA = System("kornia's classes", "augment_kornia", (), "augment")
AUDIO = System("audiomentations", "augment_audiomentations", (), "augment")
TORCH_AUDIO = System("torch-audiomentations", "augment_torch_audiomentations", (), "augment")

SCIPY_TASKS = ("LowPass", "HighPass", "BandPass", "BandStop", "Resample")  # sosfiltfilt, resample

# What pip is told, one call each. A pinned torch lets pip take a CPU build where it is offered one;
# torch-audiomentations asks for torchaudio, which would bring a torch with CUDA, and works without.
_PACKAGES = (
    ("torch==2.13.0", "numpy", "scipy"),
    ("kornia==0.9.0", "audiomentations==0.43.1", "julius==0.2.8", "packaging", "primePy==1.3"),
    ("--no-deps", "torch-audiomentations==0.12.0", "torch-pitch-shift==1.2.5"),
)


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    repetitions: int = 5
    seconds: float = 0.1  # for one figure, at least
    signals: tuple[tuple[int, int, int], ...] = ((64, 1, 4000), (256, 16, 2000))
    images: tuple[int, int] = (16, 512)  # how many, of which edge
    volumes: tuple[tuple[int, int], ...] = ((8, 64), (2, 128))


QUICK = Sizes(2, 0.02, ((64, 1, 4000), (32, 16, 2000)), (4, 128), ((2, 32),))


@dataclass(frozen=True)
class Entry:
    """Who is asked for what, and by which factor Stoker is meant to be faster."""

    label: str
    system: System
    task: str
    budget: float | None = None


@dataclass(frozen=True)
class Bench:
    """What every section needs."""

    report: Report
    folder: Path
    sizes: Sizes
    peers: Peers
    threads: str

    def prepare(self, name: str, write: Callable[[Path], None], systems: Sequence[System]) -> None:
        """Have these systems ready on the data that `write` makes, if it is not there yet."""
        folder = self.folder / name
        if not folder.exists():
            write(folder)
        self.peers.prepare(systems, folder)
        self.check_stoker()
        for system in systems:
            if system in self.peers.missing:
                self.report.add_missing(name, system.name)
            elif system.environment is not None:
                self.report.versions_elsewhere[system.name] = self.peers.version(system)

    def prepare_signals(self, shape: tuple[int, int, int], systems: Sequence[System]) -> None:
        """The same, on signals [B, C, T]; names of folders have no spaces, which g++ would mind."""
        write = partial(augment_tasks.write_signals, shape=shape)
        self.prepare("signals-" + "x".join(map(str, shape)), write, systems)

    def ask(self, entry: Entry, request: Mapping[str, object]) -> float:
        """The answer, which is not a number where the system is missing or has no equal task."""
        answer = self.peers.ask(entry.system, entry.task, request)
        self.check_stoker()
        return answer

    def check_stoker(self) -> None:
        """End the benchmark if Stoker fails: a peer may be missing, what is measured may not."""
        if STOKER in self.peers.missing:
            for log in self.folder.glob(f"*/{STOKER.module}.log"):
                print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
            raise SystemExit(f"Stoker cannot be measured: {self.peers.missing[STOKER]}")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--install", action="store_true", help="make the peers' environment, and end")
    parser.add_argument("--quick", action="store_true", help="small data, to try the benchmark")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, of: %(default)s")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of torch")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(SECTIONS):
        parser.error(f"no section {sorted(unknown)}; there are {', '.join(SECTIONS)}")
    if options.install:
        install()
        return
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(ENVIRONMENTS / "inductor"))  # compiling takes long
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(options.threads)  # of the peers
    folder = Path(tempfile.mkdtemp(prefix="stoker-augmenting-"))
    peers = Peers(reuse=True)
    report = Report("augmenting", ("torch", "numpy", "scipy", "numba", "pillow", "monai"))
    threads = f"{options.threads} thread" + "s" * (options.threads > 1)
    bench = Bench(report, folder, QUICK if options.quick else Sizes(), peers, threads)
    try:
        for name in chosen:
            say(name)
            SECTIONS[name](bench)
    finally:
        peers.close()
        shutil.rmtree(folder)
    report.write()
    for row in report.rows:
        if misses(row):
            say(f"misses its budget: {row.workload}: {row.system} is {row.value:.2f}")


def policy(bench: Bench) -> None:
    """The six transforms for heart sounds, in every way that Stoker has."""
    for shape in bench.sizes.signals:
        systems = (STOKER, LOOP, NUMPY)
        bench.prepare_signals(shape, systems)
        title = f"six transforms of {list(shape)}, {bench.threads}"
        ways = ("eager", "static", "compiled")
        mine = [Entry(f"Stoker, {way}", STOKER, f"{POLICY}, {way}") for way in ways]
        others = [
            Entry(LOOP.name, LOOP, POLICY, 3),
            Entry(f"{NUMPY.name}, np.interp", NUMPY, POLICY, 25),
            Entry(f"{NUMPY.name}, scipy.signal.resample", NUMPY, f"{POLICY}, scipy.signal.resample", 25),
            Entry(f"{NUMPY.name}, in 2 workers of a DataLoader", NUMPY, f"{POLICY}, 2 workers"),
        ]
        compare(bench, title, mine, others)
        for entry, aim in ((mine[0], " (budget 0)"), (mine[1], " (budget 0)"), (others[0], "")):
            syncs = count(bench, title, entry)
            bench.report.add(title, f"{entry.label}, host syncs{aim}", [syncs], "syncs")


def signals(bench: Bench) -> None:
    """Every transform of signals alone, on all samples."""
    for shape, tasks in zip(bench.sizes.signals, (SIGNAL_TASKS, CHANNEL_TASKS), strict=True):
        systems = (STOKER, NUMPY, AUDIO, TORCH_AUDIO)
        bench.prepare_signals(shape, systems)
        singles(bench, f"of {list(shape)}", tasks, systems)


def images(bench: Bench) -> None:
    """The policy and every transform alone, of uint8 images with masks."""
    num_images, edge = bench.sizes.images
    systems = (STOKER, PIL, KORNIA)
    write = partial(augment_tasks.write_images, num_images=num_images, edge=edge)
    title = f"of {num_images} images {edge}² + masks"
    bench.prepare("images", write, systems)
    singles(bench, title, (POLICY, *IMAGE_TASKS), systems)


def volumes(bench: Bench) -> None:
    """The policy and every transform alone, of volumes with masks."""
    for num_volumes, edge in bench.sizes.volumes:
        write = partial(augment_tasks.write_volumes, num_volumes=num_volumes, edge=edge)
        title = f"of {num_volumes} volumes {edge}³ + masks"
        bench.prepare(f"volumes-{edge}", write, (STOKER, MONAI))
        singles(bench, title, (POLICY, *VOLUME_TASKS), (STOKER, MONAI))


def gpu(bench: Bench) -> None:
    """The six transforms on a GPU, with the time until it is done."""
    import torch

    shape = bench.sizes.signals[-1]
    title = f"six transforms of {list(shape)} on a GPU"
    if not torch.cuda.is_available():
        bench.report.add_missing(title, "Stoker, skipped: this machine has no CUDA device")
        return
    bench.prepare_signals(shape, (STOKER, LOOP))
    mine = Entry("Stoker, eager", STOKER, f"{POLICY}, eager on the GPU")
    compare(bench, title, [mine], [Entry(LOOP.name, LOOP, f"{POLICY}, on the GPU", 3)])


SECTIONS: dict[str, Callable[[Bench], None]] = {
    section.__name__: section for section in (policy, signals, images, volumes, gpu)
}


def singles(bench: Bench, where: str, tasks: Sequence[str], systems: Sequence[System]) -> None:
    """Each task in turn, by all systems that have it; and what Stoker dispatches for it."""
    syncs: list[float] = []
    for task in tasks:
        title = f"{task} {where}, {bench.threads}"
        mine = Entry(STOKER.name, STOKER, task)
        if math.isnan(bench.ask(mine, {"seconds": 0})):
            bench.report.add_missing(title, "Stoker, which does not have it yet")
            continue
        # NumPy alone is no library of augmentations: where it is quicker it shows, but there is no aim
        aims = {NUMPY: 2.0 if task in SCIPY_TASKS else None}
        others = [Entry(system.name, system, task, aims.get(system, 2.0)) for system in systems[1:]]
        compare(bench, title, [mine], others)
        syncs.append(count(bench, title, mine))
    if syncs:
        bench.report.add(f"all single ones {where}", "Stoker, host syncs (budget 0)", [sum(syncs)], "syncs")


def compare(bench: Bench, title: str, mine: Sequence[Entry], others: Sequence[Entry]) -> None:
    """Ms a batch of all entries that can be had, and by which factor each of mine is faster."""
    request = {"seconds": bench.sizes.seconds}
    runs = {entry.label: partial(bench.ask, entry, request) for entry in (*mine, *others)}
    runs = {label: run for label, run in runs.items() if not math.isnan(run())}  # which warms it up
    values = interleave(runs, bench.sizes.repetitions)
    for label, found in values.items():
        bench.report.add(title, label, found, "ms")
    for other in others:
        for entry in mine:
            if entry.label not in values or other.label not in values:
                continue
            pairs = zip(values[other.label], values[entry.label], strict=True)
            aim = "" if other.budget is None else f" (budget {other.budget:g})"
            label = f"{entry.label}, times as fast as {other.label}{aim}"
            bench.report.add(title, label, [theirs / ours for theirs, ours in pairs], "ratio")


def count(bench: Bench, title: str, entry: Entry) -> float:
    """Report the torch operators of one batch; gives how many make the host wait for the device."""
    operators = bench.ask(entry, {"count": "operators"})
    bench.report.add(title, f"{entry.label}, dispatched", [operators], "operators")
    return bench.ask(entry, {"count": "syncs"})


def install() -> None:
    """Make the environment of the libraries that cannot share ours."""
    folder = ENVIRONMENTS / "augment"
    if not (folder / "bin" / "python").exists():
        say(f"making {folder}")
        venv.create(folder, with_pip=True, symlinks=True)
    for packages in _PACKAGES:
        say(f"pip install {' '.join(packages)}")
        command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages]
        if subprocess.run(command, check=False).returncode:
            say("pip failed; what needs it will be reported as missing")
            break


if __name__ == "__main__":
    main()
