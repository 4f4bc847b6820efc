"""A ``.npy`` file a sample, under a DataLoader."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from peers.serving import Epoch, serve
from peers.torch_loader import worker_counts
from peers.workloads import Workload


class Files(torch.utils.data.Dataset[torch.Tensor]):
    """A sample a file."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.from_numpy(np.load(self.paths[i]))


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The files, a thousand a folder, and loaders of them."""
    paths = [_path(workload.folder / "npy", i) for i in range(len(workload))]
    for i, path in enumerate(paths):
        if i % 1000 == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            np.save(path, workload[i]["x"])
    return worker_counts(lambda: Files([str(path) for path in paths]), workload)


def _path(folder: Path, i: int) -> Path:
    return folder / f"{i // 1000:03d}" / f"{i:06d}.npy"


if __name__ == "__main__":
    serve("torch", prepare)
