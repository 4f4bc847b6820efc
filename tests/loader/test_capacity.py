"""What feeding many accelerators takes: the formulas against a simulation, and their own sense."""

import hypothesis
import hypothesis.strategies as st
import pytest

from stoker.loader._capacity import Demand, Supply, plan_feeding, simulate


def supply(**changes: object) -> Supply:
    usual = {
        "data_bytes": 2e12,
        "sample_bytes": 1e6,
        "num_shards": 30_000,
        "num_cores": 16,
        "gathered_per_s": 1500.0,
        "cache_bytes": 5e11,
        "storage_bytes_per_s": 1e11,
        "is_shared": True,
    }
    return Supply(**usual | changes)  # type: ignore[arg-type]


LIMITS = {
    "fed": ({}, "accelerators"),
    "too few cores": ({"num_cores": 1, "gathered_per_s": 900.0}, "gathering"),
    "a slow share": ({"storage_bytes_per_s": 2e9}, "storage"),
    "slow local disks": ({"storage_bytes_per_s": 2.5e8, "is_shared": False}, "storage"),
    "all in memory": ({"storage_bytes_per_s": 1e6, "cache_bytes": 3e12}, "accelerators"),
}


@pytest.mark.parametrize("num_gpus", [8, 64, 1000])
@pytest.mark.parametrize("name", LIMITS)
def test_what_is_calculated_is_what_a_simulation_gives(name: str, num_gpus: int) -> None:
    changes, limit = LIMITS[name]
    scaled = dict(changes)
    if name in {"fed", "a slow share"}:  # a share that is as slow for few GPUs as for many
        scaled["storage_bytes_per_s"] = changes.get("storage_bytes_per_s", 1e11) * num_gpus / 64
    there = supply(**scaled)
    demand = Demand(num_gpus, 8, batch_size=32, step_s=0.2)
    found = plan_feeding(demand, there).later_epochs
    assert found.limit == limit
    expected = found.fed * num_gpus * 32 / 0.2
    assert simulate(demand, there) == pytest.approx(expected, rel=0.03)


def test_the_first_epoch_reads_everything() -> None:
    needs = plan_feeding(Demand(64, 8, 32, 0.2), supply(cache_bytes=4e12, storage_bytes_per_s=5e9))
    assert needs.later_epochs.limit == "accelerators"
    assert needs.later_epochs.storage_bytes_per_s == 0
    assert needs.first_epoch.limit == "storage"
    assert needs.first_epoch.storage_bytes_per_s == pytest.approx(64 * 32 / 0.2 * 1e6)
    there = supply(cache_bytes=4e12, storage_bytes_per_s=5e9)
    played = simulate(Demand(64, 8, 32, 0.2), there, first_epoch=True)
    assert played == pytest.approx(needs.first_epoch.fed * 64 * 32 / 0.2, rel=0.03)


def test_what_a_node_needs() -> None:
    needs = plan_feeding(Demand(12, 8, 32, 0.2), supply())
    assert needs.num_nodes == 2
    assert needs.samples_per_s == pytest.approx(12 * 32 / 0.2)
    assert needs.bytes_per_s == pytest.approx(8 * 32 / 0.2 * 1e6)  # of the fuller node
    assert needs.readers == 1
    assert needs.mapped_files == 8 * 30_000


@hypothesis.given(
    st.integers(1, 2000), st.integers(1, 16), st.floats(0.001, 2), st.floats(1e6, 1e12), st.booleans()
)
def test_more_of_anything_never_feeds_less(
    num_gpus: int, per_node: int, step_s: float, storage: float, shared: bool
) -> None:
    demand = Demand(num_gpus, per_node, 32, step_s)
    before = plan_feeding(demand, supply(storage_bytes_per_s=storage, is_shared=shared)).later_epochs
    for changes in ({"storage_bytes_per_s": storage * 2}, {"num_cores": 32}, {"cache_bytes": 1e12}):
        more = {"storage_bytes_per_s": storage, "is_shared": shared} | changes
        after = plan_feeding(demand, supply(**more)).later_epochs
        assert after.fed >= before.fed
    assert 0 < before.fed <= 1
