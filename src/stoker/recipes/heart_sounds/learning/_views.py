"""Augmentation: the two views of pre-training, and the gentler policy of classifiers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.augment import Pipeline, preset
from stoker.augment._parts import few_threads
from stoker.recipes.heart_sounds.learning._parts import OUTSIDE, part_mask

_MASK_S = 0.03  # the longest stretch that the preset's time mask takes


@dataclass(frozen=True)
class TwoViews:
    """Makes of x [B, 1, T] and bounds [B, 5] two views and their parts; ``augment=`` of a Loader.

    Gives first, second [B, 1, T], first_parts, second_parts uint8 [B, T], which move along, recording_id
    and index.
    """

    pipeline: Pipeline

    def __call__(self, batch: Mapping[str, Any], *, index: Any, epoch: int) -> dict[str, Any]:
        """See the class."""
        x = batch["x"]
        with few_threads([x]):
            fields = {"x": x, "parts": part_mask(batch["bounds"], x.shape[-1])}
            first, second = self.pipeline.views(fields, 2, index=index, epoch=epoch)
        return {
            "first": first["x"],
            "second": second["x"],
            "first_parts": first["parts"],
            "second_parts": second["parts"],
            "recording_id": batch["recording_id"],
            "index": batch["index"],
        }


def pretraining_views(*, path: Path | None, rate: int, seed: int) -> TwoViews:
    """The views of the preset "heart_sounds", or of a pipeline's file whose roles are {x: signal}."""
    config = preset("heart_sounds").to_config() if path is None else Pipeline.from_config(path).to_config()
    if path is None:  # written in points at 5 kHz
        for transform in config["transforms"]:
            if "signal.TimeMask" in transform:
                transform["signal.TimeMask"]["length"] = round(_MASK_S * rate)
    for transform in config["transforms"]:
        for arguments in transform.values():
            if "ignore" in arguments:
                arguments["ignore"] = OUTSIDE
    return TwoViews(Pipeline.from_config(config | {"roles": {"x": "signal", "parts": "mask"}, "seed": seed}))


def classifier_pipeline(*, path: Path | None, seed: int) -> Pipeline:
    """Small shifts, gains and noise, or a pipeline's file."""
    if path is not None:
        return Pipeline.from_config(Pipeline.from_config(path).to_config() | {"seed": seed})
    transforms = [
        {"signal.TimeShift": {"shift": 0.05, "p": 0.5}},
        {"signal.AmplitudeScale": {"factor": [0.9, 1.1], "p": 0.5}},
        {"signal.GaussianNoise": {"snr_db": [25, 40], "p": 0.3}},
    ]
    return Pipeline.from_config({"roles": {"x": "signal"}, "seed": seed, "transforms": transforms})
