"""All random numbers of a batch, packed: made at once, copied to the device at once, kept to be replayed.

Shapes: B samples; K parameters, N noise keys, P transforms and M pairings of the whole pipeline.
"""

from collections.abc import Callable
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
        rows = tuple(None if row is None else _rows_within(row, part) for row in self.rows)
        return self.map(lambda x: x[part])._replace(rows=rows)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Draws":
        """What was drawn for other rows; which of these a stage touches is no longer known."""
        values, noise_keys, chosen, partners = (change(x) for x in self[:4])
        return Draws(values, noise_keys, chosen, partners, None)


class Params:
    """One transform's parameters for the rows that it is given.

    ``params["shift"]`` is float32 [B] (int64 for whole numbers), or [B, n] if n were declared.
    `size` is the spatial size of the first signal, image or volume that the transform changes, before
    the change; empty if it changes labels and masks only.
    """

    def __init__(
        self, draws: Draws, place: "Place", size: tuple[int, ...] = (), rows: Tensor | None = None
    ) -> None:
        self._draws = draws
        self._place = place
        self._rows = rows
        self.size = size

    @property
    def noise_keys(self) -> Tensor:
        """Keys to make noise from: int64 [B, n]."""
        return self._of_rows(self._draws.noise_keys[:, self._place.noises])

    @property
    def partner(self) -> Tensor | None:
        """The row that each sample is mixed with: int64 [B]."""
        place = self._place.partner
        return None if place is None else self._of_rows(self._draws.partners[:, place])

    def __getitem__(self, name: str) -> Tensor:
        column = self._place.columns[name]
        found = self._of_rows(self._draws.values[:, column.where])
        return found.to(torch.int64) if column.whole else found

    def on_host(self, name: str) -> NDArray[Any]:
        """The same as an array: calculating with it costs a fraction of what tensors cost."""
        column = self._place.columns[name]
        found: NDArray[Any] = self._draws.values.numpy()[:, column.where]
        if self._rows is not None:
            found = found[self._rows.numpy()]
        return found.astype(np.int64) if column.whole else found

    def like(self, name: str, x: Tensor) -> Tensor:
        """The parameter as [B, 1, ..., 1], to be broadcast over x [B, ...]."""
        return self[name].view(-1, *[1] * (x.ndim - 1))

    def select(self, rows: Tensor) -> "Params":
        """Those of some rows."""
        chosen = rows if self._rows is None else self._rows[rows]
        return Params(self._draws, self._place, self.size, chosen)

    def part(self, rows: slice) -> "Params":
        """Those of some rows that lie together."""
        return Params(self._draws.map(lambda x: self._of_rows(x)[rows]), self._place, self.size)

    def blank(self) -> "Params":
        """Those of a single row that stands for none, all 1."""
        one = self._draws.map(lambda x: x.new_ones(1, x.shape[1]))
        return Params(one._replace(partners=one.partners - 1), self._place, self.size)

    def _of_rows(self, x: Tensor) -> Tensor:
        return x if self._rows is None else x.index_select(0, self._rows)


class Column(NamedTuple):
    """Where a parameter stands among all values."""

    where: int | slice  # one number a sample, or a vector
    whole: bool


class Place(NamedTuple):
    """One transform's share of each kind of column."""

    columns: dict[str, Column]
    noises: slice
    partner: int | None


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
