"""The recipe's entry in the list of recipes; torch is imported when a stage is run."""

from pathlib import Path

from stoker.recipes._recipe import Outcome, Recipe
from stoker.recipes.printer_tcn._prepare import prepare
from stoker.recipes.printer_tcn._settings import PROFILES, PrinterSettings
from stoker.recipes.printer_tcn._synthetic import make_synthetic


def _synthesize(folder: Path, settings: PrinterSettings) -> None:
    make_synthetic(folder, settings)


def _run(stage: str, settings: PrinterSettings) -> Outcome:
    from stoker.recipes.printer_tcn._stages import run

    return run(stage, settings)


RECIPE = Recipe(
    name="printer-tcn",
    title="tracking errors and hidden quality of a 3-D printer, with physics in the loss",
    settings=PrinterSettings,
    stages=("train", "evaluate", "predict"),
    synthesize=_synthesize,
    prepare=prepare,
    run=_run,
    profiles=PROFILES,
)
