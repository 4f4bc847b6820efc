"""What do many samples cost before the first batch is there? A process for each answer.

    python benchmarks/peers/first_batch.py stoker|dataloader WORKLOAD_FOLDER [NUM_SAMPLES]

Prints JSON: ``seconds`` from opening to the first batch, and ``memory_bytes``, the peak of anonymous
memory while 200 batches are read, above what there was after the imports. With NUM_SAMPLES, then the same
of the order alone of so many samples. What is opened must have been prepared by the loader's own file.
"""

import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py  # noqa: F401 - imported before the clock starts, like the rest
import numpy as np
import torch
from torch.utils.data import RandomSampler

import stoker.loader
import stoker.store
from measuring import peak_memory, seconds_of
from peers import h5py_files
from peers.torch_loader import dataloader
from peers.workloads import Workload
from stoker.loader._order import Shuffled

_ITEMS = 200
_HOLD_S = 0.05  # long enough to be seen by a watcher that samples


def main() -> None:
    """Open, then watch."""
    system, folder, *num_samples = sys.argv[1:]
    torch.zeros(1)  # whatever a first tensor sets up
    workload = Workload.open(Path(folder))
    batches = _stoker_batches(workload) if system == "stoker" else _dataloader_batches(workload)
    answer = {"batch": _cost(batches)}
    for number in map(int, num_samples):  # the batches still held: nothing of theirs is used again
        answer["order"] = _cost(
            _stoker_order(number) if system == "stoker" else iter(RandomSampler(range(number)))
        )
    print(json.dumps(answer))


def _cost(items: Iterator[Any]) -> dict[str, float]:
    """Of the first and of some more; ``items`` is a generator that has not begun yet."""
    with peak_memory() as before:
        pass
    seconds = seconds_of(lambda: next(items))
    with peak_memory() as peak:
        for _ in itertools.islice(items, _ITEMS):
            pass
        time.sleep(_HOLD_S)
    return {"seconds": seconds, "memory_bytes": peak["num_bytes"] - before["start_bytes"]}


def _stoker_batches(workload: Workload) -> Iterator[Any]:
    with stoker.Loader(stoker.open(workload.folder / "packed.stoker"), workload.batch_size) as loader:
        yield from loader


def _dataloader_batches(workload: Workload) -> Iterator[Any]:
    yield from dataloader(h5py_files.Rows(workload, workload.folder / "h5py.h5"), workload, 0)()


def _stoker_order(num_samples: int) -> Iterator[Any]:
    order = Shuffled(num_samples, 0)
    for start in itertools.count(step=64):
        yield order.at(0, np.arange(start, start + 64))


if __name__ == "__main__":
    main()
