"""Packing: a source of samples becomes a store, in parallel, and again only where it changed."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from stoker.config import usable_cores
from stoker.errors import UsageError
from stoker.store._codec import Compression, check_compression
from stoker.store._durable import TEMPORARY_PREFIX, make_folder, write_error
from stoker.store._feed import as_feed
from stoker.store._identity import transform_entry
from stoker.store._lock import LOCK_NAME, exclusive
from stoker.store._manifest import (
    LOG_NAME,
    MANIFEST_NAME,
    SHARD_BYTES,
    SHARD_FOLDER,
    STATISTICS_NAME,
    SplitRule,
)
from stoker.store._packing_run import JOURNAL_NAME, PackingRun
from stoker.store._progress import Display, Silent
from stoker.store._publish import our_files
from stoker.store._splits import split_rule
from stoker.store._store import Store
from stoker.store._url import is_url
from stoker.store._workers import AskedField, Job, run_in_place, run_in_processes
from stoker.store.dask import Scheduler, check_scheduler
from stoker.store.sources import open_source

OnError: TypeAlias = Literal["raise", "skip"]


def pack(
    source: Any,
    path: str | os.PathLike[str],
    *,
    transform: Callable[[Any], Any] | None = None,
    transform_version: str | None = None,
    workers: int | None = None,
    scheduler: Scheduler | None = None,
    batch_size: int | None = None,
    compression: Compression = "none",
    on_error: OnError = "raise",
    splits: Mapping[str, float] | None = None,
    stratify: str | None = None,
    group: str | None = None,
    channel_axis: Mapping[str, int | None] | None = None,
    shard_bytes: int = SHARD_BYTES,
    force: bool = False,
    progress: bool = True,
) -> Store:
    """Pack ``source`` into the store at ``path`` and open it.

    Run again, it packs only what is new or changed and drops what is gone. Killed at any point, the
    store at ``path`` is the old one or the new one, and the next call goes on where it stopped.

    Args:
        source: a folder, a glob, a CSV manifest, an HDF5 file, or any object with ``__len__`` and
            ``__getitem__`` that gives dicts (or tuples) of arrays, numbers and strings.
        path: the store's folder, by custom ``NAME.stoker``.
        transform: applied to every raw sample, here and never again. Part of the store's identity.
        transform_version: stands for the transform when it is compared between runs, instead of its
            parameters and source text.
        workers: processes; None for one a usable core, 0 to pack in this process.
        scheduler: pack on a Dask cluster instead: a ``distributed.Client``, an address, a scheduler
            file (.json), or "local:4" for a cluster of processes here. Its workers must see source
            and store under the same paths; source and transform must be picklable.
        batch_size: samples a worker takes at a time; None adapts it to their cost.
        compression: "none" can be mapped and is by far the fastest to load.
        on_error: "skip" leaves bad samples out and lists them in the store's statistics file.
        splits: fractions by name, for example ``{"train": 0.8, "val": 0.2}``; None keeps those that
            the store has.
        stratify: a label field whose classes every split gets in proportion.
        group: a field (patient, session) whose samples all fall into one split.
        channel_axis: axis of channels within a sample, by field, for the statistics. Without it
            the first of two or more axes.
        shard_bytes: size of a shard; a worker needs about three times as much memory.
        force: pack everything again, whatever the store holds.
        progress: show a bar on standard error (log lines where that is no terminal).

    Raises:
        SourceError: the source is empty or, with ``on_error="raise"``, has a bad sample.
        StoreMismatchError: the store was packed with another transform or compression, or has no sample
            in common with the source.
        StoreBusyError: another process is packing into it.
        WorkerDiedError: a worker was killed; on a cluster, several by the same samples.
    """
    started = time.monotonic()
    _check_options(workers, scheduler, batch_size, shard_bytes, on_error)
    check_compression(compression)
    if splits is None and (stratify is not None or group is not None):
        raise UsageError("stratify and group need splits, for example {'train': 0.8, 'val': 0.2}")
    rule = None if splits is None else split_rule(splits, stratify=stratify, group=group)
    entry = transform_entry(transform, transform_version)
    feed = as_feed(open_source(source), transform, entry.identity)
    if is_url(path):
        raise UsageError(f"a store is packed into a folder, got {path!r}; stoker.store.push takes it there")
    root = Path(path)
    _check_target(root)
    make_folder(root / SHARD_FOLDER)
    with exclusive(root, "pack") as lock:
        run = PackingRun(
            root=root,
            feed=feed,
            transform=entry,
            compression=compression,
            rule=rule,
            channel_axis={**feed.channel_axis, **(channel_axis or {})},
            force=force,
        )
        run.log(f"pack of {source!r}, {len(feed)} samples, transform {entry.name}")
        job = Job(
            feed=feed,
            root=root,
            transform=entry.identity,
            compression=compression,
            channel_axis=run.channel_axis,
            asked_fields=_asked_fields(channel_axis, rule),
            skip_bad=on_error == "skip",
            shard_bytes=shard_bytes,
        )
        try:
            run.prepare()
            work, types = run.plan()
            num_workers = usable_cores() if workers is None else workers
            if num_workers == 0 or len(work) == 0:
                running = run_in_place(job, work, types, batch_size)
            elif scheduler is not None:
                from stoker.store.dask._packing import run_on_dask

                running = run_on_dask(job, work, types, scheduler=scheduler, batch_size=batch_size)
            else:
                running = run_in_processes(
                    job,
                    work,
                    types,
                    num_workers=num_workers,
                    batch_size=batch_size,
                    lock_descriptor=lock,
                )
            with running as dones, Display("packing", len(work)) if progress else Silent() as display:
                run.follow(dones, display)
            run.finish(started, shard_bytes)
        except BaseException as error:
            run.stop(error)
            raise
    return Store(root)


def _check_options(
    workers: int | None,
    scheduler: Scheduler | None,
    batch_size: int | None,
    shard_bytes: int,
    on_error: str,
) -> None:
    if scheduler is not None:
        if workers is not None:
            raise UsageError(f"a scheduler has its own workers: give it, or workers={workers}, not both")
        check_scheduler(scheduler)
    if workers is not None and workers < 0:
        raise UsageError(f"workers must be at least 0, got {workers}")
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"batch_size must be at least 1, got {batch_size}")
    if shard_bytes < 1:
        raise UsageError(f"shard_bytes must be at least 1, got {shard_bytes}")
    if on_error not in {"raise", "skip"}:
        raise UsageError(f"on_error must be 'raise' or 'skip', got {on_error!r}")


def _check_target(root: Path) -> None:
    """Refuse to pack into a folder that holds something else."""
    try:
        if not root.exists() and not root.is_symlink():
            return
        if not root.is_dir():
            raise UsageError(f"a store is a folder, but {root} is none; choose another path")
        if (root / MANIFEST_NAME).exists():  # a store, or refused by reading it
            return
        ours = {SHARD_FOLDER, LOCK_NAME, LOG_NAME, STATISTICS_NAME, JOURNAL_NAME}
        folders = [root, *(root / name for name in [SHARD_FOLDER] if (root / name).is_dir())]
        there = [path for folder in folders for path in folder.iterdir()]
        # asked for second: a worker of a client that was killed may publish a shard just now
        known = set(our_files(root)) | {root / name for name in ours}
        foreign = sorted(
            path.name for path in there if path not in known and not path.name.startswith(TEMPORARY_PREFIX)
        )
    except OSError as error:
        raise write_error(root, error) from error
    if foreign:
        raise UsageError(
            f"{root} holds other files ({', '.join(foreign[:3])}, …); a store gets a folder of its own"
        )


def _asked_fields(axes: Mapping[str, int | None] | None, rule: SplitRule | None) -> tuple[AskedField, ...]:
    """Fields that the caller named, to be looked for in the first sample already."""
    asked = [AskedField("channel_axis", name, axis) for name, axis in (axes or {}).items()]
    if rule is not None:
        named = (("stratify", rule.stratify), ("group", rule.group))
        asked += [AskedField(option, name, None) for option, name in named if name is not None]
    return tuple(asked)
