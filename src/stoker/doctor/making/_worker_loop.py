"""What runs in a DataLoader's worker around torch's own loop.

If our own preparation fails (no disk space), the worker runs unobserved.
"""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.doctor.making._fetch import Probe, observing, patched_fetchers
from stoker.doctor.making._ring import Writer
from stoker.doctor.sampling._sampler import Site, StackSampler

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE_EVERY_S = 0.01
_FIRST_TABLE_AFTER_S = 0.2
_TABLE_EVERY_S = 2.0
_MAX_TABLE_LINES = 200


class WatchedLoop:
    """What a worker runs instead of torch's `_worker_loop`: prepares the worker, then calls that.

    Picklable, so that spawned workers get it like any other target. `worker_loop` is torch's own, where
    the worker is forked; a spawned one finds it under its name, unpatched.
    """

    def __init__(self, folder: Path, *, loader_number: int, epoch: int, user_root: str) -> None:
        self._folder = folder
        self._loader_number = loader_number
        self._epoch = epoch
        self._user_root = user_root
        self.worker_loop: Callable[..., None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "worker_loop": None}

    def __call__(self, *args: Any) -> None:
        from torch.utils.data._utils import worker

        worker_loop = self.worker_loop or worker._worker_loop  # noqa: SLF001 - there is no public way in
        try:
            names = worker_loop.__code__.co_varnames
            queue_at, id_at = names.index("index_queue"), names.index("worker_id")
            region = Writer.claim(self._folder, f"loader{self._loader_number}-worker{args[id_at]}")
        except (OSError, AttributeError, ValueError):
            worker_loop(*args)
            return
        observer = _Worker(region, loader_number=self._loader_number, epoch=self._epoch, worker=args[id_at])
        watched = list(args)
        watched[queue_at] = _Tasks(args[queue_at], observer)
        sampler = StackSampler(
            interval_s=SAMPLE_EVERY_S,
            stage=lambda: None,
            user_root=self._user_root,
            process="workers",
            is_active=observer.is_fetching,
            below=WatchedLoop.__call__.__code__,
        )
        observer.table = _Table(region, sampler)
        try:
            with patched_fetchers(), observing(observer):
                sampler.start()
                worker_loop(*watched)
        finally:
            sampler.stop_looking()
            observer.table.write()
            region.close()


class _Worker:
    """The observer inside a worker."""

    def __init__(self, region: Writer, *, loader_number: int, epoch: int, worker: int) -> None:
        self._region = region
        self._loader_number = loader_number
        self._epoch = epoch - 1  # each fetcher begins an epoch: also that of a worker which persists
        self._worker = worker
        self._probe: Probe | None = None
        self.table: _Table | None = None
        self.number = 0  # of the task that was last taken from the queue

    def is_fetching(self) -> bool:
        return self._probe is not None and self._probe.is_fetching

    def attach(self, fetcher: Any) -> None:
        if self.is_fetching():
            return  # a loader inside the data set
        self._epoch += 1
        if self._probe is not None:
            self._probe.take_out()
        self._probe = probe = Probe(fetcher, keep_in=True)
        slots = [self._region.slot(name) for name in probe.names]
        in_order = slots == list(range(len(slots)))  # else the region has other names, or too many

        def keep(_: int, figures: tuple[int, ...], transforms: list[int]) -> None:
            named = transforms
            if not in_order:
                named = [0] * (max(slots) + 1)
                for slot, spent in zip(slots, transforms, strict=False):
                    named[slot] += spent
            self._region.write((self._loader_number, self._epoch, self.number, self._worker, *figures), named)
            if self.table is not None:
                self.table.write_if_due()

        probe.keep = keep


class _Tasks:
    """A worker's queue of tasks, which notes the number of the one that was taken last."""

    def __init__(self, queue: Any, worker: _Worker) -> None:
        self._queue = queue
        self._worker = worker

    def get(self, *args: Any, **kwargs: Any) -> Any:
        task = self._queue.get(*args, **kwargs)
        if type(task) is tuple:
            self._worker.number = task[0]
        return task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _Table:
    """Puts the lines that were sampled into the region: at the end of a batch, now and then, and last.

    The region's former writer was this loader's worker of an epoch before: its lines are added to.
    """

    def __init__(self, region: Writer, sampler: StackSampler) -> None:
        self._region = region
        self._sampler = sampler
        self._before = from_text(region.read_table())
        self._pause_s = _FIRST_TABLE_AFTER_S
        self._due = time.monotonic() + self._pause_s

    def write_if_due(self) -> None:
        if time.monotonic() > self._due:
            self.write()
            self._pause_s = min(self._pause_s * 2, _TABLE_EVERY_S)
            self._due = time.monotonic() + self._pause_s

    def write(self) -> None:
        total = self._before.copy()
        for site, seconds in self._sampler.sites().items():
            total[site] = total.get(site, 0.0) + seconds
        self._region.write_table(to_text(total))


def to_text(total: dict[Site, float]) -> bytes:
    longest = sorted(total.items(), key=lambda row: -row[1])[:_MAX_TABLE_LINES]
    return json.dumps([[*site, seconds] for site, seconds in longest]).encode()


def from_text(text: bytes) -> dict[Site, float]:
    return {
        (file, line, function, callee, tuple(span), module): seconds
        for file, line, function, callee, span, module, seconds in json.loads(text or b"[]")
    }
