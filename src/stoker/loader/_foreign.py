"""Any map-style Dataset: its Python runs in processes, by PyTorch's DataLoader, set as it should be.

Workers are as many as the usable cores, stay alive between epochs and use one thread each. Random
numbers (random, numpy, torch) are seeded for each sample by (seed, epoch, sample): the same sample
comes out the same, whatever worker, batch or resumed run it falls into.
"""

import traceback
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stoker.errors import BadSampleError, WorkerDiedError
from stoker.loader._collate import Collation, tensors_of
from stoker.loader._course import INDEX, Course, Fetched
from stoker.loader._fork_safe import ForkSafe
from stoker.loader._permutation import derive
from stoker.loader._seeding import seeded
from stoker.store._samples import Sample, canonical
from stoker.store._worker_process import one_thread

if TYPE_CHECKING:
    import torch

Request = tuple[int, int]  # epoch and sample number


class DatasetReader:
    """What the loader must know of a dataset."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        kind = type(dataset)
        self.identity = f"{kind.__module__}.{kind.__qualname__}:{len(dataset)}"

    def __len__(self) -> int:
        return len(self.dataset)

    def key(self, number: int) -> str:
        """The dataset's own key, or the number."""
        return _key(self.dataset, number)


class DatasetWorkers(ForkSafe):
    """Batches of a dataset, read and collated in processes; after a fork, in new ones."""

    def __init__(
        self, dataset: Any, *, seed: int, collation: Collation, num_workers: int, pin_memory: bool
    ) -> None:
        import torch
        from torch.utils.data import DataLoader

        super().__init__()
        self._schedule = _Schedule()
        self._loader: DataLoader[Any] = DataLoader(
            _Seeded(dataset, seed),  # type: ignore[arg-type]  # all that a map-style dataset needs
            batch_sampler=self._schedule,
            collate_fn=_Collate(collation),
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            prefetch_factor=2 if num_workers > 0 else None,
            pin_memory=pin_memory,
            worker_init_fn=_init_worker,
            generator=torch.Generator(),  # else it would draw from the user's random numbers
        )

    def batches(self, course: Course, *, skip_bad: bool) -> Generator[Fetched]:
        """The batches of the course's remaining steps, in order.

        Raises:
            BadSampleError: a sample cannot be read; has the worker's traceback as a note.
            WorkerDiedError: a worker was killed.
        """
        self._schedule.course = course
        batches = iter(self._loader)
        for step in range(len(self._schedule)):
            try:
                batch: _Collated = next(batches)
            except RuntimeError as error:
                if "DataLoader worker" not in str(error):
                    raise
                raise WorkerDiedError(
                    f"a worker that read samples was killed (out of memory? use fewer workers): {error}"
                ) from error
            bad = [sample.to_error() for sample in batch.bad]
            if bad and not skip_bad:
                raise bad[0]
            index = batch.tensors[INDEX]
            yield Fetched(step, len(index), batch.tensors, index, bad)

    def close(self) -> None:
        """End the workers."""
        shutdown = getattr(self._forget_iterator(), "_shutdown_workers", None)
        if shutdown is not None:
            shutdown()

    def start_anew(self) -> None:
        """Leave the workers alone: they are the parent's, and letting go of their iterator would end them."""
        super().start_anew()
        iterator = self._forget_iterator()
        if iterator is not None:
            iterator._shutdown = True  # noqa: SLF001 - says that there is nothing to end

    def _forget_iterator(self) -> Any:
        iterator, self._loader._iterator = self._loader._iterator, None  # noqa: SLF001 - it has no close
        return iterator


@dataclass(frozen=True)
class BadSample:
    """A sample that could not be read, as it travels from worker to loader."""

    key: str
    why: str
    trace: str

    def to_error(self) -> BadSampleError:
        """As an exception, with the worker's traceback as a note."""
        error = BadSampleError(self.key, self.why)
        error.add_note(self.trace)
        return error


@dataclass
class _Collated:
    tensors: dict[str, Any]
    bad: list[BadSample]

    def pin_memory(self) -> "_Collated":
        """PyTorch calls this where batches are pinned."""
        pinned = {
            name: value.pin_memory() if hasattr(value, "pin_memory") else value
            for name, value in self.tensors.items()
        }
        return _Collated(pinned, self.bad)


class _Schedule:
    """The requests of each step that is left, for PyTorch's DataLoader."""

    course: Course

    def __len__(self) -> int:
        return self.course.plan.num_steps(self.course.consumed)

    def __iter__(self) -> Iterator[list[Request]]:
        course = self.course
        for step in range(len(self)):
            positions = course.plan.positions(course.consumed, step)
            numbers = course.order.at(course.epoch, positions)
            yield [(course.epoch, number) for number in numbers.tolist()]


class _Seeded:
    """The dataset, asked with epoch and number, its random numbers keyed by both."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset = dataset
        self._seed = seed

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, request: Request) -> tuple[int, Sample] | BadSample:
        epoch, number = request
        key = _key(self._dataset, number)
        try:
            with seeded(derive(self._seed, epoch, number)):
                return number, canonical(self._dataset[number], key)
        except BadSampleError as error:
            return BadSample(error.key, error.why, traceback.format_exc())
        except Exception as error:  # noqa: BLE001 - whatever a user's code raises belongs to this sample
            return BadSample(key, f"{type(error).__name__}: {error}", traceback.format_exc())


class _Collate:
    """Samples to a batch, in the worker."""

    def __init__(self, collation: Collation) -> None:
        self._collation = collation

    def __call__(self, samples: list[tuple[int, Sample] | BadSample]) -> _Collated:
        import torch

        good = [sample for sample in samples if not isinstance(sample, BadSample)]
        bad = [sample for sample in samples if isinstance(sample, BadSample)]
        tensors: dict[str, Any] = {INDEX: torch.tensor([number for number, _ in good], dtype=torch.int64)}
        for name in good[0][1] if good else ():
            values: list[Any] = [sample[name] for _, sample in good]
            if isinstance(values[0], str) or len({value.shape for value in values}) > 1:
                tensors |= tensors_of(self._collation({name: values}))
            else:
                tensors[name] = _stack(values)
        return _Collated(tensors, bad)


def _stack(values: list[Any]) -> "torch.Tensor":
    import torch

    return torch.from_numpy(np.stack(values))


def _key(dataset: Any, number: int) -> str:
    return str(dataset.key(number)) if hasattr(dataset, "key") else str(number)


def _init_worker(worker: int) -> None:  # noqa: ARG001 - PyTorch's signature
    one_thread()
