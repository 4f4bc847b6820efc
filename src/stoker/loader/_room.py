"""Room for what is cached: how much a folder can take, on disk or in memory."""

import os
from pathlib import Path

from stoker.config import available_memory_bytes
from stoker.errors import StoreWriteError

_MOUNTS = Path("/proc/self/mountinfo")
_IN_MEMORY = {"tmpfs", "ramfs"}


def room_bytes(folder: Path) -> int:
    """How many bytes can still be written below an existing folder.

    Files of a tmpfs such as /dev/shm are memory until somebody removes them: there it is no more
    than half of the memory that is available.
    """
    system = os.statvfs(folder)
    free = system.f_bavail * system.f_frsize
    return min(free, available_memory_bytes() // 2) if is_in_memory(folder) else free


def is_in_memory(folder: Path) -> bool:
    """Whether the folder lies on a file system that keeps its files in memory."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    device = folder.stat().st_dev
    return mount_kind(mounts, f"{os.major(device)}:{os.minor(device)}") in _IN_MEMORY


def mount_kind(mountinfo: str, device: str) -> str | None:
    """The type of the file system with that device number, in the text of /proc/self/mountinfo."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after and before.split()[2:3] == [device]:
            return after.split()[0]
    return None


def check_room(target: Path, num_bytes: int, what: str, *, max_bytes: int | None = None) -> None:
    """Raise StoreWriteError unless a store of that size fits at ``target``, whose folder exists.

    What an interrupted run left at ``target`` is used again, and counts as written.
    """
    left = num_bytes - sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    room = room_bytes(target.parent)
    if max_bytes is not None and num_bytes > max_bytes:
        raise StoreWriteError(
            f"{what} needs {megabytes(num_bytes)}, max_bytes allows {megabytes(max_bytes)}; allow more"
        )
    if left > room:
        limit = " (half of the memory that is available)" if is_in_memory(target.parent) else ""
        raise StoreWriteError(
            f"{what} needs {megabytes(left)}, {target.parent} has room for {megabytes(room)}{limit}; "
            "free some space or choose another folder"
        )


def megabytes(num_bytes: int) -> str:
    """As a person reads it."""
    return f"{num_bytes / 1e6:,.1f} MB"
