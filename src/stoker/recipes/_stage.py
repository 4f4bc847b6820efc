"""What the stages of all recipes share: checkpoints to go on from, and evaluations as a file."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from stoker.errors import CheckpointMismatchError
from stoker.recipes._settings import RecipeSettings
from stoker.train import is_first, load_checkpoint

Kind = TypeVar("Kind", bound=RecipeSettings)


def trained_checkpoint(settings: RecipeSettings) -> Path:
    """What is evaluated and predicted with: the weights that were named, or the best of the training."""
    return settings.pretrained or settings.out / "train" / "best.pt"


def load_trained(path: Path, kind: type[Kind], *, sections: set[str]) -> tuple[dict[str, Any], Kind]:
    """A checkpoint's state, and the settings that it was trained with.

    Raises:
        CheckpointMismatchError: its settings lack some of the `sections` that those of the recipe have.
        CheckpointNotFoundError, DamagedCheckpointError: it is not there, or not whole.
    """
    state = load_checkpoint(path)
    missing = sections - set(state.get("config", {}))
    if missing:
        raise CheckpointMismatchError(
            f"{path} is no checkpoint of this recipe: it has no settings of {', '.join(sorted(missing))}"
        )
    return state, kind.model_validate(state["config"])


def write_evaluation(folder: Path, values: Mapping[str, float], **facts: Any) -> None:
    """Write evaluation.json, by the first rank alone; what is no number becomes null."""
    if not is_first():
        return
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value if math.isfinite(value) else None for name, value in values.items()}
    data = {"schema_version": 1, **facts, "values": kept}
    (folder / "evaluation.json").write_text(json.dumps(data, indent=1) + "\n")
