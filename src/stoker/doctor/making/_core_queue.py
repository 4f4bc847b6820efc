"""How long a thread was ready to run and no core was free: the scheduler keeps count of it."""

import os
from threading import get_ident

UNTOLD = -1


class CoreQueue:
    """Asks for the thread that calls. One a process: the open file is the thread's that asked last.

    No lock: a fork might inherit it held. Two threads that ask at once may get each other's figure, or none.
    """

    def __init__(self) -> None:
        self._asker = (0, 0)
        self._file = -1

    def waited_ns(self) -> int:
        """Nanoseconds since the thread began; or UNTOLD, where the system does not tell."""
        asker = (os.getpid(), get_ident())
        if asker != self._asker:
            self._asker = asker
            self._open()
        if self._file < 0:
            return UNTOLD
        try:
            return int(os.pread(self._file, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return UNTOLD

    def since(self, waited_ns: int) -> int:
        """What has come to `waited_ns`, told before; UNTOLD where one of the two was not this thread's."""
        now = self.waited_ns()
        return now - waited_ns if 0 <= waited_ns <= now else UNTOLD

    def _open(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1


core_queue = CoreQueue()
