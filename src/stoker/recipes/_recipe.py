"""What a recipe is: a complete training system, from raw files to an evaluated checkpoint.

    stoker recipes                              what there is
    stoker pack --recipe NAME DATA STORE        raw files in the system's own layout become a store
    stoker train NAME --stage S --task T        train, evaluate, predict; without data on synthetic ones

A recipe is named here and imported when it is asked for. Whatever two recipes need lives in a package
to the left of them, not in either.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.errors import UsageError
from stoker.recipes._settings import RecipeSettings

_HOMES = {
    "heart-sounds": "stoker.recipes.heart_sounds",
    "emg-pose": "stoker.recipes.emg_pose",
    "face-parsing": "stoker.recipes.face_parsing",
    "cardiac-ct": "stoker.recipes.cardiac_ct",
    "printer-tcn": "stoker.recipes.printer_tcn",
}


@dataclass(frozen=True)
class Prepared:
    """What became of the raw files."""

    store: Path
    num_samples: int
    counts: Mapping[str, Any]  # what was read, kept and left out, and why
    problems: tuple[str, ...] = ()  # one line each; such as a recording without a label


@dataclass(frozen=True)
class Outcome:
    """What came of a stage."""

    folder: Path  # with checkpoints, metrics.json and whatever the stage writes beside them
    values: Mapping[str, float]  # the best epoch's, or the evaluation's
    checkpoint: Path | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """One complete system.

    `settings` is the model of its configuration file; every key has a default, so an empty file will
    do. `synthesize(folder, settings)` writes raw data in the system's public layout. `prepare(data,
    store, settings, *, force, workers, validate_only)` packs such data; with `validate_only` it reads
    and judges them and packs nothing. `run(stage, settings)` trains or evaluates, on `settings.data`
    (raw files, packed first if they are not yet, or a store) or, where that is None, on synthetic data.
    """

    name: str
    title: str
    settings: type[RecipeSettings]
    stages: tuple[str, ...]
    synthesize: Callable[[Path, Any], None]
    prepare: Callable[..., Prepared]
    run: Callable[[str, Any], Outcome]
    tasks: tuple[str, ...] = ()
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by name, what each changes


def names() -> tuple[str, ...]:
    """The recipes that there are."""
    return tuple(_HOMES)


def find(name: str) -> Recipe:
    """The recipe of this name; raises UsageError with the names there are."""
    home = _HOMES.get(name.replace("_", "-"))
    if home is None:
        raise UsageError(f"no recipe is called {name!r}; there are {', '.join(_HOMES)}")
    recipe = importlib.import_module(home).RECIPE
    assert isinstance(recipe, Recipe)
    return recipe
