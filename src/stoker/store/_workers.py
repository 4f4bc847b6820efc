"""Packing processes: each reads, transforms and collects samples, and publishes its own shards.

Only numbers travel between processes: which samples to do, which were done, which shards appeared.
A worker dies with its parent and leaves at most one shard that is written but not in its place, which nobody
sees.
"""

import contextlib
import ctypes
import multiprocessing as mp
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import BadSampleError, StokerError, UsageError, WorkerDiedError
from stoker.store._codec import Compression
from stoker.store._durable import Aside
from stoker.store._feed import Feed
from stoker.store._manifest import FileEntry
from stoker.store._samples import FieldType, Sample, check_types, field_types
from stoker.store._shard_builder import ShardBuilder
from stoker.store._worker_process import die_with, one_thread

_FLUSH_S = 30.0  # a slow transform loses at most this much work to a kill, and what waits for the disk
_BATCH_S = 0.2  # how long a worker is busy with one batch: short tails, little traffic
_MAX_BATCH = 1024
_MAX_COMPRESSED_BYTES = 1 << 31


@dataclass(frozen=True)
class AskedField:
    """A field that the caller named for some option; the first sample tells whether there is one."""

    option: str
    name: str
    axis: int | None

    def check(self, types: Mapping[str, FieldType]) -> None:
        """Raise UsageError unless the samples have such a field."""
        kind = types.get(self.name)
        if self.option != "channel_axis":
            if kind is None or kind.ndim:
                usable = sorted(name for name, kind in types.items() if kind.ndim == 0)
                hint = "" if usable else "; labels='folder' (--labels folder) makes one of sub-folders' names"
                raise UsageError(
                    f"{self.option} needs a scalar or text field, got {self.name!r}; there are {usable}{hint}"
                )
        elif kind is None:
            raise UsageError(f"channel_axis names the field {self.name!r}; there are {sorted(types)}")
        elif self.axis is not None and not 0 <= self.axis < kind.ndim:
            raise UsageError(
                f"channel_axis of {self.name!r} must be one of its {kind.ndim} axes, from 0, got {self.axis}"
            )


@dataclass(frozen=True)
class Job:
    """What every worker needs to know."""

    feed: Feed
    root: Path
    transform: str
    compression: Compression
    channel_axis: Mapping[str, int | None]
    asked_fields: tuple[AskedField, ...]
    skip_bad: bool
    shard_bytes: int
    flush_s: float = _FLUSH_S  # a shard is published after so long, full or not


@dataclass(frozen=True)
class NewShard:
    """A published shard: row ``r`` is the source's sample ``samples[r]``."""

    entry: FileEntry
    samples: NDArray[np.int64]
    fingerprints: NDArray[np.uint64]


@dataclass
class Done:
    """What came of one batch."""

    num_samples: int = 0
    num_bytes: int = 0
    skipped: list[tuple[int, str, str]] = field(default_factory=list)  # sample, key, why
    shards: list[NewShard] = field(default_factory=list)
    types: dict[str, FieldType] | None = None

    def add(self, later: "Done") -> None:
        """Take in what came of the next batch."""
        self.num_samples += later.num_samples
        self.num_bytes += later.num_bytes
        self.skipped += later.skipped
        self.shards += later.shards
        self.types = later.types


@dataclass(frozen=True)
class Work:
    """Samples to pack; ``known`` holds fingerprints of what is packed already (0, 0: nothing)."""

    samples: NDArray[np.int64]
    known: NDArray[np.uint64] | None

    def __len__(self) -> int:
        return len(self.samples)

    def slice(self, start: int, stop: int) -> "Work":
        """A part of the work."""
        known = None if self.known is None else self.known[start:stop]
        return Work(self.samples[start:stop], known)


