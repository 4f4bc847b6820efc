"""FFCV: its own file, read and decoded by compiled code in threads."""

from collections.abc import Mapping

import numpy as np

from peers.serving import Epoch, serve
from peers.workloads import Array, Workload


class Tuples:
    """Samples as FFCV's writer wants them."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def __len__(self) -> int:
        return len(self.workload)

    def __getitem__(self, i: int) -> tuple[Array, ...]:
        return tuple(self.workload[i].values())


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The file, and loaders of it by number of threads, on the operating system's page cache."""
    from ffcv.fields import NDArrayField
    from ffcv.fields.decoders import NDArrayDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import ToTensor
    from ffcv.writer import DatasetWriter

    path = workload.folder / "ffcv.beton"
    if not path.exists():
        fields = {field.name: NDArrayField(np.dtype(field.dtype), field.shape) for field in workload.fields}
        DatasetWriter(str(path), fields, num_workers=2).from_indexed_dataset(Tuples(workload))

    def loader(num_threads: int) -> Epoch:
        made = Loader(
            str(path),
            batch_size=workload.batch_size,
            num_workers=num_threads,
            os_cache=True,
            order=OrderOption.RANDOM,
            seed=0,
            drop_last=False,
            pipelines={field.name: [NDArrayDecoder(), ToTensor()] for field in workload.fields},
        )
        return lambda: made

    return {"1 thread": loader(1), "2 threads": loader(2)}


if __name__ == "__main__":
    serve("ffcv", prepare)
