"""LitData: optimised chunks in a bucket."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from peers import litdata_loader
from peers.remote_epochs import BUCKET, SHARD_BYTES, upload, with_cache
from peers.serving import Epoch, serve
from peers.workloads import Workload


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The chunks, and epochs of them with as many workers as cores."""
    from litdata import StreamingDataLoader, StreamingDataset

    _without_obstore()
    litdata_loader.write_chunks(workload, chunk_bytes=SHARD_BYTES)
    upload(workload.folder / "litdata", "litdata")
    options = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}

    def load(cache: Path) -> Iterator[Any]:
        dataset = StreamingDataset(
            f"s3://{BUCKET}/litdata",
            cache_dir=str(cache),
            shuffle=True,
            drop_last=False,
            storage_options=options,
        )
        yield from StreamingDataLoader(dataset, batch_size=workload.batch_size, num_workers=2)

    return with_cache(workload, load)


def _without_obstore() -> None:
    """Fetch with boto3, its other way: obstore refuses a server without https, which ours is."""
    from litdata.streaming import async_prefetch, downloader

    for module in (async_prefetch, downloader):
        module.obstore_usable = lambda: False


if __name__ == "__main__":
    serve("litdata", prepare)
