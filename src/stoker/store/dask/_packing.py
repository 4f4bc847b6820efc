"""Packing on a Dask cluster, the third way beside this process and processes of this machine.

The client plans, holds the lock and publishes the store; workers read, transform and publish shards into the
folder, which all of them share. Only numbers travel. Few tasks are under way at any time, so that a million
samples need no more memory, here, on the scheduler or on a worker, than a thousand.
"""

import contextlib
import dataclasses
import itertools
import logging
import math
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from typing import Any

from stoker.errors import WorkerDiedError
from stoker.store._manifest import shard_path
from stoker.store._publish import our_files
from stoker.store._samples import FieldType
from stoker.store._workers import Done, Job, NewShard, Work
from stoker.store.dask._cluster import Cluster, Scheduler, connected
from stoker.store.dask._job import seal
from stoker.store.dask._ranges import Range, Ranges
from stoker.store.dask._tasks import Lease, Result, forget, join, leased, pack_range, probe

_TASKS_PER_THREAD = 3  # one at the disk, one that runs, one that waits: no thread waits for the client
_NUM_PROBED = 32  # samples looked at for one that can be packed
_POLL_S = 0.02
_FETCH_S = 5.0  # a result, which is small
_COUNT_EVERY_S = 2.0
_WARN_AFTER_S = 10.0

logger = logging.getLogger("stoker")


@contextlib.contextmanager
def run_on_dask(
    job: Job,
    work: Work,
    types: Mapping[str, FieldType] | None,
    *,
    scheduler: Scheduler,
    batch_size: int | None,
) -> Iterator[Iterator[Done]]:
    """Do the work on a Dask cluster; gives what each task brought, in no particular order.

    Where all samples have one size and none is skipped, the shards are those of packing in one process.
    Left early (an exception, Ctrl-C), it cancels what has not begun; what runs ends and publishes nothing.

    Raises:
        UsageError: source or transform cannot travel, no scheduler answers, or a worker cannot do the job.
        WorkerDiedError: the same samples ended several workers, or the scheduler is gone.
    """
    ranges = Ranges(len(work), shard_bytes=job.shard_bytes, batch_size=batch_size)
    # by size alone and never by time, so that a task run twice gives the same file; samples of unequal size
    # may fill a cell's shard by a quarter more than expected before they make another
    sent = dataclasses.replace(
        job, root=job.root.absolute(), shard_bytes=job.shard_bytes * 5 // 4, flush_s=math.inf
    )
    sealed = seal(sent)
    with connected(scheduler) as cluster, leased(sent.root, sealed) as lease:
        packing = _Packing(cluster, sent, lease, work, types, ranges)
        try:
            yield packing.run()
        finally:
            packing.close()


@dataclasses.dataclass
class _Task:
    """A task under way, and how to ask for it again."""

    function: Any
    arguments: tuple[Any, ...]
    samples: str  # for messages
    range: Range | None = None
    pieces: list[NewShard] = dataclasses.field(default_factory=list)
    alone: bool = False  # nothing else is under way beside it: deaths are its own