class Worker:
    """Packs batches into shards; the same code runs in a process or in place."""

    def __init__(self, job: Job, types: Mapping[str, FieldType] | None) -> None:
        self.types = types
        self._job = job
        self._builder: ShardBuilder | None = None
        self._samples: list[int] = []
        self._publishing: Publishing | None = None
        self._since = time.monotonic()

    def pack(self, work: Work, stopped: Callable[[], bool] = lambda: False) -> Done:
        """Do the batch; a full shard is published on the way."""
        done = Done()
        for position, i in enumerate(work.samples.tolist()):
            if stopped():
                break
            known = None if work.known is None else work.known[position].tobytes()
            try:
                self._pack_one(i, known, done)
            except BadSampleError as error:
                if not self._job.skip_bad:
                    raise
                done.skipped.append((i, error.key, error.why))
            done.num_samples += 1
        done.types = None if self.types is None else dict(self.types)
        return done

    def flush(self, done: Done) -> None:
        """Publish what was collected; when this returns, all of it is on disk."""
        self.publish(done)
        self._settle(done)

    def publish(self, done: Done) -> None:
        """Write what was collected; a thread waits for the disk, while samples of the next shard come."""
        self._settle(done)
        builder = self._builder
        if builder is None or len(builder) == 0:
            return
        try:
            entry, aside = builder.write(self._job.root, self._job.transform, self._job.compression)
            shard = NewShard(entry, np.array(self._samples, np.int64), builder.fingerprints)
            self._publishing = Publishing(shard, aside)
        finally:  # what could not be written is not tried again
            self.forget()

    def hand_over(self) -> "Publishing | None":
        """The shard that is on its way to disk, for the caller to wait for."""
        publishing, self._publishing = self._publishing, None
        return publishing

    def forget(self) -> None:
        """Drop what was collected; its room stays for what comes."""
        if self._builder is not None:
            self._builder.empty()
        self._samples = []

    def _pack_one(self, i: int, known: bytes | None, done: Done) -> None:
        key = self._job.feed.key(i)
        fingerprint, sample = self._job.feed.read(i, key, known)
        if sample is None:  # packed already
            return
        if self.types is None:
            self.types = field_types(sample)
            for asked in self._job.asked_fields:
                asked.check(self.types)
        check_types(sample, self.types, key)
        if self._job.compression != "none":
            _check_size(sample, key)
        if self._builder is None:
            self._builder = ShardBuilder(self.types, self._job.channel_axis)
        if len(self._builder) == 0:
            self._since = time.monotonic()
        before = self._builder.num_bytes
        self._builder.add(key, fingerprint, sample)
        self._samples.append(i)
        done.num_bytes += self._builder.num_bytes - before
        slow = time.monotonic() - self._since > self._job.flush_s
        if slow or self._builder.num_bytes >= self._job.shard_bytes:
            self.publish(done)

    def _settle(self, done: Done) -> None:
        """Wait for the shard that is on its way to disk."""
        publishing = self.hand_over()
        if publishing is not None:
            done.shards.append(publishing.result())


