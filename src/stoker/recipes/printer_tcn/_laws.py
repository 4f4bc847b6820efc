"""What the quality of deposited material depends on: one statement for the simulation and for the loss.

`library` is numpy or torch, whichever the arrays are of. Temperature in °C, cooling in °C/s, speed in mm/s,
acceleration in mm/s², stress in MPa, porosity in %, accuracy in mm; adhesion and score within 0 … 1.
"""

from typing import Any, NamedTuple

AMBIENT, MELT = 25.0, 220.0  # °C, of the room and of a nozzle that extrudes
COOLING = 0.363  # 1/s, of the nozzle: T' = -COOLING (T - AMBIENT)
BED, LAYER_COOLING = 60.0, 0.1  # °C, 1/s: a layer cools more slowly, and not below the bed it lies on
MAX_COOLING = COOLING * (MELT - AMBIENT) / 2  # °C/s of the interface, the mean of nozzle and layer below
MAX_POROSITY = 20.0  # %

_GLASS, _BONDING = 60.0, 111.0  # °C: no bond at _GLASS, a full one _BONDING above it
_MODULUS, _EXPANSION = 3500.0, 68e-6  # MPa, 1/K
_FREEZING = 200.0  # °C at which stress begins
_TOP_SPEED, _REFERENCE_ACCELERATION = 500.0, 500.0
_LARGEST_STRESS = 50.0


class Conditions(NamedTuple):
    """Under which material is laid down."""

    temperature: Any  # of the interface
    cooling: Any
    speed: Any
    acceleration: Any


class Quality(NamedTuple):
    """The five hidden values, in the order of `TARGETS`."""

    adhesion: Any
    stress: Any
    porosity: Any
    accuracy: Any
    score: Any


def adhesion(library: Any, at: Conditions) -> Any:
    """A warm interface bonds, unless it cools too fast."""
    slow = library.clip(10 / (abs(at.cooling) + 1), None, 1.0)
    return library.clip((at.temperature - _GLASS) / _BONDING, 0.0, 1.0) * slow


def stress(at: Conditions) -> Any:
    """Shrinkage that is held back; up to half as much again where it cools fast."""
    shrinkage = _MODULUS * _EXPANSION * (_FREEZING - at.temperature)
    return shrinkage * (1 + 0.5 * abs(at.cooling) / MAX_COOLING)


def porosity(library: Any, at: Conditions, bonded: Any) -> Any:
    """Of cold interfaces, fast moves and bad bonds."""
    cold = 0.3 * library.exp(-0.05 * (at.temperature - AMBIENT))
    fast = 0.3 * (at.speed / _TOP_SPEED) ** 2
    return library.clip(100 * (cold + fast + 0.4 * (1 - bonded)), 0.0, MAX_POROSITY)


def accuracy(at: Conditions) -> Any:
    """Shrinkage of 10 mm from the melt, and what speed and acceleration add."""
    shrinkage = _EXPANSION * (_FREEZING - AMBIENT) * 10
    fast = 0.1 * (at.speed / _TOP_SPEED) ** 2
    return shrinkage + fast + 0.05 * at.acceleration / _REFERENCE_ACCELERATION


def score(library: Any, given: Quality) -> Any:
    """Of the four others."""
    of_stress = 0.2 * (1 - given.stress / _LARGEST_STRESS)
    of_porosity = 0.2 * (1 - given.porosity / MAX_POROSITY)
    total = 0.4 * given.adhesion + of_stress + of_porosity + 0.2 * (1 - given.accuracy)
    return library.clip(total, 0.0, 1.0)


def lawful(library: Any, at: Conditions, given: Quality) -> Quality:
    """What each value must be: by the conditions, and by the other values where a law names them."""
    return Quality(
        adhesion(library, at),
        stress(at),
        porosity(library, at, given.adhesion),
        accuracy(at),
        score(library, given),
    )


def quality(library: Any, at: Conditions) -> Quality:
    """All five under these conditions; what `lawful` gives back unchanged."""
    bonded, held, precise = adhesion(library, at), stress(at), accuracy(at)
    found = Quality(bonded, held, porosity(library, at, bonded), precise, 0.0)
    return found._replace(score=score(library, found))
