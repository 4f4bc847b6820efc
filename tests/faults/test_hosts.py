"""Several hosts train together under torchrun; one is lost, others join.

A host is a group of processes: an agent of torchrun and its workers. Where the system permits, each is in a
network namespace of its own, with an address of its own; else they share this machine's loopback.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.train import load_checkpoint
from support.host import EPOCHS
from support.stages import have_same_weights
from support.training import NUM_SAMPLES, make_store

TESTS = Path(__file__).parents[1]
TIMEOUT_S = 240
QUICK = "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=1,join_timeout=200"


class Network:
    """Where hosts are, and how a command is run on one of them."""

    def __init__(self, addresses: list[str], interface: str | None, namespaces: list[str]) -> None:
        self.addresses, self._interface, self._namespaces = addresses, interface, namespaces

    def start(self, host: int, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        prefix = ["ip", "netns", "exec", self._namespaces[host]] if self._namespaces else []
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))),
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # else an agent that joins later waits in vain
        }
        if self._interface is not None:
            environment["GLOO_SOCKET_IFNAME"] = self._interface
        with log.open("ab") as file:
            return subprocess.Popen(
                [*prefix, *command], stdout=file, stderr=file, start_new_session=True, env=environment
            )


@contextlib.contextmanager
def namespaces() -> Iterator[Network | None]:
    """Two hosts with a cable between them; None where that is not permitted."""
    names = [f"stoker-{os.getpid()}-{side}" for side in "ab"]
    ends = [f"st{os.getpid() % 100_000}{side}" for side in "ab"]
    addresses = ["10.213.77.1", "10.213.77.2"]
    commands = [["ip", "netns", "add", name] for name in names]
    commands.append(["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]])
    for name, end, address in zip(names, ends, addresses, strict=True):
        inside = ["ip", "netns", "exec", name, "ip"]
        commands += [
            ["ip", "link", "set", end, "netns", name],
            [*inside, "link", "set", end, "name", "cable0"],
            [*inside, "addr", "add", f"{address}/24", "dev", "cable0"],
            [*inside, "link", "set", "cable0", "up"],
            [*inside, "link", "set", "lo", "up"],
        ]
    try:
        permitted = all(_succeeds(command) for command in commands)
        yield Network(addresses, "cable0", names) if permitted else None
    finally:
        for name in names:
            _succeeds(["ip", "netns", "delete", name])


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.fixture
def network() -> Iterator[Network]:
    with namespaces() as found:
        yield found or Network(["127.0.0.1", "127.0.0.1"], None, [])


class Cluster:
    """Hosts that train one model."""

    def __init__(self, network: Network, store: Path, folder: Path, *, nodes: str, gates: list[int]) -> None:
        folder.mkdir()
        self.network, self.folder = network, folder
        self.alive: dict[int, subprocess.Popen[bytes]] = {}
        self._arguments = ["-m", "support.host", str(store), str(folder), *map(str, gates)]
        self._nodes = nodes
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    def start(self, host: int) -> None:
        address = self.network.addresses
        command = [
            *(sys.executable, "-m", "torch.distributed.run"),
            *(f"--nnodes={self._nodes}", "--nproc-per-node=1", "--max-restarts=5"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={address[0]}:{self._port}", "--rdzv-id=stoker"),
            *(f"--rdzv-conf={QUICK},is_host={int(host == 0)}", f"--local-addr={address[host]}"),
            *self._arguments,
        ]
        self.alive[host] = self.network.start(host, command, self.folder / f"host-{host}.log")

    def lose(self, host: int) -> None:
        """As if its power were cut: agent and workers."""
        for process in _tree(self.alive[host].pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.alive.pop(host).wait()

    def let_go(self, gate: int) -> None:
        (self.folder / f"go-{gate}").touch()

    def wait_at(self, gate: int, world_size: int) -> None:
        """Until every rank is at the gate."""
        self._wait(lambda: len(list(self.folder.glob(f"at-{gate}-{world_size}-*"))) == world_size)

    def wait_for_end(self) -> None:
        self._wait(lambda: all(process.poll() is not None for process in self.alive.values()))
        codes = {host: process.returncode for host, process in self.alive.items()}
        assert set(codes.values()) == {0}, self._logs()

    def _wait(self, is_true: Callable[[], bool]) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not is_true():
            assert time.monotonic() < end, self._logs()
            time.sleep(0.02)

    def _logs(self) -> str:
        return "\n".join(f"{path}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log"))

    def close(self) -> None:
        for host in list(self.alive):
            self.lose(host)

    def samples_by_epoch(self) -> dict[int, Counter[int]]:
        """What was learnt from: of a step that was done twice, what counts is the second time."""
        records = self.records()
        last = {record["step"]: record["segment"] for record in records}
        found: dict[int, Counter[int]] = {}
        for record in records:
            if record["segment"] == last[record["step"]]:
                found.setdefault(record["epoch"], Counter()).update(record["samples"])
        return found

    def records(self) -> list[dict[str, Any]]:
        lines = [line for path in self.folder.glob("seen-*") for line in path.read_text().splitlines()]
        return sorted(map(json.loads, lines), key=lambda record: (record["segment"], record["step"]))


def _tree(pid: int) -> list[int]:
    """The process and all below it; workers of an agent are in sessions of their own."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    make_store(tmp_path / "a.stoker")
    return tmp_path / "a.stoker"


EXACT = {epoch: Counter(range(NUM_SAMPLES)) for epoch in range(EPOCHS)}


def test_a_host_lost_and_replaced_changes_nothing(network: Network, store: Path, tmp_path: Path) -> None:
    clusters = []
    for name, gates in (("whole", []), ("disturbed", [3])):
        cluster = Cluster(network, store, tmp_path / name, nodes="2", gates=gates)
        clusters.append(cluster)
        with contextlib.closing(cluster):
            cluster.start(0)
            cluster.start(1)
            if gates:
                cluster.wait_at(3, world_size=2)
                cluster.lose(1)
                cluster.let_go(3)
                cluster.start(1)
            cluster.wait_for_end()
    whole, disturbed = clusters
    assert len({record["segment"] for record in disturbed.records()}) == 2
    assert whole.samples_by_epoch() == disturbed.samples_by_epoch() == EXACT
    histories = [(one.folder / "history.json").read_text() for one in clusters]
    assert histories[0] == histories[1]
    assert have_same_weights(*(one.folder / "run" / "last.pt" for one in clusters))


def test_with_fewer_and_with_more_hosts_every_sample_comes_once(
    network: Network, store: Path, tmp_path: Path
) -> None:
    cluster = Cluster(network, store, tmp_path / "run", nodes="1:2", gates=[3, 8])
    with contextlib.closing(cluster):
        cluster.start(0)
        cluster.start(1)
        cluster.wait_at(3, world_size=2)
        cluster.lose(1)
        cluster.let_go(3)
        cluster.wait_at(8, world_size=1)
        cluster.start(1)  # the agent of the other tells its worker to end, and both begin together
        cluster.wait_for_end()
    worlds = [record["world_size"] for record in cluster.records()]
    assert [world for i, world in enumerate(worlds) if i == 0 or world != worlds[i - 1]] == [2, 1, 2]
    assert cluster.samples_by_epoch() == EXACT
    written = load_checkpoint(tmp_path / "run" / "run" / "last.pt")
    assert [row["epoch"] for row in written["history"]] == list(range(EPOCHS))