class Publishing:
    """A shard that is written, on its way to disk."""

    def __init__(self, shard: NewShard, aside: Aside) -> None:
        self._shard = shard
        self._aside = aside
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="stoker-publisher")
        self._thread.start()

    def result(self) -> NewShard:
        """The shard, once it is in its place; or what kept it from there."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._shard

    def _run(self) -> None:
        try:
            self._aside.put_in_place()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error


@contextlib.contextmanager
def run_in_place(
    job: Job, work: Work, types: Mapping[str, FieldType] | None, batch_size: int | None
) -> Iterator[Iterator[Done]]:
    """Do the work in this process; gives what each batch brought."""
    worker = Worker(job, types)
    step = batch_size or 16

    def dones() -> Iterator[Done]:
        for start in range(0, len(work), step):
            yield worker.pack(work.slice(start, start + step))
        last = Done()
        worker.flush(last)
        yield last

    try:
        yield dones()
    finally:
        worker.flush(Done())  # of a run that was stopped: the next one finds it


@contextlib.contextmanager
def run_in_processes(
    job: Job,
    work: Work,
    types: Mapping[str, FieldType] | None,
    *,
    num_workers: int,
    batch_size: int | None,
    lock_descriptor: int,
) -> Iterator[Iterator[Done]]:
    """Do the work in forked processes; gives what each batch brought, in no particular order.

    Left early (an exception, Ctrl-C), it makes every worker publish what it has before it ends, so
    that little is lost; left in a hurry (a second Ctrl-C), it kills them.

    Raises:
        WorkerDiedError: a worker was killed; what others published stays.
    """
    pool = _Pool(work, types, batch_size)
    try:
        pool.start(job, min(num_workers, len(work)), lock_descriptor)
        yield pool.run()
    finally:
        pool.close()


class _Pool:
    """The processes, what they were sent, and what is left to send."""

    def __init__(self, work: Work, types: Mapping[str, FieldType] | None, batch_size: int | None) -> None:
        self._context = mp.get_context("fork")
        self._work = work
        self._next = 0
        self._types = types
        self._batch_size = batch_size
        self._seconds_per_sample = _BATCH_S
        self._stop = self._context.RawValue(ctypes.c_bool)
        self._workers: dict[Connection, Any] = {}
        self._sent: dict[Connection, float] = {}

    def start(self, job: Job, num_workers: int, lock_descriptor: int) -> None:
        for _ in range(num_workers):
            ours, theirs = self._context.Pipe()
            process = self._context.Process(
                target=_main,
                args=(
                    theirs,
                    [*self._workers, ours],
                    job,
                    self._stop,
                    lock_descriptor,
                    os.getpid(),
                ),
                daemon=True,
            )
            process.start()
            theirs.close()
            self._workers[ours] = process

    def run(self) -> Iterator[Done]:
        # the first sample tells all workers which fields to expect
        waiting = list(self._workers)
        first = waiting.pop(0)
        self._send(first)
        if self._types is not None:
            self._start(waiting)
        running = set(self._workers)
        while running:
            done = None
            for connection in self._ready(running):
                done = self._receive(connection)
                if self._types is None:  # still so if nothing of the first batch had to be packed
                    self._types = done.types
                self._start(waiting)
                if connection in self._sent:
                    self._adapt(connection, done)
                    self._send(connection)
                else:  # it was told that there is no more
                    running.discard(connection)
                    self._workers.pop(connection).join()
                    connection.close()
                yield done

    def close(self) -> None:
        """Stop every worker that is left; each publishes what it has, unless we are interrupted."""
        self._stop.value = True
        try:
            for connection in self._workers:
                with contextlib.suppress(OSError):
                    connection.send(None)
            for connection, process in self._workers.items():
                # a full pipe would keep it from ending: read what it still reports, to the end
                with contextlib.suppress(OSError, EOFError):
                    while True:
                        connection.recv()
                process.join()
        finally:
            for connection, process in self._workers.items():
                process.kill()
                process.join()
                connection.close()
            self._workers.clear()

    def _start(self, waiting: list[Connection]) -> None:
        while waiting:
            self._send(waiting.pop())

    def _send(self, connection: Connection) -> None:
        if self._next >= len(self._work):
            self._sent.pop(connection, None)
            self._deliver(connection, None)
            return
        size = self._batch_size or self._fitting_size()
        batch = self._work.slice(self._next, self._next + size)
        self._next += len(batch)
        self._sent[connection] = time.monotonic()
        self._deliver(connection, (batch, self._types))

    def _deliver(self, connection: Connection, message: object) -> None:
        try:
            connection.send(message)
        except OSError as error:
            raise self._death(connection) from error

    def _fitting_size(self) -> int:
        """As many samples as fill ``_BATCH_S``, fewer towards the end: all finish together."""
        share = (len(self._work) - self._next) // (2 * max(1, len(self._workers)))
        return max(1, min(int(_BATCH_S / self._seconds_per_sample), share, _MAX_BATCH))

    def _adapt(self, connection: Connection, done: Done) -> None:
        elapsed = time.monotonic() - self._sent[connection]
        latest = elapsed / max(1, done.num_samples)
        self._seconds_per_sample = max(1e-6, (self._seconds_per_sample + latest) / 2)

    def _ready(self, running: set[Connection]) -> list[Connection]:
        sentinels = {self._workers[connection].sentinel: connection for connection in running}
        ready = wait([*running, *sentinels])
        connections = {sentinels.get(item, item) for item in ready}
        return [connection for connection in running if connection in connections]

    def _receive(self, connection: Connection) -> Done:
        try:
            message = connection.recv()
        except (EOFError, OSError) as error:
            raise self._death(connection) from error
        if isinstance(message, Done):
            return message
        raised, trace = message
        raised.add_note(trace)
        raise raised

    def _death(self, connection: Connection) -> WorkerDiedError:
        process = self._workers[connection]
        process.join()
        code = process.exitcode
        how = f"killed by signal {-code}" if code and code < 0 else f"ended with exit code {code}"
        hint = " (out of memory? use fewer workers)" if code == -signal.SIGKILL else ""
        return WorkerDiedError(
            f"packing worker {process.pid} was {how}{hint}; run again: finished shards are kept"
        )


def _main(
    connection: Connection,
    inherited: list[Connection],
    job: Job,
    stop: Any,
    lock_descriptor: int,
    parent: int,
) -> None:
    """A worker process: batches in, reports out, until told that there is no more."""
    os.close(lock_descriptor)
    for other in inherited:  # else a dead parent's pipe would never read as closed
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: the parent acts
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with(parent)
    one_thread()
    worker = Worker(job, None)
    try:
        while (message := connection.recv()) is not None:
            batch, types = message
            worker.types = worker.types if types is None else types
            connection.send(worker.pack(batch, lambda: bool(stop.value)))
        last = Done()
        worker.flush(last)
        connection.send(last)
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:  # noqa: BLE001 - the parent raises it
        trace = "".join(traceback.format_exception(error))
        with contextlib.suppress(Exception):
            worker.flush(Done())
        known = isinstance(error, StokerError)
        told = error if known else WorkerDiedError(f"a packing worker failed: {error!r}")
        told.__cause__ = None  # may not be picklable; its text is in the trace
        connection.send((told, trace))


def _check_size(sample: Sample, key: str) -> None:
    for name, value in sample.items():
        if not isinstance(value, str) and value.nbytes >= _MAX_COMPRESSED_BYTES:
            raise BadSampleError(
                key, f"field {name!r} has {value.nbytes} bytes, too many for one chunk; use compression none"
            )
