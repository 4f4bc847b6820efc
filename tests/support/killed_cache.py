"""Uses a cache in processes that kill themselves, each at another line of the cache's own code.

    python killed_cache.py WORK FOLDER

WORK is "memory" or "folder" (a write to a cache there) or "opening" (of a cache in the folder). Prints how
many lines there were; fails where the cache is not sound after a kill. A process of its own, since it forks
hundreds, and a process that has imported all tests takes several times as long to fork.
"""

import mmap
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stoker
from stoker.loader import Cached, _cache, _cache_files

PAGE = mmap.PAGESIZE
PACKAGE = str(Path(_cache.__file__).with_name("_cache"))


class Numbers:
    """Samples of one to three pages that tell their number in every byte."""

    def __init__(self, count: int = 12) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> NDArray[np.uint8]:
        return np.full((1 + i % 3) * PAGE - 600, i, np.uint8)


def open_cache(path: Path | None, budget: int = 10, count: int = 12) -> Cached:
    return stoker.cache(Numbers(count), max_bytes=budget * PAGE, path=path, check=False)


def assert_sound(cached: Cached, budget: int = 10) -> None:
    """Every sample is right, and the books agree with the disk."""
    for i in range(len(cached)):
        sample = cached[i]
        assert len(sample) == (1 + i % 3) * PAGE - 600
        assert (sample == i).all()
        stats = cached.stats()
        records = cached._arena.index.records
        live = records[records[:, _cache_files.LENGTH] > 0]
        pages = -(-live[:, _cache_files.LENGTH].astype(int) // PAGE)
        assert stats.num_bytes == PAGE * pages.sum() <= budget * PAGE
        assert stats.num_samples == len(live)
        assert os.fstat(cached._arena.index.files.samples).st_blocks * 512 == stats.num_bytes


def kill_at_every_line(work: Callable[[], object], check: Callable[[], None]) -> int:
    """How many lines there were to be killed at."""
    line = 1
    while (code := _killed_at(line, work)) == -signal.SIGKILL:
        check()
        line += 1
    assert code == 0
    return line


def _killed_at(line: int, work: Callable[[], object]) -> int:
    """Do the work in a child that dies by SIGKILL before it runs that line of the cache's own code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ran = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG001 - the hook's signature
        nonlocal ran
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        ran += event == "line"
        if ran == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    try:
        sys.settrace(trace)
        work()
        os._exit(0)
    finally:
        os._exit(1)


def kill_writers(folder: Path | None) -> int:
    """Writes that evict; after each kill, the next write takes over."""
    with open_cache(folder) as cached:
        number = 0

        def check() -> None:
            nonlocal number
            assert (cached[number] == number).all()
            number = (number + 1) % 12

        for i in range(12):
            cached[i]
        num_lines = kill_at_every_line(lambda: cached[number], check)
        assert_sound(cached)
        assert_sound(cached)
    return num_lines


def kill_openers(folder: Path) -> int:
    """Every other time it begins with an absent folder."""

    def check() -> None:
        with open_cache(folder) as cached:
            assert (cached[3] == 3).all()
            if cached.stats().hits == 0:
                return
        shutil.rmtree(folder)

    return kill_at_every_line(lambda: open_cache(folder).close(), check)


if __name__ == "__main__":
    where = Path(sys.argv[2])
    kinds: dict[str, Callable[[], int]] = {
        "memory": lambda: kill_writers(None),
        "folder": lambda: kill_writers(where),
        "opening": lambda: kill_openers(where),
    }
    sys.stdout.write(str(kinds[sys.argv[1]]()))
