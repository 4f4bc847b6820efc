"""How long processes have been on a core."""

from collections.abc import Iterable
from pathlib import Path


def busy_ns(pids: Iterable[int]) -> int:
    """Time on a core of all threads of these processes, ns; one that has ended counts for nothing.

    Read from the scheduler's books, whose resolution is finer than that of /proc/PID/stat (10 ms).
    """
    return sum(_of_thread(task) for pid in pids for task in _tasks(pid))


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _of_thread(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[0])
    except (OSError, IndexError, ValueError):
        return 0
