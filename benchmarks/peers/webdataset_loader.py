"""WebDataset: tar files, read from end to end, shuffled by shard and in a buffer."""

from collections.abc import Mapping

import numpy as np

from peers.serving import Epoch, serve
from peers.workloads import Workload

_NUM_SHARDS = 16
_SHUFFLE_BUFFER = 1000  # samples


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The tar files, and loaders of them."""
    import webdataset

    folder = workload.folder / "webdataset"
    if not folder.exists():
        folder.mkdir()
        size = -(-len(workload) // _NUM_SHARDS)
        with webdataset.ShardWriter(str(folder / "%03d.tar"), maxcount=size, verbose=0) as writer:
            for i, sample in enumerate(workload):
                arrays = {f"{name}.npy": np.array(value) for name, value in sample.items()}
                writer.write({"__key__": f"{i:09d}", **arrays})
    shards = sorted(str(path) for path in folder.glob("*.tar"))

    def loader(num_workers: int) -> Epoch:
        samples = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(_SHUFFLE_BUFFER)
        batches = samples.decode().to_tuple(*(f"{field.name}.npy" for field in workload.fields))
        made = webdataset.WebLoader(
            batches.batched(workload.batch_size),
            batch_size=None,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
        )
        return lambda: made

    return {"0 workers": loader(0), "2 workers": loader(2)}


if __name__ == "__main__":
    serve("webdataset", prepare)
