"""Views as a source for the packer: every copy of every sample, augmented batch by batch.

Copy c of a generation that begins with epoch e is the view that ``augment`` makes in epoch e + c.
Batches are always the same ones and run on one thread, and random numbers are keyed by what is made:
a generation that is made again, by other processes or after a kill, is the same to the bit.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from stoker.errors import BadSampleError, StokerError, TransformIdentityError, UsageError
from stoker.loader._course import INDEX
from stoker.loader._permutation import derive
from stoker.loader._seeding import seeded
from stoker.store import Store
from stoker.store._identity import transform_entry

Batch = dict[str, Any]


class ViewMaker:
    """Makes the views of a generation.

    Args:
        store: the samples.
        augment: ``augment(batch, index=..., epoch=...)`` on dicts of tensors, or, with ``per_sample``,
            ``augment(sample)`` on dicts of arrays.
        copies: views of each sample.
        first_epoch: the epoch whose views the first copies are.
        seed: of the random numbers that ``augment`` draws from Python, NumPy or torch.
        per_sample: see ``augment``.
    """

    def __init__(
        self,
        store: Store,
        augment: Callable[..., Any],
        *,
        copies: int,
        first_epoch: int,
        seed: int,
        per_sample: bool,
    ) -> None:
        self._store = store
        self._augment = augment
        self._epochs = range(first_epoch, first_epoch + copies)
        self._seed = seed
        self._per_sample = per_sample

    def make(self, rows: range) -> list[Any]:
        """The views in these rows, of whole samples: all copies of the first one, then of the next."""
        copies = len(self._epochs)
        numbers = range(rows.start // copies, rows.stop // copies)
        each = self._singly if self._per_sample else self._together
        by_epoch = [each(numbers, epoch) for epoch in self._epochs]
        return [views[place] for place in range(len(numbers)) for views in by_epoch]

    def key(self, row: int) -> str:
        """The sample's key and the number of the copy."""
        number, copy = divmod(row, len(self._epochs))
        return f"{self._store.key(number)}#{copy}"

    def _singly(self, numbers: range, epoch: int) -> list[Any]:
        views = []
        for number in numbers:
            sample = self._store[number]
            with self._keyed(epoch, range(number, number + 1)):
                views.append(self._augment(sample))
        return views

    def _together(self, numbers: range, epoch: int) -> list[Any]:
        import torch

        index = torch.arange(numbers.start, numbers.stop)
        fields = self._store[numbers.start : numbers.stop]
        batch = {name: _tensors(values) for name, values in fields.items()}
        with self._keyed(epoch, numbers):
            views = self._augment({**batch, INDEX: index}, index=index, epoch=epoch)
        return _rows(views, len(numbers))

    @contextlib.contextmanager
    def _keyed(self, epoch: int, numbers: range) -> Iterator[None]:
        """Random numbers for these samples; an error of the user's code names the first of them."""
        try:
            with seeded(derive(self._seed, epoch, numbers.start)):
                yield
        except StokerError:
            raise
        except Exception as error:  # whatever a user's code raises
            others = f" of this sample and the {len(numbers) - 1} after it" if len(numbers) > 1 else ""
            raise BadSampleError(
                self._store.key(numbers.start), f"augment failed{others}: {type(error).__name__}: {error}"
            ) from error


def augment_identity(augment: Callable[..., Any], version: str | None) -> str:
    """A text that is the same wherever ``augment`` does the same: its name and what it is made of.

    Compared as a packing transform is.

    Raises:
        TransformIdentityError: a parameter cannot be compared between runs; says which.
    """
    try:
        entry = transform_entry(augment, version)
    except TransformIdentityError as error:
        raise TransformIdentityError(str(error).replace("transform_version", "version")) from error
    return f"{entry.name} {entry.identity[:16]}"


def _tensors(values: Any) -> Any:
    """Tensors of a field's values: one of all, or a list where they differ in size; text as it is."""
    import torch

    if isinstance(values, np.ndarray):
        return torch.from_numpy(values)
    return [value if isinstance(value, str) else torch.from_numpy(value) for value in values]


def _rows(views: Any, num_samples: int) -> list[Batch]:
    """A batch cut into samples."""
    if not isinstance(views, Mapping):
        raise UsageError(f"augment must give a dict of tensors, got {type(views).__name__}")
    columns = {name: _column(name, value, num_samples) for name, value in views.items() if name != INDEX}
    return [{name: column[row] for name, column in columns.items()} for row in range(num_samples)]


def _column(name: str, value: Any, num_samples: int) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    sizes = getattr(value, "shape", None)
    found = sizes[:1] if sizes is not None else (len(value),)
    if tuple(found) != (num_samples,):
        raise UsageError(
            f"augment must give a value for each of {num_samples} samples, field {name!r} has {list(found)}"
        )
    return value
