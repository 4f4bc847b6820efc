"""Grain: a MapDataset over mapped arrays, read by threads or by processes."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from peers.serving import Epoch, serve
from peers.workloads import Workload

_BATCHES_AHEAD = 16


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """Readers of the arrays as they are; processes live on between epochs."""
    import grain

    epochs = itertools.count()

    def batches(seed: int) -> Any:
        return grain.MapDataset.source(workload).shuffle(seed=seed).batch(workload.batch_size)

    def threads(num_threads: int) -> Epoch:
        ahead = _BATCHES_AHEAD if num_threads else 0
        options = grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=ahead)
        return lambda: iter(batches(next(epochs)).to_iter_dataset(options))

    def processes(num_processes: int) -> Epoch:
        options = grain.MultiprocessingOptions(num_workers=num_processes)
        one_after_another = batches(0).repeat().to_iter_dataset().mp_prefetch(options)
        started: list[Iterator[Any]] = []

        def epoch() -> Iterator[Any]:
            if not started:
                started.append(iter(one_after_another))
            return itertools.islice(started[0], len(batches(0)))

        return epoch

    return {"0 threads": threads(0), "2 threads": threads(2), "2 workers": processes(2)}


if __name__ == "__main__":
    serve("grain", prepare)
