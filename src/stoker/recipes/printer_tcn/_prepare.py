"""Packing: layers become samples of a store, each one array [T, 22] in physical units."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xxhash

from stoker.recipes._raw import pack_usable
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
    found, bad = pack_usable(
        LayerSource(layers),
        None if validate_only else store,
        what=f"layers of {data}",
        fields=("num_steps",),
        force=force,
        workers=workers,
        progress=settings.progress,
    )
    num_steps = {key: int(each) for key, (each,) in found.items()}
    counts = _counts([each for each in layers if each.key in found], num_steps, settings)
    return Prepared(store, len(found), counts, (*problems, *bad))


def _counts(layers: Sequence[Layer], found: Mapping[str, int], settings: PrinterSettings) -> dict[str, Any]:
    span = settings.windows.length + settings.windows.horizon
    return {
        "parts": dict(Counter(each.part for each in layers)),
        "layers": len(layers),
        "steps": sum(found.values()),
        "layers too short for a window": sum(steps < span for steps in found.values()),
    }