class _Packing:
    """The tasks of one run."""

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        lease: Lease,
        work: Work,
        types: Mapping[str, FieldType] | None,
        ranges: Ranges,
    ) -> None:
        from distributed import as_completed

        self._client = cluster.client
        self._restore = cluster.restore
        self._job = job
        self._lease = lease
        self._work = work
        self._types = types
        self._ranges = ranges
        self._completed = as_completed(loop=cluster.client.loop)
        self._tasks: dict[Any, _Task] = {}  # by future
        self._suspects: list[_Task] = []  # workers died of them, or of what was under way beside them
        self._cells: dict[int, dict[int, list[NewShard]]] = {}  # cell -> start of a piece -> its shards
        self._name = f"stoker-{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count()
        self._before = {path.stem for path in our_files(job.root)}  # never to be removed here
        self._num_threads = 0
        self._counted = -math.inf
        self._warned = self._seen_workers = time.monotonic()

    def run(self) -> Iterator[Done]:
        """Keep the cluster busy until all is done."""
        head = self._work.slice(0, _NUM_PROBED)
        self._submit(_Task(probe, (head, self._types), self._span(0, len(head)), alone=True))
        for _, result in self._results():
            self._learn(result, num_packed=result.done.num_samples)
        self._fill()
        for task, result in self._results():
            done = result.done
            if task.range is None:
                self._remove_joined(task.pieces, done)
            else:
                self._learn(result, num_packed=sum(len(new.samples) for new in done.shards))
                self._hold_pieces(task.range, done)
            self._fill()
            yield done
        with contextlib.suppress(OSError):
            self._client.run(forget, self._lease, on_error="ignore")

    def close(self) -> None:
        """Cancel what has not begun."""
        self._lease.path.unlink(missing_ok=True)  # what runs sees that and ends
        futures, self._tasks = list(self._tasks), {}
        with contextlib.suppress(Exception):  # the scheduler may be what has failed
            if futures:
                self._client.cancel(futures)

    def _fill(self) -> None:
        """As many tasks as keep every thread busy."""
        self._count_threads()
        while len(self._tasks) < _TASKS_PER_THREAD * max(1, self._num_threads):
            piece = self._ranges.take(self._num_threads)
            if piece is None:
                break
            part = self._work.slice(piece.start, piece.stop)
            samples = self._span(piece.start, piece.stop)
            self._submit(_Task(pack_range, (part, self._types, piece.cell_size), samples, range=piece))
        if not self._tasks and self._suspects:
            self._submit(dataclasses.replace(self._suspects.pop(), alone=True))

    def _hold_pieces(self, piece: Range, done: Done) -> None:
        """Take back the shards of a piece until the cell is whole and they are joined."""
        if piece.num_pieces == 1:
            return
        cell = self._cells.setdefault(piece.cell, {})
        cell[piece.start], done.shards = done.shards, []
        if len(cell) < piece.num_pieces:
            return
        shards = [new for start in sorted(cell) for new in cell[start]]
        del self._cells[piece.cell]
        if len(shards) > 1:
            self._submit(_Task(join, (shards,), f"{len(shards)} shards", pieces=shards))
        else:
            done.shards = shards

    def _remove_joined(self, pieces: list[NewShard], done: Done) -> None:
        """Remove the pieces of a cell, but no file that a store might name."""
        kept = self._before | {new.entry.digest for new in done.shards}
        for piece in pieces:
            if piece.entry.digest not in kept:
                shard_path(self._job.root, piece.entry.digest).unlink(missing_ok=True)

    def _learn(self, result: Result, *, num_packed: int) -> None:
        done = result.done
        self._types = self._types if done.types is None else done.types
        self._ranges.learn(
            num_packed=num_packed,
            num_bytes=done.num_bytes,
            num_samples=done.num_samples,
            seconds=result.seconds,
        )

    def _submit(self, task: _Task) -> None:
        try:
            future = self._client.submit(
                task.function,
                self._lease,
                *task.arguments,
                key=f"{self._name}-{next(self._numbers)}",
                pure=False,
            )
        except Exception as error:  # a client that has lost its scheduler raises several kinds
            raise self._lost(error) from error
        self._tasks[future] = task
        self._completed.add(future)

    def _results(self) -> Iterator[tuple[_Task, Result]]:
        """Each task that ends, with what it brought, until none is left."""
        while self._tasks:
            self._wait()
            for future in self._completed.next_batch(block=True):
                try:
                    result = future.result(timeout=_FETCH_S)
                except TimeoutError:  # its worker died with the result: Dask makes it again
                    self._completed.add(future)
                    continue
                except (Exception, CancelledError) as error:  # noqa: BLE001 - whatever Dask raises
                    self._failed(self._tasks.pop(future), error)
                    self._fill()
                    continue
                task = self._tasks.pop(future)
                if result.error is not None:
                    result.error.add_note(result.trace)
                    raise result.error
                yield task, result

    def _failed(self, task: _Task, error: BaseException) -> None:
        """A task that Dask gave up: after several deaths it is tried once more, with nothing beside it."""
        from distributed import KilledWorker

        if isinstance(error, CancelledError | OSError):  # tasks give their own errors as values
            raise self._lost(error) from error
        if not isinstance(error, KilledWorker):
            raise WorkerDiedError(
                f"a Dask worker could not run a task: {error!r}; has it stoker installed?"
            ) from error
        if task.alone:
            raise WorkerDiedError(
                f"{task.samples} ended every worker that packed them: out of memory (a thread needs about "
                f"three times the {self._job.shard_bytes / 1e6:.0f} MB of a shard), or a crash in the source "
                "or the transform; finished shards are kept"
            ) from error
        logger.warning("workers died while they packed %s; tried again at the end", task.samples)
        self._suspects.append(task)

    def _wait(self) -> None:
        while not self._completed.has_ready():
            time.sleep(_POLL_S)
            self._count_threads()

    def _count_threads(self) -> None:
        """Workers come and go; where there is none, the user should know what is waited for."""
        now = time.monotonic()
        if now - self._counted < _COUNT_EVERY_S:
            return
        self._counted = now
        try:
            self._num_threads = sum(self._client.nthreads().values())
        except Exception as error:
            raise self._lost(error) from error
        self._restore(self._num_threads)
        if self._num_threads:
            self._seen_workers = now
        elif now - max(self._seen_workers, self._warned) > _WARN_AFTER_S:
            self._warned = now
            logger.warning(
                "the Dask cluster has no worker; waiting for one (Ctrl-C ends; the next run goes on)"
            )

    def _lost(self, error: object) -> WorkerDiedError:
        return WorkerDiedError(
            f"the Dask scheduler is gone, or dropped what it was asked for ({error!r}); "
            "run again: finished shards are kept"
        )

    def _span(self, start: int, stop: int) -> str:
        first, last = (self._job.feed.key(int(self._work.samples[i])) for i in (start, stop - 1))
        return f"samples {first!r} to {last!r}"
