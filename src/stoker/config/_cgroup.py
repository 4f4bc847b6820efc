"""The limits of this process' own control groups (cgroups), of version 1, 2 or both.

A limit of any parent binds as well, so every function gives one value per level. Inside a container
the path in /proc may be the host's and not exist below the mounted root; the root is then the
container's own group, and is read as such.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

# Page cache of these kinds is given back before the kernel kills; shared memory is not among them.
_RECLAIMABLE = ("inactive_file", "active_file")


def cpu_quotas(proc_root: Path, cgroup_root: Path) -> list[float]:
    """Give the quotas that bind this process, in cores; empty if there are none."""
    quotas = [parse_cpu_max(read_text(folder / "cpu.max")) for folder in _folders("", proc_root, cgroup_root)]
    quotas += [
        parse_cfs(read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us"))
        for folder in _folders("cpu", proc_root, cgroup_root)
    ]
    return [quota for quota in quotas if quota is not None]


def memory_left_bytes(proc_root: Path, cgroup_root: Path) -> list[int]:
    """Give what the limits that bind this process leave; empty if there are none."""
    left = [
        parse_memory_left(
            limit=read_text(folder / "memory.max"),
            usage=read_text(folder / "memory.current"),
            stat=read_text(folder / "memory.stat"),
        )
        for folder in _folders("", proc_root, cgroup_root)
    ]
    left += [
        parse_memory_left(
            limit=read_text(folder / "memory.limit_in_bytes"),
            usage=read_text(folder / "memory.usage_in_bytes"),
            stat=read_text(folder / "memory.stat"),
        )
        for folder in _folders("memory", proc_root, cgroup_root)
    ]
    return [bytes_left for bytes_left in left if bytes_left is not None]


def parse_own_groups(text: str) -> dict[str, tuple[str, PurePosixPath]]:
    """Read /proc/self/cgroup: by controller ("" for version 2), the hierarchy's name and path."""
    groups = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        hierarchy, colon, path = rest.partition(":")
        if colon:
            for controller in hierarchy.split(","):
                groups[controller] = (hierarchy, PurePosixPath(path))
    return groups


def parse_cpu_max(text: str) -> float | None:
    """Read version 2's cpu.max, "quota period" in µs, as cores; None for "max" or no such file."""
    quota, _, period = text.strip().partition(" ")
    return parse_cfs(quota, period)


def parse_cfs(quota: str, period: str) -> float | None:
    """Give version 1's quota over period, both in µs, as cores; None if -1 or no such file."""
    quota_us, period_us = _whole_number(quota), _whole_number(period)
    return quota_us / period_us if quota_us and period_us else None


def parse_memory_left(*, limit: str, usage: str, stat: str) -> int | None:
    """Give limit - usage + reclaimable page cache, in bytes; None without a limit.

    The page cache counts as usage, yet gives way: a process that has read a file as large as its
    limit still has nearly all of that limit.
    """
    limit_bytes, usage_bytes = _whole_number(limit), _whole_number(usage)
    if limit_bytes is None or usage_bytes is None:
        return None
    fields = dict(line.split(" ", 1) for line in stat.splitlines() if " " in line)
    # Version 1 counts the groups below only under the names with total_, version 2 always.
    cache = sum(
        _whole_number(fields.get(f"total_{name}", fields.get(name, ""))) or 0 for name in _RECLAIMABLE
    )
    return max(0, limit_bytes - max(0, usage_bytes - cache))


def _folders(controller: str, proc_root: Path, cgroup_root: Path) -> Iterator[Path]:
    """Give the folders of this process' group and all its parents, for each possible mount."""
    groups = parse_own_groups(read_text(proc_root / "self" / "cgroup"))
    if controller not in groups:
        return
    hierarchy, path = groups[controller]
    mounts = {hierarchy: None, controller: None} if controller else {"": None, "unified": None}
    parts = [] if ".." in path.parts else path.parts[1:]
    for mount in mounts:
        for depth in range(len(parts), -1, -1):
            yield cgroup_root.joinpath(mount, *parts[:depth])


def read_text(path: Path) -> str:
    """Give a file's text, or nothing: these files are absent or closed on many systems."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _whole_number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() else None
