"""Stores that every process of a machine wants and one of them makes, while the others wait.

The lock is the kernel's and dies with its holder. Whoever comes next looks again, and goes on with
what a killed maker had finished. A lock file is never removed: it is empty, and a lock on a file
that is gone would keep nobody out.
"""

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from stoker.errors import DamagedStoreError, StoreNotFoundError
from stoker.store import Store
from stoker.store._durable import make_folder, write_error
from stoker.store._layout import open_checked
from stoker.store._manifest import MANIFEST_NAME, shard_path

logger = logging.getLogger("stoker")


def made_once(target: Path, lock: Path, make: Callable[[], object]) -> Store:
    """The store at ``target``: as it is there, or made by this process, or by another meanwhile."""
    store = open_whole(target)
    if store is not None:
        return store
    with turn(lock, wait=True):
        store = open_whole(target)
        if store is not None:
            return store
        remove_damaged(target)
        make()
    return Store(target)


@contextlib.contextmanager
def turn(lock: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock, after waiting for it; or give False where another holds it and we do not wait."""
    make_folder(lock.parent)
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise write_error(lock, error) from error
    try:
        held = _take(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not held and wait:
            logger.info("waiting for another process that makes %s", lock.parent)
            held = _take(descriptor, fcntl.LOCK_EX)
        try:
            yield held
        finally:  # closing alone would leave it to any process that was forked meanwhile
            if held:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def open_whole(target: Path) -> Store | None:
    """The store, if it is published and each of its files has its size."""
    try:
        store = Store(target)
        for entry in store.manifest.shards:
            with open_checked(shard_path(target, entry.digest), entry.num_bytes):
                pass
    except (StoreNotFoundError, DamagedStoreError):
        return None
    return store


def remove_damaged(target: Path) -> None:
    """Remove a published store that is not whole; what an interrupted run left is of use, and stays."""
    if (target / MANIFEST_NAME).exists():
        remove_store(target)


def remove_store(target: Path) -> None:
    """Remove a store, manifest first: at no time does half of it look like a whole one.

    Whoever has it mapped reads on.
    """
    (target / MANIFEST_NAME).unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)


def _take(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    return True
