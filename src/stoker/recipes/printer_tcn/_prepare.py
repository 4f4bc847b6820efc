"""Packing: layers become samples of a store, each one array [T, 22] in physical units."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import xxhash

import stoker
from stoker.config import usable_cores
from stoker.errors import BadSampleError, SourceError
from stoker.recipes._recipe import Prepared
from stoker.recipes.printer_tcn._layout import Layer, find_layers, read_layer
from stoker.recipes.printer_tcn._settings import PrinterSettings

_VERSION = 1  # raised when the same file would give another array than before


class LayerSource:
    """A sample a layer: series [T, 22], part, layer, rate (Hz), num_steps."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.channel_axis = {"series": 1}
        self._layers = layers

    def __len__(self) -> int:
        return len(self._layers)

    def key(self, i: int) -> str:
        """Folder and name of the file."""
        return self._layers[i].key

    def fingerprint(self, i: int) -> bytes:
        """Changes with the file."""
        layer = self._layers[i]
        state = layer.path.stat()
        facts = (_VERSION, layer.part, layer.number, layer.path.name, state.st_size, state.st_mtime_ns)
        return xxhash.xxh3_128_digest(json.dumps(facts).encode())

    def __getitem__(self, i: int) -> dict[str, Any]:
        layer = self._layers[i]
        series, rate = read_layer(layer)
        return {
            "series": series,
            "part": layer.part,
            "layer": layer.number,
            "rate": rate,
            "num_steps": len(series),
        }


def prepare(
    data: Path,
    store: Path,
    settings: PrinterSettings,
    *,
    force: bool = False,
    workers: int | None = None,
    validate_only: bool = False,
) -> Prepared:
    """Pack the layers of a folder or of a pattern of folders; those that cannot be used are listed.

    Raises:
        SourceError: none can be used.
    """
    layers, problems = find_layers(data)
    if validate_only:
        found, bad = _look_at_all(layers, workers)
    else:
        packed = stoker.pack(
            LayerSource(layers),
            store,
            on_error="skip",
            force=force,
            workers=workers,
            progress=settings.progress,
        )
        found = {packed.key(i): int(steps) for i, steps in enumerate(packed.column("num_steps"))}
        bad = [_look(layer) for layer in layers if layer.key not in found]
    if not found:
        raise SourceError(f"none of the {len(layers)} layers of {data} can be used; {bad[0]}")
    counts = _counts([each for each in layers if each.key in found], found, settings)
    return Prepared(store, len(found), counts, (*problems, *map(str, bad)))


def _counts(layers: Sequence[Layer], found: Mapping[str, int], settings: PrinterSettings) -> dict[str, Any]:
    span = settings.windows.length + settings.windows.horizon
    return {
        "parts": dict(Counter(each.part for each in layers)),
        "layers": len(layers),
        "steps": sum(found.values()),
        "layers too short for a window": sum(steps < span for steps in found.values()),
    }


def _look_at_all(layers: Sequence[Layer], workers: int | None) -> tuple[dict[str, int], list[int | str]]:
    """Steps of each layer that can be used; and what is wrong with others."""
    num_workers = min(usable_cores() if workers is None else workers, len(layers))
    if num_workers > 1:
        with ProcessPoolExecutor(num_workers) as pool:
            answers = list(pool.map(_look, layers, chunksize=4))
    else:
        answers = [_look(layer) for layer in layers]
    found = {
        layer.key: each for layer, each in zip(layers, answers, strict=True) if not isinstance(each, str)
    }
    return found, [each for each in answers if isinstance(each, str)]


def _look(layer: Layer) -> int | str:
    """The layer's steps, or why it cannot be used."""
    try:
        return len(read_layer(layer)[0])
    except BadSampleError as error:
        return str(error)
