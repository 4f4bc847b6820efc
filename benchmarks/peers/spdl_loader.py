"""SPDL: a pipeline of threads, each of which gathers a batch at a time from mapped arrays."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from peers.serving import Epoch, serve
from peers.workloads import Workload

_BATCHES_AHEAD = 4


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """Pipelines by number of threads."""
    return {
        "1 thread": lambda: _epoch(workload, num_threads=1),
        "2 threads": lambda: _epoch(workload, num_threads=2),
    }


def _epoch(workload: Workload, *, num_threads: int) -> Iterator[Any]:
    from spdl.pipeline import PipelineBuilder

    order = np.random.default_rng().permutation(len(workload))
    batches = [order[i : i + workload.batch_size] for i in range(0, len(order), workload.batch_size)]

    def gather(numbers: NDArray[np.int64]) -> dict[str, torch.Tensor]:
        return {
            name: torch.from_numpy(np.take(array, numbers, axis=0, mode="clip"))
            for name, array in workload.arrays.items()
        }

    builder = PipelineBuilder().add_source(batches).pipe(gather, concurrency=num_threads)
    pipeline = builder.add_sink(_BATCHES_AHEAD).build(num_threads=num_threads)
    with pipeline.auto_stop():
        yield from pipeline


if __name__ == "__main__":
    serve("spdl", prepare)
