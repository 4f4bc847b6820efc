"""Saves a checkpoint in processes that kill themselves, each at another line of the code that writes it."""

import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from stoker.train import load_checkpoint
from stoker.train._checkpoint_folder import CheckpointFolder

STRIDE = 4  # every line would take as many processes as there are lines
FILES = ("_checkpoint.py", "_checkpoint_folder.py", "_files.py", "_durable.py")


def state(number: int) -> dict[str, Any]:
    return {"number": number, "weights": torch.full((1000,), float(number))}


def save_killed(root: Path, line: int) -> bool:
    """Whether the process was killed before it was done."""
    child = os.fork()
    if child == 0:
        ran = 0

        def trace(frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG001 - the hook's signature
            nonlocal ran
            if not frame.f_code.co_filename.endswith(FILES) or frame.f_code.co_name == "_plain":
                return None
            ran += event == "line"
            if ran == line:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        try:
            sys.settrace(trace)
            CheckpointFolder(root).save(state(2))
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, -signal.SIGKILL}
    return code != 0


def save_and_die(base: Path) -> list[tuple[int, int, bool]]:
    """After each kill: the last checkpoint, the one before, and whether the next save is as if nothing was.

    The folder has checkpoint 1 as its last and 0 as its previous one; each process saves 2.
    """
    before = base / "before"
    for number in (0, 1):
        CheckpointFolder(before).save(state(number))
    outcomes: list[tuple[int, int, bool]] = []
    line = 1
    while True:
        root = base / "run"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(before, root)
        if not save_killed(root, line):
            return outcomes
        last, previous = (load_checkpoint(root / name)["number"] for name in ("last.pt", "previous.pt"))
        CheckpointFolder(root).save(state(3))
        clean = sorted(path.name for path in root.iterdir()) == ["last.pt", "previous.pt"]
        after = [load_checkpoint(root / name)["number"] for name in ("last.pt", "previous.pt")]
        outcomes.append((last, previous, clean and after == [3, last]))
        line += STRIDE
