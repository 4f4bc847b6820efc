"""How fast this machine reads a store: gathered out of memory, and from its storage."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.config import usable_cores
from stoker.loader._loader import Loader

if TYPE_CHECKING:
    from stoker.store import Store

_PIECE_BYTES = 8 << 20
_MOST_READ_BYTES = 2 << 30


def gathered_per_s(store: "Store", *, batch_size: int, seconds: float = 1.0) -> float:
    """Samples a second and core, gathered into shuffled batches by all cores, of data that is in memory.

    By all, because they share the memory's bandwidth: one alone is faster.
    """
    num_cores = usable_cores()
    with Loader(store, batch_size, num_workers=num_cores) as loader:
        for _ in loader:  # once through, so that it is in memory
            pass
        num_samples, begin = 0, time.perf_counter()
        while True:
            for batch in loader:
                num_samples += len(batch["index"])
                if time.perf_counter() - begin > seconds:
                    return num_samples / (time.perf_counter() - begin) / num_cores


def storage_bytes_per_s(files: list[Path], *, seconds: float = 1.0) -> float:
    """Bytes a second that come from the storage of these files, one reader, the page cache left aside.

    What another process has mapped stays in the cache, and is then read from there: too good a figure.
    """
    num_bytes, begin = 0, time.perf_counter()
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            while piece := os.read(descriptor, _PIECE_BYTES):
                num_bytes += len(piece)
                if time.perf_counter() - begin > seconds:
                    break
        finally:
            os.close(descriptor)
        if num_bytes > _MOST_READ_BYTES or time.perf_counter() - begin > seconds:
            break
    return num_bytes / max(time.perf_counter() - begin, 1e-9)
