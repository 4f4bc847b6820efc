"""Which cores and how much memory this process may really use.

The machine's core count is the wrong figure in a container or under `torchrun`. Three limits count: the
set of cores that the process is bound to, the control group's quota of processor time (version 1 or 2,
its own or any ancestor's), and the ranks of the same machine that share both.
"""

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from stoker.doctor._record import Machine

_UNLIMITED_BYTES = 1 << 60  # version 1 writes "no limit" as a number near 2**63


def available_cores() -> int:
    """How many cores this process may keep busy; at least 1."""
    bound = os.sched_getaffinity(0)
    return cores_of_rank(
        num_bound=len(bound),
        quota=cpu_quota(root=Path("/")),
        num_ranks=local_ranks(os.environ),
        ranks_share=bound == _cores_of_parent(),
    )


def machine(device: str) -> Machine:
    """This machine, as this process sees it; `device` is what the training runs on, in words."""
    import torch

    return Machine(
        num_cores=available_cores(),
        num_cores_present=os.cpu_count() or 1,
        memory_bytes=memory_limit(root=Path("/")),
        device=device,
        num_torch_threads=torch.get_num_threads(),
        python=platform.python_version(),
        torch=torch.__version__,
        platform=f"{platform.system()} {platform.release()} {platform.machine()} ({sys.platform})",
    )


def cores_of_rank(*, num_bound: int, quota: float | None, num_ranks: int, ranks_share: bool) -> int:
    """One rank's cores.

    A quota belongs to the whole group and is always divided by the ranks; the cores that the process is
    bound to are divided only where the ranks share them (`ranks_share`), not where the launcher gave
    each rank its own. Fractions are rounded down: half a core feeds no worker.
    """
    cores = float(num_bound // num_ranks if ranks_share else num_bound)
    if quota is not None:
        cores = min(cores, quota / num_ranks)
    return max(1, int(cores))


def local_ranks(environment: Mapping[str, str]) -> int:
    """How many processes of this training run on this machine, by torchrun's LOCAL_WORLD_SIZE."""
    text = environment.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(text)) if text.isdecimal() else 1


def cpu_quota(*, root: Path) -> float | None:
    """Cores' worth of time that the process's control groups grant; None where there is no limit.

    `root` is the file system's root; tests give a made-up one.
    """
    quotas = []
    for folder in _group_folders(root, controller="cpu"):
        words = _words(folder / "cpu.max")  # version 2: "200000 100000" or "max 100000"
        if not words:
            words = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(words) == 2 and words[0].isdecimal() and int(words[0]) > 0 and int(words[1]) > 0:
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_limit(*, root: Path) -> int:
    """Bytes of memory that the process may use: the machine's, or its control groups' if less."""
    limits = [_memory_present(root)]
    for folder in _group_folders(root, controller="memory"):
        words = _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes")
        if words and words[0].isdecimal() and int(words[0]) < _UNLIMITED_BYTES:
            limits.append(int(words[0]))
    return min(limits)


def _group_folders(root: Path, *, controller: str) -> list[Path]:
    """The folders of the process's control group and its ancestors, for both versions.

    Inside a container the path that the process reads may not exist under the mount: then the mount's
    root is its own group.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    mounted = root / "sys/fs/cgroup"
    found = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            mounts = [mounted, mounted / "unified"]
        elif controller in controllers.split(","):
            mounts = [mounted / controllers, mounted / controller]
        else:
            continue
        for mount in mounts:
            folder = mount / path.lstrip("/")
            while folder != mount and mount in folder.parents:
                found.append(folder)
                folder = folder.parent
            found.append(mount)
    return found


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _memory_present(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _cores_of_parent() -> set[int]:
    """What the launcher is bound to; equal to ours where it did not bind us."""
    try:
        return os.sched_getaffinity(os.getppid())
    except OSError:
        return os.sched_getaffinity(0)
