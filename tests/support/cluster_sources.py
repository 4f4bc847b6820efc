"""Data sets for clusters: they travel to workers, and some of them kill what packs them."""

import contextlib
import os
import signal
import sys
import threading
import uuid
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import stoker.store
from support.datasets import Signals

PACKAGE = str(Path(stoker.store.__file__).parent)


COUNT = 120


class Fixed:
    """Samples of one size, with fields of every kind that can have one."""

    def __init__(self, count: int = COUNT) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def fingerprint(self, i: int) -> int:
        return i

    def __getitem__(self, i: int) -> dict[str, Any]:
        rng = np.random.default_rng(i)
        return {"x": rng.standard_normal((2, 50)).astype(np.float32), "y": i % 3, "name": f"{i:05d}"}


class Holder:
    """A transform with a part that cannot be pickled."""

    version = "1"

    def __init__(self) -> None:
        self.settings = {"lock": threading.Lock()}

    def __call__(self, sample: Any) -> Any:
        return sample


def spoil(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["y"] == 1:
        raise ValueError("spoilt")
    return sample


class Noted(Signals):
    """Notes in a folder which samples were read, by any process."""

    def __init__(self, keys: list[str], notes: Path) -> None:
        super().__init__(keys)
        self.notes = notes

    def __getitem__(self, i: int) -> dict[str, Any]:
        (self.notes / self.names[i]).touch()
        return super().__getitem__(i)

    def noted(self) -> set[str]:
        return {note.name for note in self.notes.iterdir()}


class Arriving(Signals):
    """Notes in a folder each time that it arrives in a process, whole and anew."""

    def __init__(self, keys: list[str], notes: Path) -> None:
        super().__init__(keys)
        self.notes = notes

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        (self.notes / f"{os.getpid()}-{uuid.uuid4().hex}").touch()


class Deadly(Signals):
    """Ends its process with SIGKILL some lines of the package after certain samples, once each."""

    def __init__(self, keys: list[str], notes: Path, deaths: dict[int, int]) -> None:
        super().__init__(keys)
        self.notes = notes
        self.deaths = deaths  # sample -> lines of the package until the end

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i in self.deaths and first(self.notes / str(i)):
            die_after(self.deaths[i])
        return super().__getitem__(i)


class Lethal(Signals):
    """Kills a process with SIGKILL at one sample: the reader's own, or the one that is named."""

    def __init__(
        self, keys: list[str], at: int, *, victim: int | None = None, once: Path | None = None
    ) -> None:
        super().__init__(keys)
        self.at = at
        self.victim = victim
        self.once = once

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i == self.at and (self.once is None or first(self.once)):
            os.kill(self.victim or os.getpid(), signal.SIGKILL)
        return super().__getitem__(i)


class Signalling(Signals):
    """Tells a reader of a pipe that packing has begun, and waits until it is told to go on."""

    def __init__(self, keys: list[str], began: Path, go_on: Path) -> None:
        super().__init__(keys)
        self.began = began
        self.go_on = go_on

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i == len(self) // 2:
            self.began.write_text("began")
            self.go_on.read_text()
        return super().__getitem__(i)


def num_unfinished(dask_scheduler: Any) -> int:
    """On the scheduler: tasks that wait or run."""
    return sum(task.state not in {"memory", "released"} for task in dask_scheduler.tasks.values())


def first(note: Path) -> bool:
    """Whether nobody was here before."""
    with contextlib.suppress(FileExistsError):
        note.touch(exist_ok=False)
        return True
    return False


def die_after(lines: int) -> None:
    """Kill this process when this thread has run so many lines of the store's package."""
    left = lines

    def trace(frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG001 - the hook's signature
        nonlocal left
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        left -= event == "line"
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
