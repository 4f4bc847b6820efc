"""How much a cache may take, where nobody said, and whether there is still room for more."""

import os
from pathlib import Path

from stoker.config import available_memory_bytes
from stoker.config._machine import parse_local_world_size
from stoker.errors import UsageError
from stoker.loader._cache_files import Files
from stoker.loader._room import room_bytes

_STEP_BYTES = 16 << 20  # stored between two looks at the memory that is left
_LEFT_BYTES = 256 << 20  # that a cache never takes


def memory_budget(max_bytes: int | None) -> int:
    """Of one rank's cache; by default half of its share of the available memory.

    Raises:
        UsageError: more than its share.
    """
    num_ranks = parse_local_world_size(os.environ.get("LOCAL_WORLD_SIZE", ""))
    available = available_memory_bytes() // num_ranks
    if max_bytes is not None and max_bytes > available:
        raise UsageError(
            f"max_bytes must be at most the memory available to this process, {available}, got {max_bytes}; "
            "give less, or path= to cache on disk"
        )
    return available // 2 if max_bytes is None else max_bytes


def folder_budget(max_bytes: int | None, folder: Path, files: Files) -> int:
    """By default half of what is free or the cache's already: it does not shrink from run to run."""
    if max_bytes is not None:
        return max_bytes
    return (room_bytes(folder) + os.fstat(files.samples).st_blocks * 512) // 2


class MemoryWatch:
    """Looks now and then whether the machine still has memory."""

    def __init__(self) -> None:
        self._stored_bytes = 0

    def is_low_after(self, num_bytes: int) -> bool:
        """Whether memory is nearly used up, now that so many bytes more are stored."""
        self._stored_bytes += num_bytes
        if self._stored_bytes < _STEP_BYTES:
            return False
        self._stored_bytes = 0
        return available_memory_bytes() < _LEFT_BYTES
