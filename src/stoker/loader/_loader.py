"""The loader: shuffled batches on the device, resumable to the sample."""

import functools
import os
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.config import usable_cores
from stoker.errors import BadSampleError, StoreWriteError, UsageError
from stoker.loader._arrivals import warn_of_thrashing
from stoker.loader._collate import Collation, Ragged
from stoker.loader._course import Course, Fetched
from stoker.loader._decoded import decoded
from stoker.loader._device import Transfer
from stoker.loader._foreign import DatasetReader, DatasetWorkers
from stoker.loader._made_ahead import made_ahead
from stoker.loader._order import Order, QuasiRandom, Sequential, Shuffled, Weighted
from stoker.loader._plan import Plan
from stoker.loader._preload import check_preload, populate
from stoker.loader._readers import Reader, StoreReader, WindowReader
from stoker.loader._state import check_state, make_state
from stoker.loader._threads import ThreadFeed
from stoker.loader._views import ViewCache
from stoker.loader._views_feed import ViewFeed
from stoker.loader._windows import Windows
from stoker.store import Store

if TYPE_CHECKING:
    import torch

Batch = dict[str, Any]


class Loader:
    """Batches of a store (or a split of one) as dicts of tensors on the device, with ``index``.

    Each iteration is one epoch. The order depends on (seed, epoch) alone; ranks and batch sizes take
    slices of it. A new iteration is the next epoch, unless ``set_epoch`` or ``load_state_dict`` said
    which; one that is left early counts as an epoch.

    On the CPU, tensors are views of buffers that are used again when no part of the batch is held
    any more: a batch that is kept never changes, and a plain loop never allocates.

    Args:
        source: an open store, a split or selection of one, a ``ViewCache``, ``stoker.windows`` over
            sessions, or any map-style Dataset, which is read in processes.
        batch_size: samples a rank gets in a step.
        shuffle: False for the store's order; "quasi" for long runs, for data larger than memory.
        seed: of the order.
        device: where the tensors shall be.
        augment: called as ``augment(batch, index=..., epoch=...)``; the batch is on the device, the index,
            from which random numbers are made, on the host.
        augment_ahead: augment the next batch in a thread while the last one is used; a number n, the next n
            in as many threads, from all of which ``augment`` must be safe to call, as a pipeline is. By
            default one, where batches stay on the CPU and there is an accelerator that would wait; where
            the model computes on the CPU too, both would only share its cores.
        rank: of this process; by default that of torch.distributed, or 0.
        world_size: number of processes; likewise.
        drop_last: leave out the last, smaller step.
        pad: fill it with samples from the epoch's start instead, so that all steps are equal.
        weights: draw samples with replacement, by these weights.
        fields: only these.
        ragged: how samples of unequal size become a batch: "pad" (and ``NAME_length``), "pack" end to end
            (and ``NAME_offset``), or "list".
        pad_values: by field, what is padded with; zeros where it is not said. Give masks a class that the
            loss ignores: ``{"mask": 255}``.
        num_workers: threads that read a store, processes that run a Dataset; by default one a usable core.
        memory_bytes: for batches read ahead; by default an eighth of what is available, at most 1 GiB.
        cache: a folder for an uncompressed copy of a compressed store, made once and shared by all
            processes; "auto" for one in the system's temporary folder, and none if it does not fit.
            See ``stoker.loader.decoded``.
        preload: bring all of it into memory before the first batch; a number: at most so many bytes.
        on_bad_sample: "skip" leaves out samples that cannot be read; see ``bad_samples``.
        run_length, pool: of the "quasi" order: neighbouring samples in a run, runs mixed together.
    """

    def __init__(
        self,
        source: Any,
        batch_size: int = 64,
        *,
        shuffle: bool | Literal["quasi"] = True,
        seed: int = 0,
        device: "str | torch.device" = "cpu",
        augment: Callable[..., Batch] | None = None,
        augment_ahead: bool | int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
        pad: bool = False,
        weights: Sequence[float] | NDArray[Any] | None = None,
        fields: Sequence[str] | None = None,
        ragged: Ragged = "pad",
        pad_values: Mapping[str, float] | None = None,
        num_workers: int | None = None,
        memory_bytes: int | None = None,
        cache: str | os.PathLike[str] | None = None,
        preload: bool | int = False,
        on_bad_sample: Literal["raise", "skip"] = "raise",
        run_length: int = 64,
        pool: int = 256,
    ) -> None:
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0
        self.bad_samples: list[BadSampleError] = []
        self._transfer = Transfer(device)
        self.data = _data(source if cache is None else _cached(source, cache, fields), fields)
        self._order, self._kind = _order(len(self.data), shuffle, seed, weights, run_length, pool)
        self.plan = Plan(self._order.length, batch_size, *_rank(rank, world_size), drop_last, pad)
        self._augment = augment
        self._num_ahead = 0 if augment is None else _num_ahead(augment_ahead, self._transfer.device)
        self._under_way: weakref.ref[Batches] | None = None
        self._skip_bad = _is_skip(on_bad_sample)
        self._consumed = 0
        self._started = False  # whether the current epoch was iterated over
        collation = Collation(ragged, pad_values)
        check_preload(preload, is_store=isinstance(self.data, StoreReader | ViewCache))
        self._feed: ThreadFeed | DatasetWorkers | ViewFeed
        if isinstance(self.data, DatasetReader):
            self._feed = DatasetWorkers(
                self.data.dataset,
                seed=seed,
                collation=collation,
                num_workers=usable_cores() if num_workers is None else num_workers,
                pin_memory=self._transfer.pinned,
            )
            return
        make_feed = functools.partial(
            ThreadFeed,
            transfer=self._transfer,
            batch_size=batch_size,
            collation=collation,
            num_threads=num_workers or usable_cores(),
            memory_bytes=memory_bytes,
        )
        if isinstance(self.data, ViewCache):
            self._feed = ViewFeed(self.data, make_feed, preload=preload)
            return
        self._feed = make_feed(self.data)
        if isinstance(self.data, StoreReader):
            warn_of_thrashing(self.data.store, self._order)
            populate(self._feed, self.data, preload)

    def __len__(self) -> int:
        """Steps of one epoch."""
        return self.plan.num_steps()

    def __iter__(self) -> Iterator[Batch]:
        if self._started:
            self.epoch, self._consumed = self.epoch + 1, 0
        self._started = True
        self._end_augmenting()
        course = Course(self._order, self.plan, self.seed, self.epoch, self._consumed)
        batches = Batches(self, self._batches(course))
        if self._num_ahead:
            self._under_way = weakref.ref(batches)
        return batches

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration the whole epoch of that number."""
        if epoch < 0:
            raise UsageError(f"epoch must be at least 0, got {epoch}")
        self.epoch, self._consumed, self._started = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: a few numbers; all ranks have the same."""
        return make_state(self, self._kind, self._consumed)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state says, whatever batch size, ranks and threads were used then.

        Raises:
            UsageError: the state is of other data, another seed or another kind of order.
        """
        if isinstance(self.data, ViewCache):
            self.data.check_identity(state.get("data"))
        self.epoch, self._consumed = check_state(self, self._kind, state)
        self._started = False

    def close(self) -> None:
        """Stop reading and let go of threads and processes; the loader can be used again."""
        self._end_augmenting()
        self._feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ranks = f", rank {self.plan.rank} of {self.plan.world_size}" if self.plan.world_size > 1 else ""
        return f"Loader({len(self.data)} samples, {len(self)} steps of {self.batch_size}{ranks})"

    def _end_augmenting(self) -> None:
        """A thread that makes a batch ahead reads from the feed, which must be left alone then."""
        batches = None if self._under_way is None else self._under_way()
        self._under_way = None
        if batches is not None:
            batches.close()

    def _batches(self, course: Course) -> Generator[Batch]:
        fetched = self._transfer.ahead(self._feed.batches(course, skip_bad=self._skip_bad))
        make = functools.partial(self._augmented, course.epoch)
        made = made_ahead(fetched, make, self._num_ahead) if self._num_ahead else (make(f) for f in fetched)
        for step, bad, batch in made:
            self.bad_samples.extend(bad)
            self._consumed = course.consumed_after(step)
            if batch is not None:
                yield batch
            del batch  # whoever keeps it is the user: its slot may be free by the next step

    def _augmented(self, epoch: int, fetched: Fetched) -> tuple[int, Sequence[BadSampleError], Batch | None]:
        """The step, what was bad in it, and its batch; None if every sample was bad."""
        batch = fetched.tensors if fetched.num_samples else None
        if batch is not None and self._augment is not None:
            batch = self._augment(batch, index=fetched.index, epoch=epoch)
        return fetched.step, fetched.bad, batch


class Batches(Iterator[Batch]):
    """One pass over a loader. A class, so that whoever measures can watch its ``__next__``."""

    def __init__(self, loader: Loader, made: Generator[Batch]) -> None:
        self.loader = loader
        self._made = made

    def __next__(self) -> Batch:
        return next(self._made)

    def close(self) -> None:
        """End it early; what was read ahead is let go."""
        self._made.close()


def _cached(source: Any, cache: str | os.PathLike[str], fields: Sequence[str] | None) -> Store:
    """The decoded store; with "auto" the compressed one where there is no room for it."""
    if not isinstance(source, Store):
        raise UsageError(f"cache is for stores, got {type(source).__name__}; leave it out")
    if cache != "auto":
        return decoded(source, cache, fields=fields)
    try:
        return decoded(source, fields=fields)
    except StoreWriteError as error:
        warnings.warn(f"no decoded cache, chunks are decoded at each read: {error}", stacklevel=3)
        return source


def _data(source: Any, fields: Sequence[str] | None) -> Reader | DatasetReader | ViewCache:
    if isinstance(source, Store):
        return StoreReader(source, None if fields is None else tuple(fields))
    if fields is not None:
        raise UsageError("fields can be chosen of a store; a dataset gives what it gives")
    if isinstance(source, ViewCache):
        return source
    if isinstance(source, Windows):
        return WindowReader(source)
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise UsageError(
            f"a loader reads a store, or a dataset with __len__ and __getitem__, got {type(source).__name__}"
        )
    return DatasetReader(source)


def _order(
    num_samples: int,
    shuffle: bool | str,  # noqa: FBT001 - the public option
    seed: int,
    weights: Sequence[float] | NDArray[Any] | None,
    run_length: int,
    pool: int,
) -> tuple[Order, str]:
    """The order, and a name that is the same for equal orders."""
    if num_samples == 0:
        raise UsageError("there are no samples to load; a split may be empty")
    if weights is not None:
        given = np.asarray(weights, np.float64)
        if len(given) != num_samples:
            raise UsageError(f"weights must be one a sample, got {len(given)} for {num_samples}")
        return Weighted(given, seed, length=num_samples), f"weighted {xxhash.xxh3_64_hexdigest(given.data)}"
    if shuffle == "quasi":
        order = QuasiRandom(num_samples, seed, run_length=run_length, pool=pool)
        return order, f"quasi {run_length} {pool}"
    if shuffle not in {True, False}:
        raise UsageError(f"shuffle must be True, False or 'quasi', got {shuffle!r}")
    return (Shuffled(num_samples, seed), "shuffled") if shuffle else (Sequential(num_samples), "sequential")


def _rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The given ones, or those of torch.distributed where it is in use."""
    if (rank is None) != (world_size is None):
        raise UsageError(f"rank and world_size go together, got {rank} and {world_size}")
    if rank is not None and world_size is not None:
        return rank, world_size
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _num_ahead(wanted: bool | int | None, device: "torch.device") -> int:  # noqa: FBT001 - the public option
    import torch

    if wanted is None:
        return int(device.type == "cpu" and torch.accelerator.is_available())
    if not isinstance(wanted, int) or wanted < 0:
        raise UsageError(f"augment_ahead must be True, False or a number of batches, got {wanted!r}")
    return int(wanted)


def _is_skip(on_bad_sample: str) -> bool:
    if on_bad_sample not in {"raise", "skip"}:
        raise UsageError(f"on_bad_sample must be 'raise' or 'skip', got {on_bad_sample!r}")
    return on_bad_sample == "skip"
