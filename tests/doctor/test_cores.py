import os
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from stoker.doctor.sampling import _cores


def made_up(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal:       16000 kB\nMemFree: 1 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_version_2_takes_the_smallest_quota_of_the_group_and_its_ancestors(tmp_path: Path) -> None:
    root = made_up(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/pod/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/box/memory.max": "1000000\n",
        },
    )
    assert _cores.cpu_quota(root=root) == 2.5
    assert _cores.memory_limit(root=root) == 1_000_000


def test_inside_a_container_the_mount_is_the_group(tmp_path: Path) -> None:
    root = made_up(
        tmp_path, {"proc/self/cgroup": "0::/not/visible/here\n", "sys/fs/cgroup/cpu.max": "150000 100000"}
    )
    assert _cores.cpu_quota(root=root) == 1.5


def test_version_1_reads_the_controllers_own_folder(tmp_path: Path) -> None:
    root = made_up(
        tmp_path,
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/box\n2:memory:/box\n1:name=systemd:/\n0::/\n",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert _cores.cpu_quota(root=root) == 4.0
    assert _cores.memory_limit(root=root) == 16000 * 1024


@pytest.mark.parametrize("text", ["-1", "max", ""])
def test_no_limit_is_none(tmp_path: Path, text: str) -> None:
    root = made_up(
        tmp_path,
        {
            "proc/self/cgroup": "1:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": text,
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    )
    assert _cores.cpu_quota(root=root) is None


def test_a_system_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert _cores.cpu_quota(root=made_up(tmp_path, {})) is None


@hypothesis.given(
    st.integers(1, 256),
    st.none() | st.floats(0.1, 300),
    st.integers(1, 16),
    st.booleans(),
)
def test_a_rank_has_at_least_one_core_and_never_more_than_there_are(
    num_bound: int, quota: float | None, num_ranks: int, ranks_share: bool
) -> None:
    cores = _cores.cores_of_rank(
        num_bound=num_bound, quota=quota, num_ranks=num_ranks, ranks_share=ranks_share
    )
    assert 1 <= cores <= num_bound
    if quota is not None:
        assert cores <= max(1, quota / num_ranks)


def test_ranks_share_cores_unless_the_launcher_bound_them() -> None:
    assert _cores.cores_of_rank(num_bound=8, quota=None, num_ranks=4, ranks_share=True) == 2
    assert _cores.cores_of_rank(num_bound=8, quota=None, num_ranks=4, ranks_share=False) == 8
    assert _cores.cores_of_rank(num_bound=8, quota=4.0, num_ranks=4, ranks_share=False) == 1


@pytest.mark.parametrize(("text", "ranks"), [("4", 4), ("0", 1), ("many", 1), ("", 1)])
def test_local_ranks_come_from_torchrun(text: str, ranks: int) -> None:
    assert _cores.local_ranks({"LOCAL_WORLD_SIZE": text}) == ranks
    assert _cores.local_ranks({}) == 1


def test_this_machine_is_described() -> None:
    machine = _cores.machine("cpu")
    assert 1 <= machine.num_cores == _cores.available_cores() <= len(os.sched_getaffinity(0))
    assert machine.num_cores <= machine.num_cores_present
    assert machine.memory_bytes > 1 << 20
    assert machine.torch == torch.__version__
    assert machine.device == "cpu"
