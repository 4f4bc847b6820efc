"""Samples of unequal size as one batch."""

from typing import Any, Literal, TypeAlias

import numpy as np

from stoker.errors import UsageError
from stoker.store._samples import Array

Ragged: TypeAlias = Literal["pad", "pack", "list"]


def collate_rest(columns: dict[str, list[Any]], ragged: Ragged) -> dict[str, Any]:
    """Tensors (or lists of them) of ragged fields; text stays a list of strings."""
    batch: dict[str, Any] = {}
    for name, values in columns.items():
        if values and isinstance(values[0], str):
            batch[name] = values
        elif ragged == "pad":
            batch |= _padded(name, values)
        elif ragged == "pack":
            batch |= _packed(name, values)
        elif ragged == "list":
            batch[name] = [_tensor(value) for value in values]
        else:
            raise UsageError(f"ragged must be 'pad', 'pack' or 'list', got {ragged!r}")
    return batch


def _padded(name: str, values: list[Array]) -> dict[str, Any]:
    """[B, largest sizes…] with zeros behind each value; sizes [B, ndim], or [B] if one varies."""
    sizes = np.array([value.shape for value in values], np.int64).reshape(len(values), -1)
    padded = np.zeros((len(values), *sizes.max(axis=0, initial=0)), values[0].dtype)
    for row, value in zip(padded, values, strict=True):
        row[tuple(map(slice, value.shape))] = value
    lengths = sizes[:, -1] if sizes.shape[1] <= 2 else sizes
    return {name: _tensor(padded), f"{name}_length": _tensor(lengths)}


def _packed(name: str, values: list[Array]) -> dict[str, Any]:
    """All values joined along their last axis, and where each begins and ends [B + 1]."""
    offsets = np.concatenate([[0], np.cumsum([value.shape[-1] for value in values])])
    joined = np.concatenate(values, axis=-1)
    return {name: _tensor(joined), f"{name}_offset": _tensor(offsets)}


def _tensor(array: Array) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array))
