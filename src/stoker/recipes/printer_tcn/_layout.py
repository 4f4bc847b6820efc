"""Layers as the simulation writes them: a folder a part, a file a layer, a field a signal.

data_simulation_PART_LAYERS/layer01_ender3v2.mat   struct simulation_data, each field N x 1 (v7.3 or older)
data_simulation_PART_LAYERS/layer01_ender3v2.csv   or a table whose first row has the fields' names

Folders of one part with other numbers of layers are the same part. What is kept of a layer is one array
of float32, a row a time step, with the columns `COLUMNS`.
"""

import csv
import glob
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import BadSampleError, SourceError, UsageError
from stoker.store.sources._listing import has_magic
from stoker.store.sources._matlab import MatlabReader
from stoker.store.sources._nearest import did_you_mean, nearest_sibling
from stoker.store.sources._reader import reading

FEATURES = (
    *("x_ref", "y_ref", "z_ref", "vx_ref", "vy_ref", "vz_ref", "T_nozzle", "T_interface"),
    *("F_inertia_x", "F_inertia_y", "cooling_rate", "layer_num"),
)
STATES = ("error_x", "error_y")  # mm, hidden at every step
DRIVE = ("ax_ref", "ay_ref")  # mm/s², what drives them; for the physics, not for the model
TARGETS = ("adhesion_ratio", "internal_stress", "porosity", "dimensional_accuracy", "quality_score")
UNITS = {"error_x": "mm", "error_y": "mm", "internal_stress": "MPa", "porosity": "%"} | {
    "adhesion_ratio": "1",
    "dimensional_accuracy": "mm",
    "quality_score": "1",
}
KNOWN = "known"  # 1 where material is laid onto a layer below: elsewhere quality has no meaning
COLUMNS = (*FEATURES, *STATES, *DRIVE, *TARGETS, KNOWN)

STRUCT = "simulation_data"
PREFIX = "data_simulation_"
_READ = (*FEATURES[:-1], *STATES, *DRIVE, *TARGETS, "time")


@dataclass(frozen=True)
class Layer:
    """One file."""

    path: Path
    part: str
    number: int

    @property
    def key(self) -> str:
        """Folder and name, without suffix."""
        return f"{self.path.parent.name}/{self.path.stem}"


def find_layers(data: Path) -> tuple[tuple[Layer, ...], tuple[str, ...]]:
    """The layers below a folder, or below all folders of a pattern, and what is odd about others.

    Layers are in the order of their parts and numbers, whatever order the disk has.

    Raises:
        UsageError: there is no such folder, or none of the pattern.
        SourceError: it holds no layer.
    """
    folders = _folders(data)
    found: dict[str, Layer] = {}
    problems = []
    for folder in folders:
        part = part_of(folder.name)
        files = (each for suffix in ("mat", "csv") for each in folder.glob(f"layer*.{suffix}"))
        for path in sorted(files, key=lambda each: (each.stem, each.suffix != ".mat")):
            number = re.match(r"layer_?(\d+)", path.name)
            if number is None:
                problems.append(f"{folder.name}/{path.name} has no number of a layer in its name")
                continue
            layer = Layer(path, part, int(number[1]))
            first = found.setdefault(layer.key, layer)
            if first is not layer:
                problems.append(f"{layer.key} is there twice; that in {first.path} is taken")
    if not found:
        why = f"; {problems[0]}" if problems else ""
        raise SourceError(
            f"{data} holds no layer: files are called layer01_ender3v2.mat (or .csv), in folders called "
            f"{PREFIX}PART_LAYERS{why}"
        )
    return tuple(sorted(found.values(), key=lambda each: (each.part, each.number, each.key))), tuple(problems)


def part_of(folder: str) -> str:
    """The part's name: ``data_simulation_simple_boat5_74`` is of simple_boat5."""
    return re.sub(r"(_(layers?|\d+(-\d+)?))+$", "", folder.removeprefix(PREFIX))


def read_layer(layer: Layer) -> tuple[NDArray[np.float32], float]:
    """The layer's columns, float32 [T, 22], and its sample rate in Hz.

    Raises:
        BadSampleError: it cannot be read, lacks a field, or has values that are no numbers.
    """
    with reading(layer.key, str(layer.path)):
        fields = _read_table(layer.path) if layer.path.suffix == ".csv" else _read_struct(layer.path)
    missing = [name for name in _READ if name not in fields]
    if missing:
        near = did_you_mean(missing[0], fields)
        raise BadSampleError(layer.key, f"there is no field {missing[0]!r}{near}; there are {len(fields)}")
    num_steps = len(np.atleast_1d(fields["time"]))
    number = fields.get("layer_num", layer.number)
    columns = {**fields, "layer_num": number, KNOWN: _known(fields, number)}
    series = np.empty((num_steps, len(COLUMNS)), np.float32)
    for place, name in enumerate(COLUMNS):
        value = np.asarray(columns[name], np.float64)
        if value.shape not in {(num_steps,), ()}:
            raise BadSampleError(layer.key, f"{name} has {value.shape}, time has {num_steps} values")
        series[:, place] = value
    bad = ~np.isfinite(series)
    if bad.any():
        name = COLUMNS[int(bad.any(0).argmax())]
        count = int(bad.any(1).sum())
        raise BadSampleError(layer.key, f"{name} is no number; {count} of {num_steps} steps have such values")
    return series, _rate(layer, np.atleast_1d(fields["time"]))


def _known(fields: Mapping[str, Any], number: Any) -> NDArray[np.bool_]:
    """Where material is laid onto a layer below; files that do not say always extrude."""
    found: NDArray[np.bool_] = (np.asarray(fields.get("is_extruding", 1)) != 0) & (np.asarray(number) > 1)
    return found


def _rate(layer: Layer, time: NDArray[Any]) -> float:
    steps = np.diff(time.astype(np.float64))
    if len(steps) < 2 or not (steps > 0).all() or np.ptp(steps) > 0.01 * steps.mean():
        raise BadSampleError(layer.key, "time must go on in equal steps, and there must be three at least")
    return float(round(1 / steps.mean(), 3))


def _read_struct(path: Path) -> dict[str, Any]:
    found = MatlabReader(variables=(STRUCT,)).read(str(path))
    return {name.removeprefix(f"{STRUCT}."): value for name, value in found.items()}


def _read_table(path: Path) -> dict[str, Any]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        names = [name.strip() for name in next(csv.reader(file), [])]
        wanted = [place for place, name in enumerate(names) if name in {*_READ, "layer_num", "is_extruding"}]
        if not wanted:
            raise SourceError(f"its first row has none of the fields' names, got {', '.join(names)[:100]}")
        table = np.loadtxt(file, delimiter=",", usecols=wanted, ndmin=2)
    return {names[place]: column for place, column in zip(wanted, table.T, strict=True)}


def _folders(data: Path) -> list[Path]:
    if data.is_dir():
        below = sorted(path for path in data.glob(f"{PREFIX}*") if path.is_dir())
        return below or [data]
    found = []
    if has_magic(str(data)):
        matches = map(Path, glob.glob(str(data)))  # noqa: PTH207 - a pattern may be absolute
        found = sorted(path for path in matches if path.is_dir())
    if not found:
        near = "" if has_magic(str(data)) else nearest_sibling(data)
        raise UsageError(
            f"the data must be a folder of layers or a pattern of such folders, got {data}{near}"
        )
    return found
