"""Views made ahead: augmented samples in stores, made anew every few epochs.

    generation g = epochs g·R … g·R + R - 1        generation-<g>-<settings>.stoker: K views a sample

For augmentation that is too slow to run in every step. One process of the machine makes a
generation, the others wait; the next one is made beside the training. No more than two are on disk.
"""

import functools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.config import usable_cores
from stoker.errors import StoreWriteError, UsageError
from stoker.loader._block_source import BlockSource
from stoker.loader._made_once import made_once, open_whole, remove_damaged, remove_store, turn
from stoker.loader._permutation import derive, mix
from stoker.loader._room import check_room
from stoker.loader._views_ahead import Beside
from stoker.loader._views_source import ViewMaker, augment_identity
from stoker.store import Store, pack
from stoker.store._samples import canonical

_CHOICE = 4  # the purpose of a key, beside those of an order
_SHARD_BYTES = 16 << 20  # small ones: makers live for one generation, and their memory is fresh each time
_MOST_SHARDS = 4096


class ViewCache:
    """Precomputed views of a store's samples, as a source for ``stoker.Loader``.

    Epoch e shows one of ``copies`` views of each sample, of generation e // ``refresh_epochs``. Which
    one is a hash of (seed, epoch, sample), such that a generation's epochs use all views of a sample
    equally often, or nearly so. The views of a generation are those that the plain loader with
    ``augment=`` would make in the first of its epochs. All of it depends on the arguments alone:
    a missing or interrupted generation is made again to the same bit, on any number of processes.

    Views are made on the CPU, in forked processes of one thread each. ``augment`` gets neighbouring
    samples as a dict of tensors with ``index``; values of unequal size come as lists. It may change,
    add and drop fields, and gives a value for each sample. The next generation is made beside the
    training by processes of low priority, which die with this one.

    Args:
        store: an open store, or a split or selection of one.
        augment: called as ``augment(batch, index=..., epoch=...)``: a ``stoker.augment.Pipeline`` or any
            function; with ``per_sample`` as ``augment(sample)``, on a dict of arrays.
        path: a folder for the generations.
        copies: views of each sample in a generation, at most one an epoch.
        refresh_epochs: epochs after which all views are made anew.
        seed: of the choice of views, and of random numbers that ``augment`` takes from Python, NumPy
            or torch.
        batch_size: samples that ``augment`` gets at a time.
        workers: processes that make views; by default one a usable core.
        per_sample: whether ``augment`` takes single samples.
        version: stands for ``augment`` when runs are compared, instead of its code and parameters.
        ahead: make the next generation beside the training, not when its first epoch begins.

    Raises:
        TransformIdentityError: a parameter of ``augment`` cannot be compared between runs.
    """

    def __init__(
        self,
        store: Store,
        augment: Callable[..., Any],
        path: str | os.PathLike[str],
        *,
        copies: int = 2,
        refresh_epochs: int = 5,
        seed: int = 0,
        batch_size: int = 64,
        workers: int | None = None,
        per_sample: bool = False,
        version: str | None = None,
        ahead: bool = True,
    ) -> None:
        import torch  # noqa: F401 - before any fork: workers then use one thread of it

        _check(store, augment, copies, refresh_epochs, batch_size, workers)
        self.store = store
        self.path = Path(path)
        self.copies = copies
        self.refresh_epochs = refresh_epochs
        self.seed = seed
        self._augment = augment
        self._batch_size = 1 if per_sample else batch_size
        self._workers = usable_cores() if workers is None else workers
        self._per_sample = per_sample
        self._ahead = ahead
        self._beside: Beside | None = None
        self.settings = {
            "store": store.content_digest,
            "samples": f"{len(store)} {_digest(np.ascontiguousarray(store.numbers).tobytes())}",
            "fields": ", ".join(store.fields),
            "augment": augment_identity(augment, version),
            "per_sample": per_sample,
            "copies": copies,
            "refresh_epochs": refresh_epochs,
            "seed": seed,
            "batch_size": self._batch_size,
        }
        self.identity = json.dumps(self.settings)
        self._name = _digest(self.identity.encode())

    def __len__(self) -> int:
        """Samples, each of which an epoch shows once."""
        return len(self.store)

    def __repr__(self) -> str:
        return (
            f"ViewCache({str(self.path)!r}, {len(self)} samples, {self.copies} views each, "
            f"made anew every {self.refresh_epochs} epochs)"
        )

    def key(self, number: int) -> str:
        """The key of the sample in the store."""
        return self.store.key(number)

    def generation_of(self, epoch: int) -> int:
        """The generation whose views an epoch shows."""
        return epoch // self.refresh_epochs

    def rows(self, numbers: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Where the views that an epoch shows of these samples lie in the generation's store.

        Each turn of ``copies`` epochs begins with a view that is drawn anew and goes round from there.
        """
        generation, place = divmod(epoch, self.refresh_epochs)
        key = np.uint64(derive(self.seed, generation, place // self.copies, _CHOICE))
        first = mix(mix(numbers.astype(np.uint64) + key) ^ key) % np.uint64(self.copies)
        return numbers * self.copies + (first.astype(np.int64) + place) % self.copies

    def is_ready(self, generation: int) -> bool:
        """Whether a generation is there, whole."""
        return open_whole(self._target(generation)) is not None

    def generation(self, generation: int) -> Store:
        """The store of a generation; made now, or waited for, if it is not there.

        Sample ``number * copies + copy`` is a view of sample ``number``.

        Raises:
            StoreWriteError: there is no room for it.
            BadSampleError: ``augment`` failed; has the first sample of the batch that it was given.
        """
        if generation < 0:
            raise UsageError(f"generation must be at least 0, got {generation}")
        return made_once(self._target(generation), self._lock, lambda: self._make(generation, progress=True))

    def prepare(self, generation: int) -> None:
        """Begin to make a generation beside this process, unless it is there or being made."""
        if not self._ahead or (self._beside is not None and self._beside.running):
            return
        if not self.is_ready(generation):
            self.num_bytes  # noqa: B018 - here, where augment may use threads; the child must not
            self._beside = Beside(functools.partial(self._make_ahead, generation))

    @functools.cached_property
    def num_bytes(self) -> int:
        """Disk that a generation takes: as one that is there does, or by the first batch of views."""
        for _, path in self._on_disk():
            there = open_whole(path)
            if there is not None:
                return there.manifest.num_bytes
        return _estimated_bytes(self._maker(0), self.copies, min(self._batch_size, len(self)), len(self))

    def check_identity(self, identity: object) -> None:
        """Raise UsageError if the identity is that of a cache with other settings; says which."""
        try:
            theirs = json.loads(identity) if isinstance(identity, str) else {}
        except ValueError:
            theirs = {}
        if not isinstance(theirs, dict) or not theirs.keys() >= self.settings.keys():
            raise UsageError("the state is not of a loader of a view cache, this loader's data are one")
        for name, ours in self.settings.items():
            if theirs[name] != ours:
                raise UsageError(
                    f"the state was made with {name} {theirs[name]!r}, this view cache has {ours!r}; "
                    f"make the cache with the same {name}"
                )

    def close(self) -> None:
        """End the process that makes the next generation; what it finished is kept."""
        if self._beside is not None:
            self._beside.close()
        self._beside = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def _lock(self) -> Path:
        return self.path / f".views-{self._name}.lock"

    def _target(self, generation: int) -> Path:
        return self.path / f"generation-{generation}-{self._name}.stoker"

    def _on_disk(self) -> list[tuple[int, Path]]:
        """Generations with these settings, whole or not."""
        form = re.compile(rf"generation-(\d+)-{self._name}\.stoker")
        matches = [(form.fullmatch(path.name), path) for path in self.path.glob("generation-*")]
        return sorted((int(match[1]), path) for match, path in matches if match is not None)

    def _maker(self, generation: int) -> ViewMaker:
        return ViewMaker(
            self.store,
            self._augment,
            copies=self.copies,
            first_epoch=generation * self.refresh_epochs,
            seed=self.seed,
            per_sample=self._per_sample,
        )

    def _make_ahead(self, generation: int) -> None:
        """In the process beside: make it unless another rank does."""
        with turn(self._lock, wait=False) as held:
            if held and not self.is_ready(generation):
                remove_damaged(self._target(generation))
                self._make(generation, progress=False)

    def _make(self, generation: int, *, progress: bool) -> None:
        """Holding the lock: remove what is too old, and make the generation.

        The one before stays, for it is still in use; where there is no room for both it goes, unless
        we are ahead of its end.
        """
        target, what = self._target(generation), f"generation {generation} of {self!r}"
        for number, path in self._on_disk():
            if number not in {generation - 1, generation}:
                remove_store(path)
        num_bytes = self.num_bytes
        try:
            check_room(target, num_bytes, what)
        except StoreWriteError:
            if not progress:
                raise
            remove_store(self._target(generation - 1))
            check_room(target, num_bytes, what)
        maker, block_size = self._maker(generation), self._batch_size * self.copies
        source = BlockSource(
            len(self) * self.copies,
            block_size=block_size,
            make=maker.make,
            key=maker.key,
            identity=f"{self.identity} {generation}",
        )
        pack(
            source,
            target,
            workers=self._workers,
            batch_size=block_size,
            shard_bytes=max(_SHARD_BYTES, num_bytes // _MOST_SHARDS),
            progress=progress,
        )


def _estimated_bytes(maker: ViewMaker, copies: int, num_samples: int, num_total: int) -> int:
    """Of a whole generation, by the views of its first samples."""
    rows = range(num_samples * copies)
    views = [canonical(view, maker.key(row)) for row, view in zip(rows, maker.make(rows), strict=True)]
    fields = [value for view in views for value in view.values()]
    values = sum(len(value.encode()) if isinstance(value, str) else value.nbytes for value in fields)
    # beside the values: key, fingerprint, place, and a checksum a field
    return (values + 100 * len(views) + 8 * len(fields)) * num_total // num_samples


def _check(
    store: object, augment: object, copies: int, refresh_epochs: int, batch_size: int, workers: int | None
) -> None:
    if not isinstance(store, Store):
        raise UsageError(f"views are made of a store, got {type(store).__name__}; pack it first")
    if len(store) == 0:
        raise UsageError("there are no samples to make views of; a split may be empty")
    if not callable(augment):
        raise UsageError(f"augment must be callable, got {augment!r}")
    counts = {"copies": copies, "refresh_epochs": refresh_epochs, "batch_size": batch_size}
    for name, value in counts.items():
        if value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}")
    if copies > refresh_epochs:
        raise UsageError(
            f"copies must be at most refresh_epochs ({refresh_epochs}), got {copies}: an epoch shows one "
            "view of a sample, so that some would never be seen"
        )
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be at least 1, got {workers}: views are made in other processes")


def _digest(data: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(data)
