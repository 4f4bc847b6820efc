"""Predictions of many batches as one."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stoker.errors import UsageError


class Collected:
    """Takes predictions to the CPU and joins them along their first dimension."""

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def add(self, prediction: Any) -> None:
        """One batch's."""
        self._parts.append(_on_cpu(prediction))

    def joined(self) -> Any:
        """All of them: tensors joined, in dicts and tuples as they came; a list where they are neither."""
        if not self._parts:
            raise UsageError("the loader to predict with gave no batch")
        return _join(self._parts)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, Mapping):
        return {name: _on_cpu(part) for name, part in value.items()}
    return type(value)(map(_on_cpu, value)) if type(value) in {list, tuple} else value


def _join(parts: list[Any]) -> Any:
    first = parts[0]
    if isinstance(first, Tensor) and first.dim() and len({part.shape[1:] for part in parts}) == 1:
        return torch.cat(parts)
    if isinstance(first, Mapping):
        return {name: _join([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        return tuple(_join(list(each)) for each in zip(*parts, strict=True))
    return parts
