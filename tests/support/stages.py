"""Stages of recipes by command, in this process or in ranks of it, and what they leave."""

import json
from pathlib import Path
from typing import Any

import torch
import yaml

from stoker.train import load_checkpoint
from support.commands import call
from support.ranks import run_ranks


def write_config(path: Path, settings: dict[str, Any]) -> Path:
    """The settings as a file."""
    path.write_text(yaml.safe_dump(settings))
    return path


def run_stage(
    recipe: str, stage: str, config: Path, data: Path, *more: str, cwd: Path, ranks: int = 1
) -> dict[str, Any]:
    """What the stage says of itself; it writes to the folder run unless `more` names another."""
    words = ("train", recipe, "--stage", stage, "--config", config, "--data", data, "--out", "run", "--json")
    if ranks > 1:
        return call_ranks(ranks, *words, *more, cwd=cwd)
    return _said(*words, *more, cwd=cwd)


def call_ranks(num_ranks: int, *words: str | Path, cwd: Path) -> dict[str, Any]:
    """The command in a process for each rank, forked from this one; what the first says of itself."""
    first: dict[str, Any]
    first, *others = run_ranks(num_ranks, lambda: _said(*words, cwd=cwd))
    assert not any(others), "only the first rank tells"
    return first


def _said(*words: str | Path, cwd: Path) -> dict[str, Any]:
    done = call(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    return found


def have_same_weights(*checkpoints: Path) -> bool:
    """Whether models, and averages where there are some, are equal to the bit."""
    first, *others = (_weights(path) for path in checkpoints)
    return all(
        first.keys() == other.keys() and all(torch.equal(first[name], other[name]) for name in first)
        for other in others
    )


def _weights(path: Path) -> dict[str, torch.Tensor]:
    state = load_checkpoint(path)
    average = state["ema"]["average"] if state.get("ema") else {}
    return {**state["model"], **{f"average of {name}": value for name, value in average.items()}}
