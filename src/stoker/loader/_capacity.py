"""What feeding many accelerators takes, and what will be the limit: arithmetic over rates. Pure.

With g GPUs a node, n nodes, batches of b samples of s bytes, and steps of t seconds:

    wanted      g b / t               samples a second and node
    gathering   c r                   c cores that gather r samples a second each
    missing     1 - min(1, m / D)     of a node's reads, with m bytes of page cache for D bytes of data;
                                      1 in the first epoch
    storage     w / (s missing)       samples a second, with w bytes a second for a node: its own disk's,
                                      or a part of what all nodes share

A node is fed at the least of the three. Ranks step together, so the slowest node's rate is everybody's;
read ahead, chance evens out, and what remains are these means. ``simulate`` plays it through instead.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

Limit = Literal["accelerators", "gathering", "storage"]


@dataclass(frozen=True)
class Demand:
    """What the accelerators want."""

    num_gpus: int
    gpus_per_node: int
    batch_size: int  # of one GPU
    step_s: float  # with data that is always there

    @property
    def num_nodes(self) -> int:
        return math.ceil(self.num_gpus / self.gpus_per_node)

    @property
    def gpus_of_a_node(self) -> int:
        """Of the fullest."""
        return min(self.num_gpus, self.gpus_per_node)

    @property
    def samples_per_s(self) -> float:
        """Of the fullest node."""
        return self.gpus_of_a_node * self.batch_size / self.step_s


@dataclass(frozen=True)
class Supply:
    """What there is: of a node, but for storage that all nodes share."""

    data_bytes: float
    sample_bytes: float
    num_shards: int
    num_cores: int  # that may gather
    gathered_per_s: float  # samples, by one core while the others do the same
    cache_bytes: float
    storage_bytes_per_s: float
    is_shared: bool  # storage: one for all nodes

    def missing(self, *, first_epoch: bool) -> float:
        """The share of reads that storage must answer."""
        return 1.0 if first_epoch else 1.0 - min(1.0, self.cache_bytes / self.data_bytes)


@dataclass(frozen=True)
class Feeding:
    """One epoch, first or later."""

    samples_per_s: float  # of a node
    limit: Limit
    fed: float  # of what the accelerators want, 0 to 1
    storage_bytes_per_s: float  # that would be needed, of all nodes together

    @property
    def waiting(self) -> float:
        """The share of a step that the accelerators wait."""
        return 1.0 - self.fed


@dataclass(frozen=True)
class Needs:
    """What it takes that nobody waits."""

    num_nodes: int
    samples_per_s: float  # of all nodes
    bytes_per_s: float  # of a node, gathered
    readers: int  # threads of a node
    cache_bytes: float  # of a node, so that later epochs need no storage
    read_ahead_bytes: float  # of a node
    mapped_files: int  # of a node: each rank maps every shard
    first_epoch: Feeding
    later_epochs: Feeding


def plan_feeding(demand: Demand, supply: Supply) -> Needs:
    """What this demand takes of this supply."""
    wanted = demand.samples_per_s
    return Needs(
        num_nodes=demand.num_nodes,
        samples_per_s=demand.num_gpus * demand.batch_size / demand.step_s,
        bytes_per_s=wanted * supply.sample_bytes,
        readers=math.ceil(wanted / supply.gathered_per_s),
        cache_bytes=supply.data_bytes,
        read_ahead_bytes=3 * demand.gpus_of_a_node * demand.batch_size * supply.sample_bytes,
        mapped_files=demand.gpus_of_a_node * supply.num_shards,
        first_epoch=_feeding(demand, supply, first_epoch=True),
        later_epochs=_feeding(demand, supply, first_epoch=False),
    )


def _feeding(demand: Demand, supply: Supply, *, first_epoch: bool) -> Feeding:
    wanted, missing = demand.samples_per_s, supply.missing(first_epoch=first_epoch)
    gathered = supply.num_cores * supply.gathered_per_s
    read = _storage_of_a_node(demand, supply) / (supply.sample_bytes * missing) if missing else math.inf
    rate = min(wanted, gathered, read)
    limit: Limit = "accelerators" if rate == wanted else "gathering" if rate == gathered else "storage"
    needed = demand.num_gpus * demand.batch_size / demand.step_s * supply.sample_bytes * missing
    return Feeding(rate, limit, rate / wanted, needed)


def _storage_of_a_node(demand: Demand, supply: Supply) -> float:
    if not supply.is_shared:
        return supply.storage_bytes_per_s
    share = demand.gpus_of_a_node / demand.num_gpus  # as its ranks ask for more, it gets more
    return supply.storage_bytes_per_s * share


def simulate(
    demand: Demand,
    supply: Supply,
    *,
    num_steps: int = 400,
    ahead: int = 4,
    first_epoch: bool = False,
    seed: int = 0,
) -> float:
    """Samples a second of all GPUs, played through step by step instead of calculated.

    Each node makes its ranks' batches one step after another, up to `ahead` of them early; which samples
    are in its cache is chance. Storage that is shared answers in turns what all nodes ask of a step. A
    step begins when every rank has its batch. The first half of the steps is not counted.
    """
    rng = np.random.default_rng(seed)
    sizes = _gpus_by_node(demand) * demand.batch_size  # samples of a step, by node
    missing = supply.missing(first_epoch=first_epoch)
    made = np.zeros(len(sizes))  # when each node's latest batches were ready
    stored = np.zeros(len(sizes)) if not supply.is_shared else np.zeros(1)  # when storage is free again
    starts = np.zeros(num_steps)
    for step in range(num_steps):
        allowed = starts[step - ahead] if step >= ahead else 0.0  # there is room for these batches
        reading = rng.binomial(sizes, missing) * supply.sample_bytes / supply.storage_bytes_per_s
        if supply.is_shared:
            stored = np.maximum(stored, allowed) + reading.sum()
        else:
            stored = np.maximum(stored, allowed) + reading
        gathering = sizes / (supply.num_cores * supply.gathered_per_s)
        made = np.maximum(np.maximum(made, allowed) + gathering, stored)
        before = starts[step - 1] + demand.step_s if step else 0.0
        starts[step] = max(before, made.max())
    half = num_steps // 2
    return float(sizes.sum() * (num_steps - 1 - half) / (starts[-1] - starts[half]))


def _gpus_by_node(demand: Demand) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    full, rest = divmod(demand.num_gpus, demand.gpus_per_node)
    return np.array([demand.gpus_per_node] * full + ([rest] if rest else []), np.int64)
