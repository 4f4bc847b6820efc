"""The recipe's entry in the list of recipes; torch is imported when a stage is run."""

from pathlib import Path

from stoker.recipes._recipe import Outcome, Recipe
from stoker.recipes.cardiac_ct._prepare import prepare
from stoker.recipes.cardiac_ct._settings import PROFILES, CardiacSettings
from stoker.recipes.cardiac_ct._synthetic import make_synthetic


def _synthesize(folder: Path, settings: CardiacSettings) -> None:
    make_synthetic(folder, settings.synthetic, seed=settings.seed)


def _run(stage: str, settings: CardiacSettings) -> Outcome:
    from stoker.recipes.cardiac_ct._stages import run

    return run(stage, settings)


RECIPE = Recipe(
    name="cardiac-ct",
    title="ejection fraction and aortic stenosis from a chest CT",
    settings=CardiacSettings,
    stages=("train", "evaluate", "predict"),
    synthesize=_synthesize,
    prepare=prepare,
    run=_run,
    profiles=PROFILES,
)
