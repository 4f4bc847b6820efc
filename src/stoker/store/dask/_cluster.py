"""Which Dask cluster packs: one that is there, by client or address, or one of this machine's processes."""

import contextlib
import json
import logging
import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stoker.config import usable_cores
from stoker.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from distributed import Client

Scheduler: TypeAlias = Any  # a distributed.Client, a Dask cluster object, or a str

_CONNECT_S = 5.0
_DEFAULT_PORT = 8786  # Dask's
_CHATTY = {"asyncio", "distributed", "tornado"}
_LOCAL = re.compile(r"local(?::(\d+))?")
_FORMS = "an address such as tcp://host:8786, a scheduler file (.json), local:4, or a distributed.Client"


def check_scheduler(scheduler: Scheduler) -> None:
    """Raise for what can be no scheduler, before anything is done."""
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("packing on Dask", extra="dask", library="distributed") from error
    if isinstance(scheduler, distributed.Client):
        if scheduler.asynchronous:
            raise UsageError("scheduler must be a Client that waits for results, not an asynchronous one")
    elif isinstance(scheduler, str):
        local = _LOCAL.fullmatch(scheduler)
        if not scheduler or (local and local[1] and int(local[1]) == 0):
            raise UsageError(f"scheduler must be {_FORMS}, got {scheduler!r}")
    elif not hasattr(scheduler, "scheduler_address"):
        raise UsageError(f"scheduler must be {_FORMS}, got {scheduler!r}")


@dataclass(frozen=True)
class Cluster:
    """A client of a cluster, and what to do about workers that do not come back by themselves."""

    client: "Client"
    restore: Callable[[int], None]  # told how many threads there are now


@contextlib.contextmanager
def connected(scheduler: Scheduler) -> Iterator[Cluster]:
    """The cluster; what was opened here is closed here, the caller's own client stays.

    Raises:
        UsageError: no scheduler answers at that address.
    """
    from distributed import Client

    if isinstance(scheduler, Client):
        yield Cluster(scheduler, lambda _: None)
        return
    local = _LOCAL.fullmatch(scheduler) if isinstance(scheduler, str) else None
    with _quiet():
        if local is None:
            with _client(scheduler) as client:
                yield Cluster(client, lambda _: None)
            return
        num_workers = int(local[1] or usable_cores())
        with _local_cluster(num_workers) as cluster, _client(cluster) as client:

            def restore(num_threads: int) -> None:
                if num_threads < num_workers:  # Dask gives up a process that dies while it starts
                    cluster.scale(num_workers)

            yield Cluster(client, restore)


@contextlib.contextmanager
def _client(scheduler: Scheduler) -> Iterator["Client"]:
    from distributed import Client

    address = scheduler if isinstance(scheduler, str) else scheduler.scheduler_address
    try:
        if address.endswith(".json"):
            address = json.loads(Path(address).read_bytes())["address"]
        _reach(address)
        target = address if isinstance(scheduler, str) else scheduler
        client = Client(target, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"no Dask scheduler answers at {address} within {_CONNECT_S:g} s ({error}); "
            "start one with `dask scheduler`, or pack on this machine with local:4"
        ) from error
    try:
        yield client
    finally:
        client.close()


def _reach(address: str) -> None:
    """Wait until something listens there: a Client that fails to connect would leave its thread behind."""
    from distributed.comm.addressing import parse_address, parse_host_port

    scheme, location = parse_address(address)
    if scheme not in {"tcp", "tls", "ws", "wss"}:
        return
    host_and_port = parse_host_port(location.partition("/")[0], _DEFAULT_PORT)
    deadline = time.monotonic() + _CONNECT_S
    while True:
        left = deadline - time.monotonic()
        try:
            socket.create_connection(host_and_port, timeout=max(0.1, left)).close()
        except OSError:
            if left <= 0:
                raise
            time.sleep(min(0.1, left))  # it may be about to start
        else:
            return


@contextlib.contextmanager
def _local_cluster(num_workers: int) -> Iterator[Any]:
    """Processes of this machine, one thread each, which end with this one."""
    import dask
    from distributed import LocalCluster

    # nobody would see Dask's profile of them, which takes a twentieth of their time
    with (
        tempfile.TemporaryDirectory(prefix="stoker-dask-", ignore_cleanup_errors=True) as scratch,
        dask.config.set({"distributed.worker.profile.enabled": False}),
    ):
        try:
            cluster = LocalCluster(
                n_workers=num_workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",
                local_directory=scratch,
                silence_logs=logging.CRITICAL,
                preload=["stoker.store.dask._preload"],
            )
        except (OSError, RuntimeError) as error:
            raise UsageError(f"a Dask cluster of {num_workers} processes does not start: {error}") from error
        with cluster:
            yield cluster


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Dask's own log of each worker that comes and goes is not what a user of ours reads."""
    levels = silence()
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def silence() -> dict[logging.Logger, int]:
    """Let Dask log nothing in this process; gives the levels that its loggers had."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _CHATTY]
    loggers = [logging.getLogger(name) for name in names]
    levels = {logger: logger.level for logger in loggers}
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    return levels
