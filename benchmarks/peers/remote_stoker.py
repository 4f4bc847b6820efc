"""Stoker: a store in a bucket, shuffled as a whole or some shards at a time."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import stoker
from peers.remote_epochs import BUCKET, SHARD_BYTES, with_cache
from peers.serving import Epoch, serve
from peers.workloads import Workload

URL = f"s3://{BUCKET}/packed.stoker"


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The store, pushed by the endpoint without a delay, and epochs of it."""
    from stoker.store import push

    path = workload.folder / "packed.stoker"
    stoker.pack(workload, path, shard_bytes=SHARD_BYTES, progress=False)
    far = os.environ["AWS_ENDPOINT_URL"]
    os.environ["AWS_ENDPOINT_URL"] = os.environ["NEAR_ENDPOINT_URL"]
    push(path, URL)
    os.environ["AWS_ENDPOINT_URL"] = far
    _forget_connections()

    def load(cache: Path, **options: Any) -> Iterator[Any]:
        store = stoker.open(URL, cache=cache)
        with stoker.Loader(store, workload.batch_size, **options) as loader:
            yield from loader

    def quasi(cache: Path) -> Iterator[Any]:
        rows = SHARD_BYTES // 16_000
        return load(cache, shuffle="quasi", run_length=rows, pool=2)

    found = {f"full shuffle, {name}": epoch for name, epoch in with_cache(workload, load).items()}
    return found | {f"quasi-random, {name}": epoch for name, epoch in with_cache(workload, quasi).items()}


def _forget_connections() -> None:
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


if __name__ == "__main__":
    serve("stoker", prepare)
