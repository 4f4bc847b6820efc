"""h5py under a DataLoader: a plain file with a contiguous dataset a field, opened once per process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import torch

from peers.serving import Epoch, serve
from peers.torch_loader import worker_counts
from peers.workloads import Workload


class Rows(torch.utils.data.Dataset[tuple[torch.Tensor, ...]]):
    """A sample a read."""

    def __init__(self, workload: Workload, path: Path) -> None:
        self.workload = workload
        self.path = path
        self.fields: list[Any] = []

    def __len__(self) -> int:
        return len(self.workload)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, ...]:
        if not self.fields:
            file = h5py.File(self.path)
            self.fields = [file[field.name] for field in self.workload.fields]
        if self.workload.kind == "fixed":
            return tuple(torch.from_numpy(field[i]) for field in self.fields)
        session, start, stop = self.workload.span(i)
        place = slice(start, stop) if self.workload.kind == "ragged" else (session, slice(start, stop))
        return (torch.from_numpy(self.fields[0][place]),)


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The file, and loaders of it."""
    path = workload.folder / "h5py.h5"
    if not path.exists():
        with h5py.File(path, "w") as file:
            for name, array in workload.arrays.items():
                file.create_dataset(name, data=array)
    return worker_counts(lambda: Rows(workload, path), workload)


if __name__ == "__main__":
    serve("h5py", prepare)
