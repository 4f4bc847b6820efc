import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.config import available_memory_bytes, usable_cores
from stoker.config._cgroup import (
    cpu_quotas,
    memory_left_bytes,
    parse_cfs,
    parse_cpu_max,
    parse_memory_left,
    parse_own_groups,
)
from stoker.config._machine import (
    cores_within,
    parse_local_world_size,
    parse_mem_available_bytes,
)
from stoker.errors import ConfigError

MEBIBYTE = 1 << 20


class Machine:
    """A fake /proc and /sys/fs/cgroup."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.cgroup = root / "cgroup"

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def belongs_to(self, *lines: str) -> None:
        self.write(self.proc / "self" / "cgroup", "\n".join(lines))

    def has_available(self, mebibytes: int) -> None:
        text = f"MemTotal: 99999999 kB\nMemFree: 1 kB\nMemAvailable:   {mebibytes * 1024} kB"
        self.write(self.proc / "meminfo", text)

    def limits(self, folder: str, **files: str) -> None:
        for name, text in files.items():
            self.write(self.cgroup / folder / name.replace("__", "."), text)

    def quotas(self) -> list[float]:
        return cpu_quotas(self.proc, self.cgroup)

    def memory_left(self) -> list[int]:
        return memory_left_bytes(self.proc, self.cgroup)

    def usable_cores(self) -> int:
        return usable_cores(proc_root=self.proc, cgroup_root=self.cgroup)

    def available_memory_bytes(self) -> int:
        return available_memory_bytes(proc_root=self.proc, cgroup_root=self.cgroup)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return Machine(tmp_path)


def test_without_proc_and_cgroups_the_affinity_counts(machine: Machine) -> None:
    assert machine.usable_cores() == len(os.sched_getaffinity(0))


def test_without_affinity_the_machine_s_cores_count(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert machine.usable_cores() == os.cpu_count()


def test_a_quota_binds_the_cores(machine: Machine) -> None:
    machine.belongs_to("0::/job")
    machine.limits("job", cpu__max="50000 100000")
    assert machine.usable_cores() == 1
    assert machine.quotas() == [0.5]


def test_the_processes_of_one_machine_share_its_cores(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = machine.usable_cores()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(alone))
    assert machine.usable_cores() == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(alone * 100))
    assert machine.usable_cores() == 1


def test_version_2_quotas_of_the_group_and_all_its_parents_bind(machine: Machine) -> None:
    machine.belongs_to("0::/slice/job/step")
    machine.limits("slice", cpu__max="300000 100000")
    machine.limits("slice/job", cpu__max="max 100000")
    machine.limits("slice/job/step", cpu__max="800000 100000")
    machine.limits("other", cpu__max="100000 100000")
    assert machine.quotas() == [8.0, 3.0]


def test_version_1_quotas_of_the_group_and_all_its_parents_bind(machine: Machine) -> None:
    machine.belongs_to("5:cpuset:/", "3:cpu,cpuacct:/slice/job", "1:name=systemd:/x")
    machine.limits("cpu,cpuacct", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    machine.limits("cpu,cpuacct/slice", cpu__cfs_quota_us="150000", cpu__cfs_period_us="100000")
    machine.limits("cpu,cpuacct/slice/job", cpu__cfs_quota_us="400000", cpu__cfs_period_us="100000")
    assert machine.quotas() == [4.0, 1.5]


def test_a_version_1_controller_mounted_under_its_own_name_is_found(machine: Machine) -> None:
    machine.belongs_to("3:cpu,cpuacct:/job")
    machine.limits("cpu/job", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    assert machine.quotas() == [2.0]


def test_both_versions_together_bind(machine: Machine) -> None:
    machine.belongs_to("4:memory:/job", "1:cpu:/job", "0::/job")
    machine.limits("unified/job", cpu__max="500000 100000")
    machine.limits("cpu/job", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    assert machine.quotas() == [5.0, 2.0]


@pytest.mark.parametrize("path", ["/docker/0123abcd", "/../../elsewhere", "/"])
def test_in_a_container_the_mounted_root_is_the_own_group(machine: Machine, path: str) -> None:
    machine.belongs_to(f"0::{path}")
    machine.limits(".", cpu__max="250000 100000")
    assert machine.quotas() == [2.5]


def test_without_proc_memory_is_the_physical_memory(machine: Machine) -> None:
    assert machine.available_memory_bytes() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_where_nothing_is_known_memory_is_one_gibibyte(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sysconf")
    assert machine.available_memory_bytes() == 1 << 30


def test_without_limits_memory_is_what_the_kernel_calls_available(machine: Machine) -> None:
    machine.has_available(512)
    machine.belongs_to("0::/job")
    machine.limits("job", memory__max="max", memory__current="1048576")
    assert machine.available_memory_bytes() == 512 * MEBIBYTE


def test_the_tightest_version_2_limit_binds_and_page_cache_gives_way(machine: Machine) -> None:
    machine.has_available(512)
    machine.belongs_to("0::/slice/job")
    machine.limits(
        "slice/job",
        memory__max=str(100 * MEBIBYTE),
        memory__current=str(90 * MEBIBYTE),
        memory__stat=f"anon 7\ninactive_file {30 * MEBIBYTE}\nactive_file {20 * MEBIBYTE}",
    )
    machine.limits("slice", memory__max=str(80 * MEBIBYTE), memory__current=str(70 * MEBIBYTE))
    assert machine.memory_left() == [60 * MEBIBYTE, 10 * MEBIBYTE]
    assert machine.available_memory_bytes() == 10 * MEBIBYTE


def test_a_version_1_limit_binds_and_the_groups_below_count(machine: Machine) -> None:
    machine.has_available(512)
    machine.belongs_to("4:memory:/job")
    machine.limits(
        "memory/job",
        memory__limit_in_bytes=str(100 * MEBIBYTE),
        memory__usage_in_bytes=str(60 * MEBIBYTE),
        memory__stat=f"inactive_file 1\ntotal_inactive_file {10 * MEBIBYTE}\ntotal_active_file 0",
    )
    machine.limits("memory", memory__limit_in_bytes="9223372036854771712", memory__usage_in_bytes="0")
    assert machine.available_memory_bytes() == 50 * MEBIBYTE


def test_this_machine_gives_something_within_its_bounds() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < available_memory_bytes() <= physical


@pytest.mark.parametrize(
    ("cores", "quotas", "num_processes", "expected"),
    [
        (8, [], 1, 8),
        (8, [16.0], 1, 8),
        (8, [3.9], 1, 3),
        (8, [0.2], 1, 1),
        (8, [6.0, 2.0], 1, 2),
        (8, [], 3, 2),
        (8, [5.5], 2, 2),
        (2, [], 8, 1),
    ],
)
def test_cores_are_the_least_of_all_limits_shared_and_rounded_down(
    cores: int, quotas: list[float], num_processes: int, expected: int
) -> None:
    assert cores_within(cores, quotas=quotas, num_processes=num_processes) == expected


@pytest.mark.parametrize(("text", "expected"), [("", 1), (" ", 1), ("1", 1), (" 4 ", 4)])
def test_local_world_size_is_a_whole_number_or_absent(text: str, expected: int) -> None:
    assert parse_local_world_size(text) == expected


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_another_local_world_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"must be a whole number of at least 1, got '{text}'"):
        parse_local_world_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("MemTotal: 5 kB\n", None),
        ("MemAvailable:\n", None),
        ("MemAvailable: ? kB\n", None),
        ("MemTotal: 5 kB\nMemAvailable:  3 kB\n", 3072),
    ],
)
def test_mem_available_is_read_in_bytes(text: str, expected: int | None) -> None:
    assert parse_mem_available_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "max 100000", "max", "0 100000", "100000 0", "x y", "1"])
def test_no_quota_is_none(text: str) -> None:
    assert parse_cpu_max(text) is None


def test_a_quota_is_in_cores() -> None:
    assert parse_cpu_max("150000 100000\n") == 1.5
    assert parse_cfs("50000\n", "200000\n") == 0.25
    assert parse_cfs("-1\n", "100000\n") is None


def test_memory_left_is_never_negative_and_never_above_the_limit() -> None:
    assert parse_memory_left(limit="10", usage="25", stat="") == 0
    assert parse_memory_left(limit="10", usage="5", stat="inactive_file 9\nactive_file 9") == 10
    assert parse_memory_left(limit="max", usage="5", stat="") is None
    assert parse_memory_left(limit="10", usage="", stat="") is None


def test_the_own_groups_are_found_by_controller() -> None:
    groups = parse_own_groups("12:cpu,cpuacct:/a:b\n0::/c\nnonsense\n")
    assert {name: str(path) for name, (_, path) in groups.items()} == {
        "cpu": "/a:b",
        "cpuacct": "/a:b",
        "": "/c",
    }
    assert groups["cpu"][0] == "cpu,cpuacct"


@settings(deadline=None, max_examples=50)
@given(st.text(), st.text(), st.text())
def test_whatever_the_kernel_writes_nothing_breaks(first: str, second: str, third: str) -> None:
    parse_own_groups(first)
    parse_cpu_max(first)
    parse_cfs(first, second)
    parse_memory_left(limit=first, usage=second, stat=third)
    parse_mem_available_bytes(f"MemAvailable:{first}")
