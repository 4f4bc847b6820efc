"""MosaicML Streaming: MDS shards on the local disk."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from peers.serving import Epoch, serve
from peers.torch_loader import worker_counts
from peers.workloads import Field, Workload

_TORCHVISION: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The shards, and loaders of them."""
    write_shards(workload)
    from streaming import StreamingDataset

    path = workload.folder / "mds"
    links = itertools.count()

    def dataset() -> Any:
        """One a loader, each under a path of its own: they refuse to share one in a process."""
        link = workload.folder / f"mds-{next(links)}"
        if not link.exists():
            link.symlink_to(path)
        return StreamingDataset(local=str(link), shuffle=True, batch_size=workload.batch_size)

    return worker_counts(dataset, workload, shuffle=False)  # the dataset shuffles


def write_shards(workload: Workload, *, shard_bytes: int = 1 << 26) -> None:
    """Into the workload's folder, unless they are there."""
    _stand_in_for_torchvision()
    from streaming import MDSWriter

    path = workload.folder / "mds"
    if not path.exists():
        columns = {field.name: _encoding(field) for field in workload.fields}
        with MDSWriter(out=str(path), columns=columns, size_limit=shard_bytes) as writer:
            for sample in workload:
                writer.write({name: np.array(value) for name, value in sample.items()})


def _encoding(field: Field) -> str:
    return f"ndarray:{field.dtype}:{','.join(map(str, field.shape))}"


def _stand_in_for_torchvision() -> None:
    """Name two of its operators: its wheel on PyPI is built for CUDA and does not load without.

    Streaming imports it for data sets of pictures, of which nothing is used here.
    """
    for name in ("nms", "qnms"):
        _TORCHVISION.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


if __name__ == "__main__":
    serve("mosaicml-streaming", prepare)
