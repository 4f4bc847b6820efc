"""Moves of a nozzle over one layer, and their reference trajectory.

A move speeds up, goes on and slows down evenly along a straight line. Its speeds at the samples are
smoothed over a few of them, as planners that limit jerk do. Accelerations at the samples, linear between
them, then give velocities and positions by exact integration: nothing in a trajectory contradicts anything
else in it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_SMOOTH = 5  # samples over which speeds are smoothed
_AT_REST = 2 * _SMOOTH  # samples before and after all moves


@dataclass(frozen=True)
class Style:
    """How a part is printed; lengths in mm, speeds in mm/s, accelerations in mm/s²."""

    width: float
    height: float
    spacing: float  # between two lines of the infill
    speed: float
    travel_speed: float
    acceleration: float
    angle: float  # rad, of the infill


@dataclass(frozen=True)
class Trajectory:
    """Of the reference: positions, velocities, accelerations [T, 2], and where it extrudes [T]."""

    position: Floats
    velocity: Floats
    acceleration: Floats
    extruding: Bools


def fill_layer(style: Style, num_steps: int, rate: float, rng: np.random.Generator) -> Trajectory:
    """A perimeter, then stretches of zigzag with travels between them, until `num_steps` are full."""
    speeds: list[Floats] = [np.zeros((_AT_REST, 2))]
    extrudes: list[Bools] = [np.zeros(_AT_REST, bool)]
    left = num_steps - 2 * _AT_REST
    turn = np.array(
        [
            [math.cos(style.angle), -math.sin(style.angle)],
            [math.sin(style.angle), math.cos(style.angle)],
        ]
    )
    for move, extruding in _moves(style, rng):
        top = style.speed if extruding else style.travel_speed
        profile = _profile(float(np.hypot(*move)), top, style.acceleration, rate)
        if len(profile) > left:
            break
        left -= len(profile)
        direction = turn @ (move / np.hypot(*move))
        speeds.append(profile[:, None] * direction)
        extrudes.append(np.full(len(profile), extruding))
    speeds.append(np.zeros((left + _AT_REST, 2)))
    extrudes.append(np.zeros(left + _AT_REST, bool))
    return integrate(np.concatenate(speeds), np.concatenate(extrudes), rate)


def integrate(wanted: Floats, extruding: Bools, rate: float) -> Trajectory:
    """The trajectory near wanted velocities [T, 2], which begin and end at rest."""
    kernel = np.full(_SMOOTH, 1 / _SMOOTH)
    smooth = np.stack([np.convolve(each, kernel, "same") for each in wanted.T], 1)
    step = 1 / rate
    acceleration = np.gradient(smooth, step, axis=0)
    gained = step * (acceleration[1:] + acceleration[:-1]) / 2
    velocity = np.concatenate([np.zeros((1, 2)), gained.cumsum(0)])
    moved = velocity[:-1] * step + step**2 * (2 * acceleration[:-1] + acceleration[1:]) / 6
    position = np.concatenate([np.zeros((1, 2)), moved.cumsum(0)])
    return Trajectory(position, velocity, acceleration, extruding)


def _moves(style: Style, rng: np.random.Generator) -> Iterator[tuple[Floats, bool]]:
    """Displacements [2], and whether they extrude; without end."""
    across, up = np.array([style.width, 0.0]), np.array([0.0, style.height])
    yield from ((move, True) for move in (across, up, -across, -up))
    row, direction = 0.0, 1.0
    while True:
        for _ in range(int(rng.integers(4, 9))):
            yield direction * across, True
            yield np.array([0.0, style.spacing]), True
            direction, row = -direction, row + style.spacing
        back = rng.uniform(0.2, 1.0) * row
        yield np.array([rng.uniform(-0.2, 0.2) * style.width, -back]), False
        row -= back


def _profile(length: float, top: float, acceleration: float, rate: float) -> Floats:
    """Speeds at the samples of one move; they add up to its length exactly."""
    peak = min(top, math.sqrt(length * acceleration))
    ramp = peak / acceleration
    duration = 2 * ramp + (length - peak * ramp) / peak
    count = max(2, math.ceil(duration * rate))
    time = (np.arange(count) + 0.5) * duration / count
    speeds = np.minimum(peak, acceleration * np.minimum(time, duration - time))
    scaled: Floats = speeds * (length * rate / speeds.sum())
    return scaled
