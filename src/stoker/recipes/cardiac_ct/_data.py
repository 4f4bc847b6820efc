"""Volumes, packed or not, with the labels of their studies; and the batches that are made of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stoker
from stoker.errors import SourceError, StoreMismatchError, StoreNotFoundError, UsageError
from stoker.recipes.cardiac_ct._layout import (
    Labels,
    Study,
    find_studies,
    join_labels,
    known_studies,
    read_table,
    studies_path,
)
from stoker.recipes.cardiac_ct._settings import CardiacSettings, VolumeSettings
from stoker.recipes.cardiac_ct._source import RawVolumes, VolumeSource, preparation
from stoker.store._feed import Feed

_PART = 1 << 18  # voxels; measured for [8, 1, 224, 224, 160] on one thread: 55 ms, in one part 85 ms
_UPDATE = "stoker pack --recipe cardiac-ct brings it up to date"


@dataclass(frozen=True)
class Collection:
    """Studies with their labels; where `store` is set, the i-th study is its i-th sample."""

    studies: tuple[Study, ...]
    labels: Labels
    store: stoker.Store | None
    notes: tuple[str, ...]  # where the volumes come from, first; then what was left out

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Whether anything is known of each study, [N]."""
        return np.asarray(~np.isnan(self.labels.values).all(1))


def open_collection(data: Path, settings: CardiacSettings) -> Collection:
    """The studies of a folder, out of its store if that was packed, or of a store alone.

    Labels are read from their table now, whenever the volumes were packed.

    Raises:
        StoreMismatchError: the store's volumes were prepared by other settings.
        SourceError: there is no study.
    """
    try:
        alone = stoker.open(data)
    except (StoreNotFoundError, NotADirectoryError):
        return _of_folder(data, settings)
    if settings.studies.csv is None:
        raise UsageError(
            f"{data} is a store, and labels are not in it: name their table with --set studies.csv=FILE"
        )
    check_store(alone, settings.volume)
    table = read_table(settings.studies.csv, settings.studies.key)
    keys = [alone.key(i) for i in range(len(alone))]
    studies, missing = known_studies(keys, table, settings.studies, split_column=settings.splits.column)
    number = {key: i for i, key in enumerate(keys)}
    view = alone.select([number[each.key] for each in studies])
    notes = (f"volumes are read from the store {data}", *_shortened(missing))
    return _collection(studies, view, settings, settings.studies.csv, notes)


def check_store(store: stoker.Store, settings: VolumeSettings) -> None:
    """That its volumes are prepared as the settings say.

    Raises:
        SourceError: it is a store of something else.
        StoreMismatchError: they are not; names the settings that differ.
    """
    missing = [name for name in ("x", "preparation") if name not in store.fields]
    if missing:
        raise SourceError(
            f"{store.path} is a store of something else: it has no field {missing[0]!r}; "
            f"stoker pack --recipe cardiac-ct makes one of volumes"
        )
    wanted = json.loads(preparation(settings))
    for text in sorted(set(store.column("preparation"))):
        found = json.loads(str(text))
        if found != wanted:
            differing = ", ".join(
                f"{name} {found.get(name)} (now {wanted.get(name)})"
                for name in wanted | found
                if found.get(name) != wanted.get(name)
            )
            raise StoreMismatchError(
                f"{store.path} was packed with another volume.{differing}; take the settings it was packed "
                f"with, pack it again, or read the raw files with --set packed=never"
            )


@contextmanager
def volumes(collection: Collection, chosen: NDArray[np.int64], settings: CardiacSettings) -> Iterator[Any]:
    """What a loader reads the chosen studies from: a selection of the store, or the files themselves."""
    if collection.store is not None:
        yield collection.store.select(chosen)
        return
    raw = RawVolumes([collection.studies[i] for i in chosen], settings.volume)
    if settings.loading.cache_bytes is None:
        yield raw
        return
    with stoker.cache(raw, max_bytes=settings.loading.cache_bytes, when_full="keep") as cached:
        yield cached


@contextmanager
def batches(
    collection: Collection,
    chosen: NDArray[np.int64],
    settings: CardiacSettings,
    *,
    device: Any,
    shuffle: bool = False,
    augment: Any = None,
    preload: bool | int = False,
    alone: bool = False,
) -> Iterator[stoker.Loader]:
    """A loader of the chosen studies: x [B, 1, *size] from 0 to 1, targets [B, labels], index.

    `alone` gives this process all of them, whatever other ranks there are.
    """
    ask = settings.loading
    finish = Finish(collection.labels.values[chosen], settings.volume, augment)
    of_store: dict[str, Any] = {}
    if collection.store is not None:
        of_store = {"fields": ("x",), "memory_bytes": ask.memory_bytes, "cache": ask.cache}
    with (
        volumes(collection, chosen, settings) as source,
        stoker.Loader(
            source,
            batch_size=settings.training.batch_size,
            shuffle=shuffle,
            seed=settings.seed,
            device=device,
            augment=finish,
            num_workers=ask.num_workers,
            preload=preload,
            rank=0 if alone else None,
            world_size=1 if alone else None,
            **of_store,
        ) as loader,
    ):
        yield loader


