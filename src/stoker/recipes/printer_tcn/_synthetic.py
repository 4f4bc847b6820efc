"""A simulated printer that writes layers as the original simulation does.

A nozzle follows the reference of _motion.py; both axes answer by the second-order dynamics of _axis.py,
solved exactly. The nozzle has 220 °C while it extrudes and cools by Newton's law while it does not. A layer
runs its predecessor's path backwards: t seconds into a layer, what lies below was laid down pause + 2 t
seconds ago and has cooled since. Quality follows from these by the laws of _laws.py.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stoker.recipes._raw import make_up
from stoker.recipes.printer_tcn._axis import Axis
from stoker.recipes.printer_tcn._laws import (
    AMBIENT,
    BED,
    COOLING,
    LAYER_COOLING,
    MELT,
    Conditions,
    quality,
)
from stoker.recipes.printer_tcn._layout import PREFIX, TARGETS
from stoker.recipes.printer_tcn._mat import write_mat, write_table
from stoker.recipes.printer_tcn._motion import Bools, Floats, Style, fill_layer
from stoker.recipes.printer_tcn._settings import PrinterSettings

RATE = 100.0  # Hz
LAYER_HEIGHT = 0.2  # mm
_VERSION = 1  # raised when the same settings would give other layers than before
_NAMES = ("3DBenchy", "bearing5", "Nautilus_Gears_Plate", "simple_boat5")


def make_synthetic(folder: Path, settings: PrinterSettings) -> None:
    """Write the parts that the settings ask for, unless the folder has just these already."""
    ask, axes = settings.synthetic.model_dump(), settings.physics.axes
    facts = {"version": _VERSION, "seed": settings.seed, **ask, **settings.physics.model_dump()}
    write = partial(write_parts, **ask, axes=axes, seed=settings.seed)
    make_up(folder, facts, what="parts", write=write)


def write_parts(
    folder: Path,
    *,
    num_parts: int = 6,
    layers_per_part: int = 8,
    points_per_layer: int = 1200,
    file_format: Literal["mat", "csv"] = "mat",
    axes: Sequence[Axis] = (Axis(0.485, 150_000.0, 25.0), Axis(0.650, 150_000.0, 25.0)),
    seed: int = 0,
) -> int:
    """Write a folder a part and a file a layer; gives the number of files."""
    rng = np.random.default_rng(seed)
    for number in range(num_parts):
        repeated = f"{number // len(_NAMES) + 1}" if number >= len(_NAMES) else ""
        name = f"{_NAMES[number % len(_NAMES)]}{repeated and 'v' + repeated}"
        target = folder / f"{PREFIX}{name}_{layers_per_part}"
        target.mkdir(parents=True, exist_ok=True)
        style, pause = _style(rng), rng.uniform(2.0, 5.0)
        for layer in range(1, layers_per_part + 1):
            turned = Style(**{**vars(style), "angle": style.angle + layer * math.pi / 2})
            num_steps = round(points_per_layer * rng.uniform(0.8, 1.2))
            fields = simulate_layer(turned, layer, num_steps, pause, axes, rng)
            path = target / f"layer{layer:02d}_ender3v2.{file_format}"
            (write_mat if file_format == "mat" else write_table)(path, fields)
    return num_parts * layers_per_part


def simulate_layer(
    style: Style, layer: int, num_steps: int, pause: float, axes: Sequence[Axis], rng: np.random.Generator
) -> dict[str, Any]:
    """All fields of one layer, [T] each, in mm, s, N, °C, MPa and %."""
    path = fill_layer(style, num_steps, RATE, rng)
    time = np.arange(num_steps) / RATE
    errors = np.stack([axis.simulate(path.acceleration[:, i], RATE)[:, 0] for i, axis in enumerate(axes)], 1)
    nozzle, below, cooling = _temperatures(path.extruding, time, pause)
    interface = (nozzle + below) / 2
    speed, pull = np.hypot(*path.velocity.T), np.hypot(*path.acceleration.T)
    found = dict(zip(TARGETS, quality(np, Conditions(interface, cooling, speed, pull)), strict=True))
    deposits = path.extruding & (layer > 1)
    found["adhesion_ratio"] = np.where(deposits, found["adhesion_ratio"], 0.0)  # as in the original
    height = np.full(num_steps, layer * LAYER_HEIGHT)
    nothing = np.zeros(num_steps)
    fields: dict[str, Any] = {"time": time}
    for i, name in enumerate("xy"):
        position = 110 + path.position[:, i]
        jerk = np.gradient(path.acceleration[:, i], 1 / RATE)
        fields |= {
            f"{name}_ref": position,
            f"{name}_act": position + errors[:, i],
            f"v{name}_ref": path.velocity[:, i],
            f"a{name}_ref": path.acceleration[:, i],
            f"j{name}_ref": jerk,
            f"F_inertia_{name}": axes[i].mass * path.acceleration[:, i] / 1000,
            f"F_elastic_{name}": axes[i].stiffness * errors[:, i] / 1000,
            f"belt_stretch_{name}": errors[:, i],
            f"error_{name}": errors[:, i],
        }
    fields |= {"z_ref": height, "z_act": height, "vz_ref": nothing, "az_ref": nothing, "jz_ref": nothing}
    return fields | {
        "v_mag_ref": speed,
        "a_mag_ref": pull,
        "jerk_mag": np.hypot(fields["jx_ref"], fields["jy_ref"]),
        "error_magnitude": np.hypot(*errors.T),
        "error_direction": np.arctan2(errors[:, 1], errors[:, 0]),
        "T_nozzle": nozzle,
        "T_interface": interface,
        "T_surface": below,
        "cooling_rate": cooling,
        "temp_gradient_z": (nozzle - below) / LAYER_HEIGHT,
        "interlayer_time": np.full(num_steps, pause + time[-1]),
        **found,
        "is_extruding": path.extruding,
        "layer_num": np.full(num_steps, float(layer)),
        "print_type": "infill",
        "params": {"mass": [axis.mass for axis in axes], "stiffness": axes[0].stiffness, "rate": RATE},
    }


def _style(rng: np.random.Generator) -> Style:
    return Style(
        width=rng.uniform(12, 30),
        height=rng.uniform(12, 30),
        spacing=rng.uniform(1.0, 3.0),
        speed=rng.uniform(40, 80),
        travel_speed=rng.uniform(100, 150),
        acceleration=rng.uniform(500, 1500),
        angle=rng.uniform(0, math.pi),
    )


def _temperatures(extruding: Bools, time: Floats, pause: float) -> tuple[Floats, Floats, Floats]:
    """Of the nozzle and of what lies below it, and how fast the interface between them warms, [T] each."""
    steps = np.arange(len(time))
    last = np.maximum.accumulate(np.where(extruding, steps, 0))  # when it last extruded, or the start
    nozzle = AMBIENT + (MELT - AMBIENT) * np.exp(-COOLING * (steps - last) / RATE)
    below: Floats = BED + (MELT - BED) * np.exp(-LAYER_COOLING * (pause + 2 * time))
    slope = np.where(extruding, 0.0, -COOLING * (nozzle - AMBIENT)) - 2 * LAYER_COOLING * (below - BED)
    return nozzle, below, slope / 2
