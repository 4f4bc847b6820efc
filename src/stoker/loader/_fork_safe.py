"""Locks that a forked child finds free: for objects that are used from threads and in processes."""

import os
import threading
import weakref


class ForkSafe:
    """Has a lock; a forked child gets a free one, as another thread of the parent may have held it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _alive.add(self)

    def start_anew(self) -> None:
        """What a forked child does first: the parent may have been half-way through a change."""
        self.lock = threading.Lock()


_alive: "weakref.WeakSet[ForkSafe]" = weakref.WeakSet()


def _start_all_anew() -> None:
    for owner in list(_alive):
        owner.start_anew()


os.register_at_fork(after_in_child=_start_all_anew)
