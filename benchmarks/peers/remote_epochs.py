"""What peers that read from an object store share: epochs with an empty cache and with a full one."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from peers.serving import Epoch
from peers.workloads import Workload

SHARD_BYTES = 8 << 20
BUCKET = "bench"
FIRST, SECOND = "first epoch", "second epoch"


def upload(folder: Path, name: str) -> None:
    """Put a folder's files below ``s3://bench/NAME``, without a delay, unless they are there."""
    import boto3

    client = boto3.client("s3", endpoint_url=os.environ["NEAR_ENDPOINT_URL"])
    if client.list_objects_v2(Bucket=BUCKET, Prefix=f"{name}/", MaxKeys=1).get("KeyCount"):
        return
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.upload_file(str(path), BUCKET, f"{name}/{path.relative_to(folder).as_posix()}")


def with_cache(workload: Workload, load: Callable[[Path], Iterable[Any]]) -> Mapping[str, Epoch]:
    """The first epoch begins with an empty folder, the second with what the last first one left there.

    Both open the data anew: what is kept in memory between epochs is not what is measured.
    """
    cache: list[Path] = []

    def first() -> Iterator[Any]:
        for folder in cache:
            shutil.rmtree(folder, ignore_errors=True)
        cache[:] = [Path(tempfile.mkdtemp(dir=workload.folder))]
        yield from load(cache[0])

    def second() -> Iterator[Any]:
        yield from load(cache[0])

    return {FIRST: first, SECOND: second}
