"""Complete training systems built of Stoker's parts, with the synthetic data that tries them."""

from stoker.recipes._recipe import Outcome, Prepared, Recipe, find, names
from stoker.recipes._settings import LoadingSettings, RecipeSettings, TrainingSettings, make_trainer

__all__ = [
    "LoadingSettings",
    "Outcome",
    "Prepared",
    "Recipe",
    "RecipeSettings",
    "TrainingSettings",
    "find",
    "make_trainer",
    "names",
]
