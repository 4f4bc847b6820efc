"""Packs a store in a process that kills itself with SIGKILL at one exact line of the packer's code.

    python killed_pack.py STORE COUNT WHO LINE

COUNT samples; WHO is "parent" or "worker"; LINE counts the lines of stoker's store package that the
chosen process runs. LINE 0 kills nobody and prints how many lines each of them ran.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import stoker
import stoker.store  # outside the count

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.datasets import Signals, keys


def main() -> None:
    path, count, who, line = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
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


if __name__ == "__main__":
    main()
