"""Timings from the processes that make batches.

torch's fetchers are patched for as long as the board is installed. Workers that are forked inherit the
patch; for those that are spawned, and to learn the number of each task, the function that a worker runs
is replaced by a picklable one (`_worker_loop.py`). Nothing of the user's DataLoader is touched.

Timings go to a region of shared memory per worker (`_ring.py`), never through the queue that carries the
data; in the main process they go to a list. In a worker, the data set's transforms are replaced by timed
stand-ins for good: the data set there is the worker's own copy. In the main process they are replaced
during each fetch only.
"""

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from stoker.doctor._record import Line, Place
from stoker.doctor.making._core_queue import UNTOLD
from stoker.doctor.making._fetch import UNKNOWN, Probe, observing, patched_fetchers
from stoker.doctor.making._ring import Reader, Row
from stoker.doctor.making._worker_loop import SAMPLE_EVERY_S, WatchedLoop, from_text
from stoker.doctor.sampling import _frames

_MAX_OWN_BATCHES = 65_536  # kept of those that the main process makes


@dataclass(frozen=True)
class MadeBatch:
    """One batch, as the process that made it saw it. Times are of `time.perf_counter_ns`."""

    loader_number: int
    epoch: int
    number: int  # in the epoch: the task's number where workers make batches
    worker: int | None  # None: the main process
    begin_ns: int
    end_ns: int
    fetch_ns: int  # the data set's items, wall time
    fetch_cpu_ns: int  # of the thread that makes them
    collate_ns: int
    collate_cpu_ns: int
    queued_ns: int | None  # of both, ready to run with no core free; None where the system does not tell
    transforms: dict[str, float]  # seconds in the fetch, by name; each without the others inside it
    num_samples: int | None
    num_bytes: int | None


class Board:
    """Where the processes that make batches put their timings."""

    def __init__(self, folder: Path, *, user_root: str) -> None:
        self._folder = folder
        self._user_root = user_root
        self._process = os.getpid()
        self._prepared = threading.local()
        self._own: deque[tuple[tuple[int, ...], list[str], list[int]]] = deque(maxlen=_MAX_OWN_BATCHES)
        self._num_own = 0
        self._read: list[Row] = []
        self._readers: dict[Path, Reader] = {}

    @classmethod
    def create(cls, folder: Path, *, user_root: str = "") -> "Board":
        """A board whose files lie in `folder`, which is made; about 1 MB per worker that lives at once.

        `user_root` is the folder whose source lines count as the user's own in `read_lines`; empty:
        whatever is not installed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, user_root=user_root)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Observe the DataLoaders that are prepared inside. Persistent workers stay observed after."""
        with patched_fetchers(), observing(self), _restored_worker_loop():
            yield

    def prepare(self, dataloader: Any, loader_number: int, epoch: int) -> None:
        """Announce that this thread is about to make an iterator of `dataloader`.

        Call it before each iterator that starts workers or fetches in the main process. Workers that
        persist count further epochs by themselves, from `epoch` on.
        """
        if dataloader.num_workers == 0:
            self._prepared.task = (loader_number, epoch)
        else:
            _replace_worker_loop(
                WatchedLoop(self._folder, loader_number=loader_number, epoch=epoch, user_root=self._user_root)
            )

    def attach(self, fetcher: Any) -> None:
        """Observe a fetcher that was just made in the main process, if its iterator was announced."""
        task, self._prepared.task = getattr(self._prepared, "task", None), None
        if task is None or os.getpid() != self._process:
            return  # not announced, or a process that somebody else forked
        probe = Probe(fetcher, keep_in=False)
        names, (loader_number, epoch) = probe.names, task

        def keep(number: int, figures: tuple[int, ...], transforms: list[int]) -> None:
            self._num_own += 1
            self._own.append(((loader_number, epoch, number, UNKNOWN, *figures), names, transforms))

        probe.keep = keep

    def read(self) -> list[MadeBatch]:
        """All batches that were made so far, by the time they were begun."""
        self.empty_regions()
        own = [
            _made_batch(figures, dict(zip(names, spent, strict=False)))
            for figures, names, spent in self._own.copy()
        ]
        made = [_made_batch(row.figures, row.named) for row in self._read]
        return sorted([*made, *own], key=lambda batch: batch.begin_ns)

    def empty_regions(self) -> None:
        """Take what workers have put down. A region holds 2,048 batches: call it at least that often."""
        for reader in self._open_readers():
            self._read += reader.read()

    @property
    def num_lost(self) -> int:
        """Batches whose timings were overwritten before they were read."""
        own = self._num_own - len(self._own)
        return own + sum(reader.num_lost for reader in self._readers.values())

    def read_lines(self) -> list[Line]:
        """Where the workers' Python stood while they made batches, by falling time."""
        total: dict[tuple[Place, str, str], float] = {}
        for reader in self._open_readers():
            for (file, line, function, callee, span, module), seconds in from_text(
                reader.read_table()
            ).items():
                place = _frames.place_at(file, line, function)
                key = (place, callee or _frames.called_in(file, span), module)
                total[key] = total.get(key, 0.0) + seconds
        lines = [
            Line(
                process="workers",
                stage=None,
                place=place,
                callee=callee,
                module=module,
                in_loop_header=False,
                num_samples=max(1, round(seconds / SAMPLE_EVERY_S)),
                seconds=seconds,
            )
            for (place, callee, module), seconds in total.items()
        ]
        return sorted(lines, key=lambda line: -line.seconds)

    def close(self) -> None:
        """Let go of the regions. The files stay; whoever made the folder removes it."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open_readers(self) -> list[Reader]:
        for path in sorted(self._folder.glob("*.ring")):
            if path not in self._readers:
                reader = _try_open(path)
                if reader is not None:
                    self._readers[path] = reader
        return list(self._readers.values())


def _made_batch(figures: tuple[int, ...], named: dict[str, int]) -> MadeBatch:
    loader, epoch, number, worker, begin, end, *times, samples, size = figures
    fetch, fetch_cpu, collate, collate_cpu, queued = times
    return MadeBatch(
        loader_number=loader,
        epoch=epoch,
        number=number,
        worker=None if worker == UNKNOWN else worker,
        begin_ns=begin,
        end_ns=end,
        fetch_ns=fetch,
        fetch_cpu_ns=fetch_cpu,
        collate_ns=collate,
        collate_cpu_ns=collate_cpu,
        queued_ns=None if queued == UNTOLD else queued,
        transforms={name: spent / 1e9 for name, spent in named.items()},
        num_samples=None if samples == UNKNOWN else samples,
        num_bytes=size,
    )


@contextmanager
def _restored_worker_loop() -> Iterator[None]:
    from torch.utils.data._utils import worker

    original = worker._worker_loop  # noqa: SLF001
    try:
        yield
    finally:
        worker._worker_loop = original  # noqa: SLF001


def _replace_worker_loop(watched: WatchedLoop) -> None:
    """Give the workers that start next another function to run."""
    from torch.utils.data._utils import worker

    module: Any = worker
    current = module._worker_loop  # noqa: SLF001
    watched.worker_loop = current.worker_loop if isinstance(current, WatchedLoop) else current
    module._worker_loop = watched  # noqa: SLF001


def _try_open(path: Path) -> Reader | None:
    """None where a worker has made the file but not yet allocated it."""
    try:
        return Reader(path)
    except ValueError:
        return None
