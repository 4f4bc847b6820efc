"""One writer a store: an advisory lock that dies with its holder and needs no clean-up."""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from stoker.errors import StoreBusyError
from stoker.store._durable import write_error

LOCK_NAME = ".lock"


@contextlib.contextmanager
def exclusive(root: Path, purpose: str) -> Iterator[int]:
    """Hold the store's lock; yields its descriptor, which forked workers must close.

    Raises:
        StoreBusyError: another process holds it; says which, where and since when.
    """
    try:
        descriptor = os.open(root / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise write_error(root / LOCK_NAME, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreBusyError(
                f"{root} is being written by {_holder(descriptor)}; wait for it or stop it"
            ) from error
        who = {
            "purpose": purpose,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        with contextlib.suppress(OSError):  # a full disk must not forbid a compact that frees it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(who).encode(), 0)
        try:
            yield descriptor
        finally:  # closing alone would leave it to any process that was forked meanwhile
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    try:
        who = json.loads(os.pread(descriptor, 4096, 0))
        return f"`stoker {who['purpose']}`, process {who['pid']} on {who['host']} since {who['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
