"""What runs on a Dask worker: a range of samples becomes shards, the pieces of a cell become one.

A task is a function of its range alone: run twice (Dask does that when a worker dies, or only seems to), it
publishes the same bytes under the same name. It publishes only while the run that asked for it is under way.
"""

import contextlib
import hashlib
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from distributed import secede

from stoker.errors import (
    BadSampleError,
    DamagedStoreError,
    StokerError,
    StoreBusyError,
    UsageError,
    WorkerDiedError,
)
from stoker.store._durable import TEMPORARY_PREFIX, write_file
from stoker.store._layout import digest, map_file
from stoker.store._manifest import shard_path
from stoker.store._samples import FieldType
from stoker.store._shard import Shard
from stoker.store._shard_builder import ShardBuilder
from stoker.store._workers import Done, Job, NewShard, Work, Worker
from stoker.store.dask._job import unseal
from stoker.store.dask._memory import give_memory_back, keep_freed_memory

_LOOK_EVERY_S = 1.0  # for the end of the run, while a task is busy
_PROBED = 3  # samples that are enough to tell size and cost

_free: list["_Bench"] = []  # those that no task works at; a source need not bear two threads
_taking = threading.Lock()

Types = Mapping[str, FieldType] | None


@dataclass(frozen=True)
class Lease:
    """A file in the store's folder that holds the job while its run is under way, and no longer.

    A worker that cannot find it does not share the folder, or works for a run that has ended.
    """

    path: Path
    digest: str

    def check(self) -> None:
        """Raise unless the run is still under way."""
        if not self.path.exists():
            raise StoreBusyError(f"the run that packed {self.path.parent} has ended")


@contextlib.contextmanager
def leased(root: Path, sealed: bytes) -> Iterator[Lease]:
    """Lay the job into the folder; the next run removes it, should this process be killed."""
    content = hashlib.sha256(sealed).hexdigest()
    lease = Lease(root / f"{TEMPORARY_PREFIX}{os.urandom(8).hex()}-job", content)
    write_file(lease.path, [sealed])
    try:
        yield lease
    finally:
        lease.path.unlink(missing_ok=True)


@dataclass
class Result:
    """What a task brought, or what it failed with: as a value, for not every error can travel."""

    done: Done = field(default_factory=Done)
    seconds: float = 0.0
    error: StokerError | None = None
    trace: str = ""


def probe(lease: Lease, work: Work, types: Types) -> Result:
    """Read some samples and publish nothing: the first tells all tasks which fields to expect."""
    return _told(lease, lambda bench: _probe(bench.job, work, types))


def pack_range(lease: Lease, work: Work, types: Types, cell_size: int) -> Result:
    """Pack the samples and publish each so many; of a range with a bad sample, what comes before it."""
    return _told(lease, lambda bench: _pack_range(bench.worker, work, types, cell_size))


def join(lease: Lease, pieces: list[NewShard]) -> Result:
    """Publish the samples of some shards as one, or as few as their size allows."""
    return _told(lease, lambda bench: _join(lease, bench.job, pieces))


def forget(lease: Lease) -> None:
    """Let go of the job: a worker may live on for long."""
    with _taking:
        _free[:] = [bench for bench in _free if bench.lease != lease]
    give_memory_back()


def _told(lease: Lease, task: Callable[["_Bench"], Done]) -> Result:
    """What the task brings and how long it takes, or its error.

    While its last shard waits for the disk, the next task may begin, at the same bench.
    """
    try:
        with _bench(lease) as bench:
            started = time.monotonic()
            done = task(bench)
            seconds = time.monotonic() - started
            publishing = bench.worker.hand_over()
        if publishing is not None:
            secede()
            done.shards.append(publishing.result())
    except Exception as error:  # noqa: BLE001 - the client raises it
        trace = "".join(traceback.format_exception(error))
        known = error if isinstance(error, StokerError) else WorkerDiedError(f"a worker failed: {error!r}")
        known.__cause__ = known.__context__ = None  # may not be picklable; their text is in the trace
        return Result(error=known.with_traceback(None), trace=trace)
    return Result(done, seconds)


