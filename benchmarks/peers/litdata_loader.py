"""LitData: optimised chunks on the local disk."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from peers.serving import Epoch, serve
from peers.workloads import Array, Workload


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The chunks, and loaders of them."""
    from litdata import StreamingDataLoader, StreamingDataset

    write_chunks(workload, chunk_bytes=64 << 20)
    path = workload.folder / "litdata"

    def loader(num_workers: int) -> Epoch:
        made = StreamingDataLoader(
            StreamingDataset(str(path), shuffle=True, drop_last=False),
            batch_size=workload.batch_size,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
        )
        return lambda: made

    return {"0 workers": loader(0), "2 workers": loader(2)}


def write_chunks(workload: Workload, *, chunk_bytes: int) -> None:
    """Into the workload's folder, unless they are there."""
    from litdata import optimize

    path = workload.folder / "litdata"
    if not path.exists():
        optimize(
            partial(_sample, workload.folder),
            list(range(len(workload))),
            output_dir=str(path),
            chunk_bytes=chunk_bytes,
            num_workers=2,
            start_method="fork",
            verbose=False,
        )


def _sample(folder: Path, i: int) -> dict[str, Array]:
    return {name: np.array(value) for name, value in Workload.open(folder)[i].items()}


if __name__ == "__main__":
    serve("litdata", prepare)
