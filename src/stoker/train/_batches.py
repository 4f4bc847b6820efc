"""What any batch is: tensors in dicts, lists and tuples, and a number of samples."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from stoker.errors import UsageError


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch on the device; copies are started, not waited for, and what is there already stays."""
    if isinstance(batch, Tensor):
        return batch if batch.device == device else batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: to_device(value, device) for name, value in batch.items()}
    if isinstance(batch, tuple):
        moved = [to_device(value, device) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else tuple(moved)
    if isinstance(batch, list):
        return [to_device(value, device) for value in batch]
    if hasattr(batch, "to"):
        return batch.to(device, non_blocking=True)
    return batch


def count_samples(batch: Any) -> int:
    """Rows of ``batch["index"]`` if there is such a field, else of the first tensor in the batch.

    Raises:
        UsageError: there is no tensor to count the rows of.
    """
    index = batch.get("index") if isinstance(batch, Mapping) else None
    if isinstance(index, Tensor):
        return index.shape[0]
    first = _first_tensor(batch)
    if first is None:
        raise UsageError(
            f"a batch must hold a tensor with one row a sample, got {type(batch).__name__} without any; "
            f"a Task can say how many samples there are: define num_samples(batch)"
        )
    return first.shape[0]


def _first_tensor(batch: Any) -> Tensor | None:
    if isinstance(batch, Tensor):
        return batch if batch.dim() else None
    values = batch.values() if isinstance(batch, Mapping) else batch
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        return None
    for value in values:
        found = _first_tensor(value)
        if found is not None:
            return found
    return None