def _probe(job: Job, work: Work, types: Types) -> Done:
    worker = Worker(job, types)
    total = Done()
    for position in range(len(work)):
        done = worker.pack(work.slice(position, position + 1))
        total.num_bytes += done.num_bytes
        total.num_samples += done.num_bytes > 0
        total.types = done.types
        if total.num_samples == _PROBED:
            break
    return total


def _pack_range(worker: "_LeasedWorker", work: Work, types: Types, cell_size: int) -> Done:
    worker.begin(types)
    total = Done()
    for start in range(0, len(work), cell_size):
        try:
            done = worker.pack(work.slice(start, start + cell_size), worker.look)
        except BadSampleError:
            with contextlib.suppress(StokerError):
                worker.flush(Done())  # the next run finds it
            raise
        worker.publish(done)
        total.add(done)
    return total


def _join(lease: Lease, job: Job, pieces: list[NewShard]) -> Done:
    done, joining = Done(), list[NewShard]()
    builder: ShardBuilder | None = None

    def publish() -> None:
        if builder is not None:
            lease.check()
            entry = builder.publish(job.root, job.transform, job.compression)
            samples = np.concatenate([piece.samples for piece in joining])
            done.shards.append(NewShard(entry, samples, builder.fingerprints))
            joining.clear()

    for piece in pieces:
        shard = _checked(job.root, piece)
        if builder is not None and builder.num_bytes + shard.value_bytes > job.shard_bytes:
            publish()
            builder = None
        if builder is None:
            types = {spec.name: spec.type for spec in shard.meta.fields}
            builder = ShardBuilder(types, job.channel_axis)
        builder.extend(shard)
        joining.append(piece)
    publish()
    return done


@dataclass(frozen=True)
class _Bench:
    """What is kept from task to task of a run: the job, and a packer with room for a shard."""

    lease: Lease
    job: Job
    worker: "_LeasedWorker"


@contextlib.contextmanager
def _bench(lease: Lease) -> Iterator[_Bench]:
    """One that is free, or a new one: as many as tasks work at once, each of which reads the job."""
    with _taking:
        _free[:] = [bench for bench in _free if bench.lease == lease]  # what another run left is gone
        bench = _free.pop() if _free else None
    if bench is None:
        keep_freed_memory()
        job = _job_of(lease)
        bench = _Bench(lease, job, _LeasedWorker(lease, job))
    try:
        yield bench
    finally:
        with _taking:
            _free.append(bench)


def _job_of(lease: Lease) -> Job:
    try:
        sealed = lease.path.read_bytes()
    except OSError as error:
        root, host = lease.path.parent, socket.gethostname()
        raise UsageError(
            f"the worker on {host} does not see {root} as this process does ({error.strerror}): a store "
            "that many machines pack lies in a folder that all of them share, under one path"
        ) from error
    if hashlib.sha256(sealed).hexdigest() != lease.digest:
        raise DamagedStoreError(f"{lease.path} does not hold the job that was written there")
    return unseal(sealed)


class _LeasedWorker(Worker):
    """Stops when the run has ended, and publishes nothing after that."""

    def __init__(self, lease: Lease, job: Job) -> None:
        super().__init__(job, None)
        self._lease = lease
        self._looked = time.monotonic()

    def begin(self, types: Types) -> None:
        """A new task: nothing of the last one, should it have failed, is in its shards."""
        self.types = types
        with contextlib.suppress(StokerError):
            self._settle(Done())
        self.forget()

    def look(self) -> bool:
        """Raise if the run has ended; asked before each sample, looks from time to time."""
        if time.monotonic() - self._looked > _LOOK_EVERY_S:
            self._lease.check()
            self._looked = time.monotonic()
        return False

    def publish(self, done: Done) -> None:
        """Write what was collected, if the run is still under way."""
        self._lease.check()
        super().publish(done)


def _checked(root: Path, piece: NewShard) -> Shard:
    entry = piece.entry
    path = shard_path(root, entry.digest)
    if digest(map_file(path, entry.num_bytes).data) != entry.digest:
        raise DamagedStoreError(f"{path} is not what was written there; run again")
    return Shard(root, entry)
