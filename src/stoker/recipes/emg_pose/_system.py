"""The recipe's entry in the list of recipes; torch is imported when a stage is run."""

from pathlib import Path

from stoker.recipes._recipe import Outcome, Recipe
from stoker.recipes.emg_pose._prepare import prepare
from stoker.recipes.emg_pose._settings import PROFILES, EmgSettings
from stoker.recipes.emg_pose._synthetic import make_synthetic


def _synthesize(folder: Path, settings: EmgSettings) -> None:
    make_synthetic(folder, settings.synthetic, seed=settings.seed)


def _run(stage: str, settings: EmgSettings) -> Outcome:
    from stoker.recipes.emg_pose._stages import run

    return run(stage, settings)


RECIPE = Recipe(
    name="emg-pose",
    title="angles of 20 joints of the hand from EMG at the wrist",
    settings=EmgSettings,
    stages=("train", "evaluate", "predict"),
    synthesize=_synthesize,
    prepare=prepare,
    run=_run,
    profiles=PROFILES,
)
