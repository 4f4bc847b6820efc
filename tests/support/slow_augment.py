"""Augmentation for tests of views: random in all ways, and told by the environment to be slow or deadly."""

import multiprocessing
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch


def noisy(batch: dict[str, Any], *, index: torch.Tensor, epoch: int) -> dict[str, Any]:
    """Noise that depends on everything it may depend on, and on the order of calls if that leaked."""
    assert torch.equal(batch["index"], index)
    noise = random.random() + np.random.rand() + torch.rand(batch["x"].shape)  # noqa: NPY002 - users' code
    return {
        **batch,
        "x": batch["x"] + noise + epoch,
        "made_in": torch.full((len(index),), epoch),
        "tail": [tail + epoch for tail in batch["tail"]],
    }


def watched(batch: dict[str, Any], *, index: torch.Tensor, epoch: int) -> dict[str, Any]:
    """The same, in a way that tests can follow: notes its maker; kills it or stops where told.

    ``STOKER_TEST_NOTES``: a file that gets a line for each batch that a worker makes.
    ``STOKER_TEST_KILL``: "self" or "parent" is killed at epoch 1, sample 16.
    ``STOKER_TEST_GATE``: a pipe that is opened there for reading, which blocks until it is written.
    """
    if multiprocessing.parent_process() is not None:
        notes = os.environ.get("STOKER_TEST_NOTES")
        if notes:
            with Path(notes).open("a") as file:
                file.write(f"{os.getppid()} {epoch} {int(index[0])}\n")
        if epoch == 1 and index[0] == 16:
            _stop()
    return noisy(batch, index=index, epoch=epoch)


def _stop() -> None:
    victim = {"self": os.getpid(), "parent": os.getppid()}.get(os.environ.get("STOKER_TEST_KILL", ""))
    if victim is not None:
        os.kill(victim, signal.SIGKILL)
        signal.pause()  # until our parent's death reaches us
    gate = os.environ.get("STOKER_TEST_GATE")
    if gate:
        Path(gate).read_text()


watched.version = "1"  # type: ignore[attr-defined]  # what it does to a sample never depends on the environment
