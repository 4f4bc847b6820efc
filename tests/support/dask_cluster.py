"""A Dask cluster of processes in a process of its own, which ends when nobody holds its standard input."""

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def cluster(num_workers: int, scratch: Path, **environment: str) -> Iterator[str]:
    """The address of its scheduler; modules in `scratch` can be imported by its workers."""
    with subprocess.Popen(
        [sys.executable, __file__, str(num_workers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=scratch,
        env={
            **os.environ,
            "PYTHONPATH": f"{scratch}:{Path(__file__).parents[1]}",
            "DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "10s",
            **environment,
        },
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate()  # closes its standard input, which ends it


def _serve(num_workers: int) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=num_workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        local_directory=os.getcwd(),  # noqa: PTH109
    ) as served:
        sys.stdout.write(f"{served.scheduler_address}\n")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], 0.5)[0]:
            served.scale(num_workers)  # Dask gives up a process that dies while it starts


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
