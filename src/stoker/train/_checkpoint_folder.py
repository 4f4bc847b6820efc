"""The checkpoints of a run: the last, the one before it, and the best."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.errors import CheckpointNotFoundError, UsageError
from stoker.train._checkpoint import save_checkpoint
from stoker.train._files import alias, remove_leftovers


class CheckpointFolder:
    """Where a run keeps ``last.pt``, ``previous.pt`` and ``best.pt``; one process writes, others may read.

    At any moment, also after a crash, each that was ever written is whole.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last = folder / "last.pt"
        self.previous = folder / "previous.pt"
        self.best = folder / "best.pt"

    def save(self, state: Mapping[str, Any], *, best: bool = False) -> None:
        """Write a new last one; the one that was last becomes the previous one."""
        if self.folder.exists():
            remove_leftovers(self.folder)
        if self.last.exists():
            alias(self.last, self.previous)
        save_checkpoint(self.last, state)
        if best:
            alias(self.last, self.best)

    def find(self, resume: str | Path) -> Path | None:
        """The file that is meant; None for "auto" where there is none.

        Raises:
            CheckpointNotFoundError: it is not there, with what is.
        """
        known = {"last": self.last, "previous": self.previous, "best": self.best}
        path = self.last if resume == "auto" else known.get(str(resume), Path(resume))
        if path.exists():
            return path
        there = [name for name, file in known.items() if file.exists()]
        if resume == "auto" and not there:
            return None
        raise CheckpointNotFoundError(
            f"there is no checkpoint {path}; " + (f"there is resume={there[0]!r}" if there else "start anew")
        )

    def refuse_if_used(self) -> None:
        """A run that begins anew must not write over another's checkpoints by mistake."""
        if self.last.exists():
            raise UsageError(
                f"{self.last} is of an earlier run; pass resume='auto' (--resume auto) to go on with it, "
                f"resume='fresh' to begin anew and lose it, or another folder"
            )

    def clear(self) -> None:
        """Remove the checkpoints of an earlier run."""
        for path in (self.previous, self.best, self.last):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
