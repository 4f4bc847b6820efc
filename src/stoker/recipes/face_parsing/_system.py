"""The recipe's entry in the list of recipes; torch is imported when a stage is run."""

from pathlib import Path

from stoker.recipes._recipe import Outcome, Recipe
from stoker.recipes.face_parsing._prepare import prepare
from stoker.recipes.face_parsing._settings import PROFILES, FaceSettings
from stoker.recipes.face_parsing._synthetic import make_synthetic


def _synthesize(folder: Path, settings: FaceSettings) -> None:
    make_synthetic(folder, settings.synthetic, seed=settings.seed)


def _run(stage: str, settings: FaceSettings) -> Outcome:
    from stoker.recipes.face_parsing._stages import run

    return run(stage, settings)


RECIPE = Recipe(
    name="face-parsing",
    title="the class of every pixel of a face, of 19: skin, hair, eyes, lips, …",
    settings=FaceSettings,
    stages=("train", "evaluate", "predict"),
    synthesize=_synthesize,
    prepare=prepare,
    run=_run,
    profiles=PROFILES,
)
