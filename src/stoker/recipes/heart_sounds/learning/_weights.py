"""Weights out of checkpoints, whichever stage wrote them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from stoker.errors import CheckpointMismatchError
from stoker.recipes.heart_sounds._settings import HeartSoundSettings
from stoker.recipes.heart_sounds.learning._encoder import Encoder
from stoker.train import load_checkpoint

_PREFIX = "encoder."


@dataclass(frozen=True)
class Saved:
    """A model as it was saved."""

    model: dict[str, Tensor]  # by name
    encoder: Mapping[str, Any]  # arguments of `Encoder`


def read_weights(path: Path, settings: HeartSoundSettings) -> Saved:
    """The weights of a checkpoint of this recipe; averaged ones, where the run kept such.

    Raises:
        CheckpointMismatchError: it is of something else, or of cycles at another rate.
        CheckpointNotFoundError, DamagedCheckpointError: it is not there, or not whole.
    """
    state = load_checkpoint(path)
    config = state.get("config", {})
    if "encoder" not in config or "model" not in state:
        raise CheckpointMismatchError(f"{path} is no checkpoint of heart-sounds: it has no encoder")
    rate = config["cycles"]["rate"]
    if rate != settings.cycles.rate:
        raise CheckpointMismatchError(
            f"{path} was trained on cycles at {rate} points a second, these are at {settings.cycles.rate}; "
            f"pass --set cycles.rate={rate} --set cycles.length={config['cycles']['length']}"
        )
    model = dict(state["model"])
    if state.get("ema") is not None:
        model |= state["ema"]["average"]
    return Saved(model, config["encoder"])


def encoder_of(path: Path, settings: HeartSoundSettings) -> Encoder:
    """The encoder of a checkpoint, with the sizes that it has there."""
    saved = read_weights(path, settings)
    encoder = Encoder(**saved.encoder)
    own = {
        name.removeprefix(_PREFIX): value for name, value in saved.model.items() if name.startswith(_PREFIX)
    }
    encoder.load_state_dict(own)
    return encoder
