"""PyTorch's DataLoader, set up well: workers that live on between epochs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from peers.serving import Epoch
from peers.workloads import Workload

Samples = Callable[[], Any]
"""Makes a map-style dataset; once for every loader, so that no open file crosses a fork."""


def worker_counts(samples: Samples, workload: Workload, **options: Any) -> Mapping[str, Epoch]:
    """DataLoaders without workers and with two."""
    return {f"{count} workers": dataloader(samples(), workload, count, **options) for count in (0, 2)}


def dataloader(dataset: Any, workload: Workload, num_workers: int, **options: Any) -> Epoch:
    """Shuffled epochs; workers are started by the first of them."""
    from torch.utils.data import DataLoader

    if workload.kind == "ragged":
        options["collate_fn"] = pad
    options.setdefault("batch_size", workload.batch_size)
    options.setdefault("shuffle", True)
    loader: DataLoader[Any] = DataLoader(
        dataset, num_workers=num_workers, persistent_workers=num_workers > 0, **options
    )
    return lambda: loader


def pad(samples: Sequence[tuple[Any]]) -> tuple[Any, Any]:
    """Signals of unequal length as a batch, and their lengths."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    signals = [sample[0] for sample in samples]
    return pad_sequence(signals, batch_first=True), torch.tensor([len(signal) for signal in signals])
