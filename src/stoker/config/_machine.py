"""What this machine really gives this process: cores and memory, within every limit set on it.

The count of cores that most programs see (os.cpu_count) is the machine's. In a container or a batch
job the process may use far fewer, and threads beyond that only take turns.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from stoker.config import _cgroup
from stoker.errors import ConfigError

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_UNKNOWN_MEMORY_BYTES = 1 << 30


def usable_cores(*, proc_root: Path = _PROC, cgroup_root: Path = _CGROUP) -> int:
    """Give the number of cores this process may keep busy, at least 1.

    The least of its CPU affinity and the CPU quotas of its control groups, shared evenly among the
    processes that torchrun started on this machine (LOCAL_WORLD_SIZE) and rounded down. Read
    anew at each call, from a few small files.

    Raises:
        ConfigError: LOCAL_WORLD_SIZE is set, but not to a whole number of at least 1.
    """
    return cores_within(
        _affinity_cores(),
        quotas=_cgroup.cpu_quotas(proc_root, cgroup_root),
        num_processes=parse_local_world_size(os.environ.get("LOCAL_WORLD_SIZE", "")),
    )


def available_memory_bytes(*, proc_root: Path = _PROC, cgroup_root: Path = _CGROUP) -> int:
    """Give the bytes this process can still take without swapping or being killed.

    The least of what the kernel calls available and what the memory limits of the control groups
    leave; page cache that can be given back counts as available. It is one figure for all
    processes of the machine or group, not a share. Where the system does not say what is
    available: the physical memory, or 1 GiB if not even that is known.
    """
    meminfo = _cgroup.read_text(proc_root / "meminfo")
    available = parse_mem_available_bytes(meminfo)
    if available is None:
        available = _physical_memory_bytes()
    return min([available, *_cgroup.memory_left_bytes(proc_root, cgroup_root)])


def cores_within(cores: int, *, quotas: Iterable[float], num_processes: int) -> int:
    """Give the whole cores of each of `num_processes` under all quotas (in cores), at least 1."""
    return max(1, int(min([cores, *quotas]) / num_processes))


def parse_local_world_size(text: str) -> int:
    """Read LOCAL_WORLD_SIZE; 1 if it is empty."""
    text = text.strip()
    if not text:
        return 1
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(
            f"LOCAL_WORLD_SIZE must be a whole number of at least 1, got {text!r}; "
            f"unset it, or start the processes with torchrun, which sets it"
        )
    return int(text)


def parse_mem_available_bytes(meminfo: str) -> int | None:
    """Read MemAvailable from /proc/meminfo; None if it is not there."""
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            amount = rest.split()
            return int(amount[0]) * 1024 if amount and amount[0].isdecimal() else None
    return None


def _affinity_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # absent outside Linux
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _physical_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN_MEMORY_BYTES
