"""What a process that makes samples sets up for itself: one thread, and a parent to die with."""

import ctypes
import os
import signal
import sys


def one_thread() -> None:
    """One thread a worker: with a worker a core, more would only wait for each other."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(1)
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies, even in the middle of a transform."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
