"""Packs a store in a process that kills itself with SIGKILL at one exact line of the packer's code."""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import stoker
import stoker.store
from support.datasets import Signals, keys
from support.forked import Done, forked


def killed_pack(path: Path, count: int, who: str, line: int) -> Done:
    """Pack `count` samples; `who`, "parent" or "worker", dies at that line.

    Counted are the lines of stoker's store package that the chosen process runs. Line 0 kills nobody; who is
    not killed prints how many lines there were.
    """
    return forked(lambda: _pack(path, count, who, line))


def _pack(path: Path, count: int, who: str, line: int) -> None:
    parent = os.getpid()
    package = str(Path(stoker.store.__file__).parent)
    ran = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG001 - the hook's signature
        nonlocal ran
        if not frame.f_code.co_filename.startswith(package):
            return None
        if (os.getpid() == parent) == (who == "parent"):
            ran += event == "line"
            if line and ran == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        stoker.pack(Signals(keys(count)), path, workers=2, shard_bytes=4000, progress=False)
    finally:
        sys.settrace(None)
    sys.stdout.write(str(ran))
