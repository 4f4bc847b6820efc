"""All random numbers of a batch, packed: made at once, copied to the device at once, kept to be replayed.

Shapes: B samples; K parameters, N noise keys, P transforms and M pairings of the whole pipeline.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Draws(NamedTuple):
    """What was drawn for a batch; `Pipeline.replay` applies it, to this batch or to another.

    Attributes:
        values: float32 [B, K], the parameters; neutral ones where a transform was not chosen.
        noise_keys: int64 [B, N], from which noise is made.
        chosen: bool [B, P], whether a sample gets a transform.
        partners: int64 [B, M], the row that a sample is mixed with.
        rows: for each stage of the pipeline the rows that it touches, int64 [k], or None for all of
            them. None altogether where the host does not know: then every row is computed.
    """

    values: Tensor
    noise_keys: Tensor
    chosen: Tensor
    partners: Tensor
    rows: tuple[Tensor | None, ...] | None

    def to(self, device: torch.device) -> "Draws":
        """The same on the device, in one copy for which the host does not wait."""
        if self.values.device == device:
            return self
        known = self.rows is not None
        rows = self.rows or ()
        tensors = [self.noise_keys, self.partners, *(row for row in rows if row is not None)]
        tensors += [self.values, self.chosen]  # after those of 8 bytes an element: all stay aligned
        moved = iter(_copy_together(tensors, device))
        noise_keys, partners = next(moved), next(moved)
        moved_rows = tuple(None if row is None else next(moved) for row in rows)
        return Draws(
            values=next(moved),
            noise_keys=noise_keys,
            chosen=next(moved),
            partners=partners,
            rows=moved_rows if known else None,
        )

    def part(self, part: slice) -> "Draws":
        """Those of some rows that lie together; on the host, which knows the rows."""
        assert self.rows is not None
        return Draws(
            values=self.values[part],
            noise_keys=self.noise_keys[part],
            chosen=self.chosen[part],
            partners=self.partners[part],
            rows=tuple(None if row is None else _rows_within(row, part) for row in self.rows),
        )


class Params:
    """One transform's parameters for the rows that it is given.

    ``params["shift"]`` is float32 [B] (int64 for whole numbers), or [B, n] if n were declared.
    `size` is the spatial size of the first signal, image or volume that the transform changes, before
    the change; empty if it changes labels and masks only.
    """

    def __init__(
        self,
        values: Tensor,
        columns: Mapping[str, "Column"],
        noise_keys: Tensor,
        partner: Tensor | None,
        size: tuple[int, ...] = (),
    ) -> None:
        self._values = values
        self._columns = columns
        self.noise_keys = noise_keys
        self.partner = partner
        self.size = size

    def __getitem__(self, name: str) -> Tensor:
        column = self._columns[name]
        if column.size is None:
            found = self._values[:, column.start]
        else:
            found = self._values[:, column.start : column.start + column.size]
        return found.to(torch.int64) if column.whole else found

    def on_host(self, name: str) -> NDArray[Any]:
        """The same as an array, for `write`: calculating with it costs a fraction of what tensors cost."""
        column = self._columns[name]
        values = self._values.numpy()
        found = values[:, column.start : column.start + (column.size or 1)]
        found = found[:, 0] if column.size is None else found
        return found.astype(np.int64) if column.whole else found

    def like(self, name: str, x: Tensor) -> Tensor:
        """The parameter as [B, 1, ..., 1], to be broadcast over x [B, ...]."""
        return self[name].view(-1, *[1] * (x.ndim - 1))

    def select(self, rows: Tensor) -> "Params":
        """Those of some rows."""
        partner = None if self.partner is None else self.partner.index_select(0, rows)
        values, keys = self._values, self.noise_keys
        values = values.index_select(0, rows) if values.shape[1] else values[: len(rows)]
        keys = keys.index_select(0, rows) if keys.shape[1] else keys[: len(rows)]
        return Params(values, self._columns, keys, partner, self.size)

    def part(self, rows: slice) -> "Params":
        """Those of some rows that lie together."""
        partner = None if self.partner is None else self.partner[rows]
        return Params(self._values[rows], self._columns, self.noise_keys[rows], partner, self.size)

    def blank(self) -> "Params":
        """Those of a single row that stands for none, all 1."""
        partner = None if self.partner is None else self.partner.new_zeros(1)
        values = self._values.new_ones(1, self._values.shape[1])
        keys = self.noise_keys.new_ones(1, self.noise_keys.shape[1])
        return Params(values, self._columns, keys, partner, self.size)


class Column(NamedTuple):
    """Where a parameter stands among those of its transform."""

    start: int
    size: int | None  # None: one number a sample; n: a vector of n
    whole: bool


def _rows_within(rows: Tensor, part: slice) -> Tensor | None:
    """Those of the sorted rows that lie in the part, counted from its start; None for all of it."""
    first, last = np.searchsorted(rows.numpy(), [part.start, part.stop])
    return None if last - first == part.stop - part.start else rows[first:last] - part.start


def _copy_together(tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    """Copy tensors as one block of bytes; the pinned block is kept by torch until it was read."""
    flat = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in tensors]
    num_bytes = sum(len(part) for part in flat)
    block = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    torch.cat(flat, out=block)
    moved = block.to(device, non_blocking=True)
    parts = torch.split(moved, [len(part) for part in flat])
    return [part.view(tensor.dtype).view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
