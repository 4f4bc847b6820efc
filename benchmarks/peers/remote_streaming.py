"""MosaicML Streaming: MDS shards in a bucket."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from peers import streaming_loader
from peers.remote_epochs import BUCKET, SHARD_BYTES, upload, with_cache
from peers.serving import Epoch, serve
from peers.workloads import Workload


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The shards, and epochs of them with as many workers as cores."""
    streaming_loader.write_shards(workload, shard_bytes=SHARD_BYTES)
    upload(workload.folder / "mds", "mds")
    os.environ["S3_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL"]

    def load(cache: Path) -> Iterator[Any]:
        from streaming import StreamingDataset
        from streaming.base.util import clean_stale_shared_memory
        from torch.utils.data import DataLoader

        clean_stale_shared_memory()
        dataset = StreamingDataset(
            remote=f"s3://{BUCKET}/mds", local=str(cache), shuffle=True, batch_size=workload.batch_size
        )
        yield from DataLoader(dataset, batch_size=workload.batch_size, num_workers=2)

    return with_cache(workload, load)


if __name__ == "__main__":
    serve("mosaicml-streaming", prepare)
