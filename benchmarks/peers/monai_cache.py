"""MONAI's CacheDataset: samples in memory, under PyTorch's DataLoader or MONAI's in a thread."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from monai.data import CacheDataset, ThreadDataLoader
from monai.transforms import Transform

from peers.serving import Epoch, serve
from peers.torch_loader import worker_counts
from peers.workloads import Workload


class Read(Transform):  # type: ignore[misc]
    """Sample number to tensors; deterministic, so its result is what is cached."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def __call__(self, i: int) -> dict[str, Any]:
        """A copy in memory."""
        return {name: torch.from_numpy(np.array(value)) for name, value in self.workload[i].items()}


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The filled cache, and loaders of it."""
    cached = CacheDataset(range(len(workload)), Read(workload), progress=False)
    threaded = ThreadDataLoader(cached, batch_size=workload.batch_size, shuffle=True, num_workers=0)
    return {**worker_counts(lambda: cached, workload), "1 thread": lambda: threaded}


if __name__ == "__main__":
    serve("monai", prepare)
