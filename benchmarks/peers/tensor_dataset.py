"""PyTorch's TensorDataset: everything in this process' memory."""

from collections.abc import Mapping

import numpy as np
import torch

from peers.serving import Epoch, serve
from peers.torch_loader import dataloader
from peers.workloads import Workload


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """All of it in memory; workers would only copy it once more."""
    tensors = [torch.from_numpy(np.array(array)) for array in workload.arrays.values()]
    return {"0 workers": dataloader(torch.utils.data.TensorDataset(*tensors), workload, 0)}


if __name__ == "__main__":
    serve("torch", prepare)
