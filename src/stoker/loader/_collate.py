"""Samples of unequal size as one batch."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from stoker.errors import UsageError
from stoker.store._samples import Array

Ragged: TypeAlias = Literal["pad", "pack", "list"]
Room: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], Array]


class Collation:
    """How samples of unequal size become a batch.

    Args:
        ragged: as a Loader takes it.
        pad_values: what stands behind the shorter values of a field; 0 for those that are not named.
    """

    def __init__(self, ragged: Ragged, pad_values: Mapping[str, float] | None) -> None:
        if ragged not in get_args(Ragged):
            raise UsageError(f"ragged must be 'pad', 'pack' or 'list', got {ragged!r}")
        if pad_values and ragged != "pad":
            raise UsageError(f"pad_values is for ragged='pad', got it with ragged={ragged!r}")
        self._ragged: Ragged = ragged
        self._pad_values = dict(pad_values or {})

    def __call__(self, columns: dict[str, list[Any]], room: Room = np.empty) -> dict[str, Any]:
        """Arrays of their own (or lists of them) of ragged fields; text stays a list of strings.

        Args:
            columns: by field, the batch's values: strings, or arrays, which may be read-only.
            room: gives the memory of what is padded.
        """
        batch: dict[str, Any] = {}
        for name, values in columns.items():
            if values and isinstance(values[0], str):
                batch[name] = values
            elif self._ragged == "pad":
                batch |= _padded(name, values, self._pad_values.get(name, 0), room)
            elif self._ragged == "pack":
                batch |= _packed(name, values)
            else:
                batch[name] = [np.array(value) for value in values]
        return batch


def tensors_of(arrays: dict[str, Any]) -> dict[str, Any]:
    """What a Collation gives, as tensors over the same memory."""
    from torch import from_numpy

    return {
        name: from_numpy(value)
        if isinstance(value, np.ndarray)
        else [each if isinstance(each, str) else from_numpy(each) for each in value]
        for name, value in arrays.items()
    }


def _padded(name: str, values: list[Array], pad_value: float, room: Room) -> dict[str, Array]:
    """[B, largest sizes…] with padding behind each value; sizes [B, ndim], or [B] if one varies."""
    sizes = np.array([value.shape for value in values], np.int64).reshape(len(values), -1)
    padded = room((len(values), *sizes.max(axis=0, initial=0).tolist()), values[0].dtype)
    pad = np.asarray(pad_value).astype(padded.dtype)
    if pad != pad_value and pad_value == pad_value:  # noqa: PLR0124 - NaN is like nothing, and may be wanted
        raise UsageError(f"pad_values of {name!r} must fit {padded.dtype}, got {pad_value}")
    for row, value in zip(padded, values, strict=True):
        inside = tuple(map(slice, value.shape))
        row[inside] = value
        for axis, size in enumerate(value.shape):
            if size < row.shape[axis]:
                row[(*inside[:axis], slice(size, None))] = pad
    lengths = sizes[:, -1] if sizes.shape[1] <= 2 else sizes
    return {name: padded, f"{name}_length": np.ascontiguousarray(lengths)}


def _packed(name: str, values: list[Array]) -> dict[str, Array]:
    """All values joined along their last axis, and where each begins and ends [B + 1]."""
    offsets = np.concatenate([[0], np.cumsum([value.shape[-1] for value in values])])
    return {name: np.concatenate(values, axis=-1), f"{name}_offset": offsets}
