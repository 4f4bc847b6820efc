"""The data of a run: a store of faces, which of them are for what, and their batches."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

import stoker
from stoker.errors import SourceError, UsageError
from stoker.recipes._raw import is_store
from stoker.recipes.face_parsing._prepare import prepare
from stoker.recipes.face_parsing._settings import FaceSettings, ImageSettings
from stoker.recipes.face_parsing._synthetic import make_synthetic

FIELDS = ("image", "mask", "part", "labelled", "height", "width")


def store_path(settings: FaceSettings) -> Path:
    """Where the run's store is, or will be."""
    if settings.data is None:
        return settings.out / f"synthetic-{settings.images.size}.stoker"
    if is_store(settings.data):
        return settings.data
    return settings.out / f"{settings.data.resolve().name}-{settings.images.size}.stoker"


def make_store(settings: FaceSettings) -> tuple[str, ...]:
    """Have the run's store ready; one process of a run does this. Gives what should be said about it.

    What is packed already is not packed again: an unchanged folder costs a look at each file's time.
    """
    path = store_path(settings)
    if path == settings.data:
        return ()
    data = settings.data
    if data is None:
        data = settings.out / "synthetic"
        make_synthetic(data, settings.synthetic, seed=settings.seed)
    prepared = prepare(data, path, settings)
    num_more = max(0, len(prepared.problems) - 5)
    more = (f"… and {num_more} problems more",) if num_more else ()
    return (f"{prepared.num_samples} faces packed in {path}", *prepared.problems[:5], *more)


def open_faces(settings: FaceSettings) -> stoker.Store:
    """Open the run's store.

    Raises:
        SourceError: it is one of something else.
        UsageError: its images have another size than the settings say.
    """
    store = stoker.open(store_path(settings))
    missing = [name for name in FIELDS if name not in store.fields]
    if missing:
        raise SourceError(
            f"{store.path} is a store of something else: it has no field {missing[0]!r}; "
            f"stoker pack --recipe face-parsing makes one of faces"
        )
    size, wanted = store.fields["mask"].shape[-1], settings.images.size
    if size != wanted:
        raise UsageError(
            f"{store.path} has images of {size} pixels an edge, and {wanted} are asked for; "
            f"say --set images.size={size} to train, or pack it again with --set images.size={wanted}"
        )
    return store


def split_faces(store: stoker.Store, settings: ImageSettings) -> dict[str, NDArray[np.int64]]:
    """The numbers of the samples for "train", "val" and "test", and of "all".

    Images that were in a folder for validation are for that. If none were, some of those for training
    are: by a hash of the name, so that adding images never moves another one.
    """
    parts = np.array([str(part) for part in store.column("part")])
    split = parts.copy()
    if not (parts == "val").any():
        own = np.flatnonzero(parts == "train")
        places = np.array([_place(store.key(int(i)), settings.split_seed) for i in own])
        held_out = places < settings.val_fraction
        if len(own) > 1 and not held_out.any():
            held_out = places == places.min()
        split[own[held_out]] = "val"
    return {
        "all": np.arange(len(parts)),
        **{name: np.flatnonzero(split == name) for name in ("train", "val", "test")},
    }


def select(store: stoker.Store, settings: FaceSettings, split: str) -> stoker.Store:
    """The faces of a split.

    Raises:
        SourceError: there are none.
    """
    numbers = split_faces(store, settings.images)
    if not len(numbers[split]):
        there_are = ", ".join(f"{len(numbers[name])} for {name}" for name in ("train", "val", "test"))
        raise SourceError(
            f"there must be faces for {split!r}, and there are {there_are}; images with masks belong into "
            f"train/images and train/masks, others into test/images"
        )
    return store.select(numbers[split])


def choose_split(store: stoker.Store, settings: FaceSettings, *, with_masks: bool) -> str:
    """The split that the settings name; else the test images, if there are (with masks), or validation."""
    if settings.evaluation.split is not None:
        return settings.evaluation.split
    test = split_faces(store, settings.images)["test"]
    labelled = np.asarray(store.column("labelled"), bool)[test]
    return "test" if len(test) and (labelled.all() or not with_masks) else "val"


def make_loader(
    store: stoker.Store,
    settings: FaceSettings,
    *,
    device: Any,
    shuffle: bool = False,
    augment: Callable[..., Any] | None = None,
    fields: Sequence[str] = ("image", "mask"),
    alone: bool = False,
) -> stoker.Loader:
    """Batches of faces; `alone` gives this process all of them, whatever other ranks there are."""
    ask = settings.loading
    return stoker.Loader(
        store,
        settings.training.batch_size,
        shuffle=shuffle,
        seed=settings.seed,
        device=device,
        augment=augment,
        fields=fields,
        num_workers=ask.num_workers,
        memory_bytes=ask.memory_bytes,
        preload=ask.preload,
        cache=ask.cache,
        rank=0 if alone else None,
        world_size=1 if alone else None,
    )


def _place(key: str, seed: int) -> float:
    """From 0 to 1, by the face's name and the seed."""
    return xxhash.xxh3_64_intdigest(f"{seed} {key}".encode()) / 2.0**64
