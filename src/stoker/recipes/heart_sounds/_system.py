"""The heart-sound system as a recipe; torch is imported when a stage runs."""

from stoker.recipes._recipe import Outcome, Recipe
from stoker.recipes.heart_sounds._data import write_synthetic
from stoker.recipes.heart_sounds._prepare import prepare
from stoker.recipes.heart_sounds._settings import PROFILES, HeartSoundSettings
from stoker.recipes.heart_sounds._tasks import TASKS


def _run(stage: str, settings: HeartSoundSettings) -> Outcome:
    from stoker.recipes.heart_sounds.learning import run

    return run(stage, settings)


RECIPE = Recipe(
    name="heart-sounds",
    title="Heart sounds: contrastive pre-training on cardiac cycles, then classification",
    settings=HeartSoundSettings,
    stages=("pretrain", "supervised", "finetune", "evaluate"),
    synthesize=write_synthetic,
    prepare=prepare,
    run=_run,
    tasks=tuple(TASKS),
    profiles=PROFILES,
)
