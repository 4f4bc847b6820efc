"""Stages of recipes by command, in this process or under torchrun, and what they leave."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import yaml

from stoker.train import load_checkpoint
from support.commands import Done, call


def write_config(path: Path, settings: dict[str, Any]) -> Path:
    """The settings as a file."""
    path.write_text(yaml.safe_dump(settings))
    return path


def run_stage(
    recipe: str, stage: str, config: Path, data: Path, *more: str, cwd: Path, ranks: int = 1
) -> dict[str, Any]:
    """What the stage says of itself; it writes to the folder run unless `more` names another."""
    words = ("train", recipe, "--stage", stage, "--config", config, "--data", data, "--out", "run", "--json")
    done = call(*words, *more, cwd=cwd) if ranks == 1 else torchrun(*words, *more, cwd=cwd, ranks=ranks)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout if ranks == 1 else done.stdout.splitlines()[-1])
    return found


def torchrun(*words: str | Path, cwd: Path, ranks: int) -> Done:
    """The command in as many processes as ranks."""
    launcher = ("torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m", "stoker")
    command = [sys.executable, "-m", *launcher, *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


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
