"""A store of layers, dealt to splits and standardised once, as windows that are found by arithmetic.

Every row is standardised once and kept in a second store beside the run, `normalized.stoker`, out of which
windows are copied as they are. Neither a window nor a batch is ever scaled, and no window is stored.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

import stoker
from stoker.errors import SourceError, StoreNotFoundError
from stoker.loader import Windows
from stoker.recipes.printer_tcn._layout import COLUMNS
from stoker.recipes.printer_tcn._prepare import prepare
from stoker.recipes.printer_tcn._scaler import Scaler, fit_scaler
from stoker.recipes.printer_tcn._settings import PrinterSettings, SplitSettings, WindowSettings

SPLITS = ("train", "val", "test")
_FIELDS = {"series", "part", "layer", "rate"}


@dataclass(frozen=True)
class Layers:
    """A store of layers, in physical units or standardised, and what each layer is for."""

    store: stoker.Store
    splits: tuple[str, ...]  # of each layer
    rate: float  # Hz

    def members(self, split: str) -> list[int]:
        """The numbers of a split's layers (or of "all").

        Raises:
            SourceError: it has none.
        """
        chosen = [i for i, each in enumerate(self.splits) if split in ("all", each)]
        if not chosen:
            counts = Counter(self.splits)
            there_are = ", ".join(f"{counts[name]} for {name}" for name in SPLITS)
            raise SourceError(
                f"there must be a layer for {split!r}, and there are {there_are}; bring at least three "
                f"parts, name parts in splits.val and splits.test, or set splits.by to layer"
            )
        return chosen

    def windows(
        self, split: str, settings: WindowSettings, *, train: bool = False, stride: int | None = None
    ) -> Windows:
        """Windows "series" [length + horizon, 22] over a split's layers; those for training are jittered."""
        return stoker.windows(
            self.store.select(self.members(split)),
            length=settings.length + settings.horizon,
            stride=stride or settings.stride,
            jitter=settings.training_jitter if train else 0,
            fields=["series"],
            time_axis=0,
        )

    def scaler(self) -> Scaler:
        """Fitted on the training layers alone."""
        return fit_scaler(self.series(i) for i in self.members("train"))

    def series(self, i: int) -> NDArray[np.float32]:
        """A layer's columns, [T, 22]."""
        return np.asarray(self.store[i]["series"], np.float32)


class NormalizedSource:
    """The layers of a store, standardised."""

    def __init__(self, layers: Layers, scaler: Scaler) -> None:
        self.channel_axis = {"series": 1}
        self._layers, self._scaler = layers, scaler
        self._identity = xxhash.xxh3_128_digest(json.dumps((scaler.mean, scaler.scale)).encode())

    def __len__(self) -> int:
        return len(self._layers.store)

    def key(self, i: int) -> str:
        """That of the layer."""
        return self._layers.store.key(i)

    def fingerprint(self, i: int) -> bytes:
        """Changes with the layer and with the scaler."""
        return xxhash.xxh3_128_digest(self._layers.store.index.fingerprints[i].tobytes() + self._identity)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"series": self._scaler.transform(self._layers.series(i))}


def make_store(data: Path, settings: PrinterSettings) -> tuple[Path, tuple[str, ...]]:
    """The store of the data, which may be one already or is packed now; and what to say about it.

    One process of a run does this.
    """
    path = store_path(data, settings)
    if path == data:
        return path, ()
    prepared = prepare(data, path, settings)
    return path, prepared.problems


def store_path(data: Path, settings: PrinterSettings) -> Path:
    """Where the store of the data is, or will be."""
    if data.is_dir():
        try:
            stoker.open(data)
        except StoreNotFoundError:
            pass
        else:
            return data
    return settings.out / "layers.stoker"


def open_layers(path: Path, settings: SplitSettings) -> Layers:
    """Open a store of layers and deal them to splits.

    Raises:
        SourceError: it is a store of something else, or its layers were sampled at different rates.
    """
    store = stoker.open(path)
    missing = sorted(_FIELDS - set(store.fields))
    if missing or store.fields["series"].shape[-1] != len(COLUMNS):
        raise SourceError(
            f"{path} is a store of something else: it has no field {', '.join(missing) or 'series'}; "
            f"stoker pack --recipe printer-tcn makes one of layers"
        )
    rates = np.unique(store.column("rate"))
    if len(rates) > 1:
        got = ", ".join(f"{each:g}" for each in rates)
        raise SourceError(f"all layers must have one sample rate, got {got} Hz; pack those of one alone")
    parts = [str(each) for each in store.column("part")]
    return Layers(store, deal(parts, store.column("layer"), settings), float(rates[0]))


def normalize(layers: Layers, scaler: Scaler, path: Path) -> None:
    """Write the layers' standardised copy, or what of it is missing or was made with another scaler."""
    stoker.pack(NormalizedSource(layers, scaler), path, workers=0, progress=False)


def deal(parts: Sequence[str], numbers: NDArray[Any], settings: SplitSettings) -> tuple[str, ...]:
    """What each layer is for, by the names of parts or by the numbers of layers; pure."""
    if settings.by == "layer":
        groups: dict[str, list[int]] = {}
        for i, part in enumerate(parts):
            groups.setdefault(part, []).append(i)
        found = [""] * len(parts)
        for members in groups.values():
            ordered = sorted(members, key=lambda i: int(numbers[i]))
            for place, i in enumerate(ordered):
                found[i] = _split(place, len(ordered))
        return tuple(found)
    named = dict.fromkeys(settings.val or (), "val") | dict.fromkeys(settings.test or (), "test")
    unknown = sorted(set(named) - set(parts))
    if unknown:
        raise SourceError(f"there is no part {unknown[0]!r}; there are {', '.join(sorted(set(parts)))}")
    if named:
        return tuple(named.get(part, "train") for part in parts)
    names = sorted(set(parts))
    split_of = {name: _split(place, len(names)) for place, name in enumerate(names)}
    return tuple(split_of[part] for part in parts)


def _split(place: int, count: int) -> str:
    """70, 15 and 15 %; the last ones are for the test, and each split has one if it can."""
    num_test = max(1, round(0.15 * count)) if count > 2 else 0
    num_val = max(1, round(0.15 * count)) if count > 1 else 0
    if place >= count - num_test:
        return "test"
    return "val" if place >= count - num_test - num_val else "train"
