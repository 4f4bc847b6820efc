"""Hugging Face datasets: an Arrow file, mapped; whole batches asked of it by a DataLoader."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch.utils.data import BatchSampler, RandomSampler

from peers.serving import Epoch, serve
from peers.torch_loader import worker_counts
from peers.workloads import Array, Workload


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The Arrow file, and loaders of it; flat lists as NumPy arrays are its fastest form by far."""
    import datasets

    columns = {
        field.name: datasets.List(datasets.Value(field.dtype), length=math.prod(field.shape))
        for field in workload.fields
    }
    data = datasets.Dataset.from_generator(
        _samples,
        features=datasets.Features(columns),
        cache_dir=str(workload.folder / "huggingface"),
        gen_kwargs={"folder": workload.folder},
    ).with_format("numpy")
    batches = BatchSampler(RandomSampler(range(len(data))), workload.batch_size, drop_last=False)
    return worker_counts(lambda: data, workload, sampler=batches, batch_size=None, shuffle=None)


def _samples(folder: Path) -> Iterator[dict[str, Array]]:
    for sample in Workload.open(folder):
        yield {name: value.reshape(-1) for name, value in sample.items()}


if __name__ == "__main__":
    serve("datasets", prepare)