class Finish:
    """What is done to a batch on the device: HU to 0 … 1, labels to their volumes, augmentation.

    Args:
        labels: float32 [N, labels] of the loader's samples, NaN where unknown.
        settings: which HU become 0 and 1.
        augment: a pipeline for x, or None.
    """

    def __init__(self, labels: NDArray[np.float32], settings: VolumeSettings, augment: Any) -> None:
        import torch

        from stoker.augment._memory import Memory

        self._labels = torch.from_numpy(np.ascontiguousarray(labels))
        self._scale = 1 / (settings.high - settings.low)
        self._offset = settings.low * self._scale
        self._augment = augment
        self._memory = Memory()

    def __call__(self, batch: Mapping[str, Any], *, index: Any, epoch: int) -> dict[str, Any]:
        import torch

        x = self._from_0_to_1(batch["x"])
        targets = self._labels[torch.as_tensor(index)].to(x.device, non_blocking=True)
        made = {**batch, "x": x, "targets": targets}
        if self._augment is None:
            return made
        changed: dict[str, Any] = self._augment(made, index=index, epoch=epoch)
        return changed

    def _from_0_to_1(self, stored: Any) -> Any:
        """In float32; on the host in parts that stay in the cache, and in memory that is used again."""
        import torch

        if stored.device.type != "cpu":
            return stored.float().mul_(self._scale).sub_(self._offset)
        x = self._memory.empty(tuple(stored.shape), torch.float32)
        parts = (torch.split(each.reshape(-1), _PART) for each in (stored, x))
        for before, after in zip(*parts, strict=True):
            after.copy_(before).mul_(self._scale).sub_(self._offset)
        return x


def _of_folder(data: Path, settings: CardiacSettings) -> Collection:
    table_path = studies_path(data, settings.studies)
    table = read_table(table_path, settings.studies.key)
    studies, problems = find_studies(data, table, settings.studies, split_column=settings.splits.column)
    store = None
    if settings.packed != "never":
        try:
            store = stoker.open(settings.store_path)
        except StoreNotFoundError:
            store = None
    if store is None:
        why = (
            "as packed=never says"
            if settings.packed == "never"
            else f"there is no store at {settings.store_path}, and stoker pack --recipe cardiac-ct makes it"
        )
        line = f"volumes are read and resampled from raw files in every epoch: {why}"
        return _collection(studies, None, settings, table_path, (line, *_shortened(problems)))
    check_store(store, settings.volume)
    fresh, left_out = _up_to_date(store, studies, settings.volume)
    if not fresh:
        raise StoreMismatchError(f"{store.path} has none of the {len(studies)} volumes in {data}; {_UPDATE}")
    view = store.select(list(fresh.values()))
    line = f"volumes are read from the packed store {store.path}"
    if left_out:
        line += f" ({left_out} that are not in it, or changed since, are left out: {_UPDATE})"
    used = tuple(each for each in studies if each.key in fresh)
    return _collection(used, view, settings, table_path, (line, *_shortened(problems)))


def _up_to_date(
    store: stoker.Store, studies: Sequence[Study], settings: VolumeSettings
) -> tuple[dict[str, int], int]:
    """The store's number of each study whose file is as it was packed, and how many others there are."""
    now = Feed(VolumeSource(studies, settings), None, store.manifest.transform.identity).fingerprints()
    number = {store.key(i): i for i in range(len(store))}
    fresh = {
        study.key: number[study.key]
        for study, print_now in zip(studies, now, strict=True)
        if study.key in number and store.fingerprint(number[study.key]) == print_now.tobytes()
    }
    return fresh, len(studies) - len(fresh)


def _collection(
    studies: tuple[Study, ...],
    store: stoker.Store | None,
    settings: CardiacSettings,
    table_path: Path,
    notes: tuple[str, ...],
) -> Collection:
    table = read_table(settings.labels.csv or table_path, settings.studies.key)
    labels = join_labels([each.key for each in studies], table, settings.labels)
    return Collection(studies, labels, store, (*notes, *_shortened(labels.problems)))


def _shortened(lines: Sequence[str], most: int = 5) -> tuple[str, ...]:
    more = len(lines) - most
    return (*lines[:most], *([f"and {more} more like these"] if more > 0 else []))
