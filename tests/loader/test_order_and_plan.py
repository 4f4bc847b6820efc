"""The pure part: every epoch a permutation, ranks partition it, any position at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.loader._order import Order, QuasiRandom, Sequential, Shuffled, Weighted, balanced_weights
from stoker.loader._permutation import Permutation, derive
from stoker.loader._plan import Plan


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_a_permutation_is_one(size: int, key: int) -> None:
    np.testing.assert_array_equal(np.sort(Permutation(size, key)(np.arange(size))), np.arange(size))


@given(size=st.integers(1, 2**62), key=st.integers(0, 2**32), data=st.data())
@settings(max_examples=50)
def test_any_position_is_computed_alone(size: int, key: int, data: st.DataObject) -> None:
    positions = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5)), np.int64)
    permutation = Permutation(size, key)
    together = permutation(positions)
    alone = [int(permutation(positions[i : i + 1])[0]) for i in range(len(positions))]
    assert together.tolist() == alone
    assert ((together >= 0) & (together < size)).all()


@given(size=st.integers(4097, 2**19), key=st.integers(0, 2**64 - 1))
@settings(max_examples=30)
def test_many_positions_are_looked_up_to_the_same_effect(size: int, key: int) -> None:
    permutation = Permutation(size, key)
    positions = np.arange(size)[-(2**14) :]
    few = [permutation(part) for part in np.array_split(positions, len(positions) // 60)]
    np.testing.assert_array_equal(permutation(positions), np.concatenate(few))


def test_a_permutation_looks_random() -> None:
    size = 10_007
    shuffled = Permutation(size, 5)(np.arange(size))
    steps = np.abs(np.diff(shuffled))
    assert abs(steps.mean() / (size / 3) - 1) < 0.03  # the mean distance of two random numbers
    assert abs(np.corrcoef(shuffled, np.arange(size))[0, 1]) < 0.03
    assert (shuffled == np.arange(size)).sum() < 8
    halves = shuffled[: size // 2] < size // 2
    assert abs(halves.mean() - 0.5) < 0.02


def test_every_place_of_a_small_permutation_is_equally_likely() -> None:
    counts = np.zeros((5, 5))
    for key in range(5000):
        counts[np.arange(5), Permutation(5, key)(np.arange(5))] += 1
    assert (np.abs(counts / 1000 - 1) < 0.13).all()  # four standard deviations


def test_keys_differ_by_every_part_and_its_place() -> None:
    keys = {derive(0, 1), derive(1, 0), derive(0, 0), derive(0), derive(0, 0, 0), derive(-1), derive(2**63)}
    assert len(keys) == 7


def orders(length: int, seed: int) -> list[Order]:
    return [
        Sequential(length),
        Shuffled(length, seed),
        QuasiRandom(length, seed, run_length=7, pool=4),
        QuasiRandom(length, seed, run_length=1, pool=1),
        QuasiRandom(length, seed, run_length=500, pool=500),
    ]


@given(length=st.integers(1, 400), seed=st.integers(0, 99), epoch=st.integers(0, 5))
@settings(max_examples=40)
def test_every_epoch_is_a_permutation(length: int, seed: int, epoch: int) -> None:
    for order in orders(length, seed):
        found = order.at(epoch, np.arange(order.length))
        np.testing.assert_array_equal(np.sort(found), np.arange(length))


def test_epochs_and_seeds_differ_and_repeat() -> None:
    for make in (lambda s: Shuffled(500, s), lambda s: QuasiRandom(500, s, run_length=8, pool=4)):
        first = make(1).at(0, np.arange(500))
        np.testing.assert_array_equal(first, make(1).at(0, np.arange(500)))
        assert not np.array_equal(first, make(1).at(1, np.arange(500)))
        assert not np.array_equal(first, make(2).at(0, np.arange(500)))


def test_the_quasi_random_order_reads_in_runs_but_mixes_pools() -> None:
    order = QuasiRandom(100_000, 0, run_length=100, pool=20)
    found = order.at(0, np.arange(100_000))
    for start in range(0, 90_000, 2000):  # one pool of 20 runs
        assert len(np.unique(found[start : start + 2000] // 100)) <= 25  # a few walked in from the end
    batch = found[:64]
    assert len(np.unique(batch // 100)) > 10
    assert abs(np.corrcoef(found, np.arange(100_000))[0, 1]) < 0.1


def test_weighted_draws_follow_their_weights() -> None:
    weights = np.array([1.0, 2.0, 0.0, 5.0])
    order = Weighted(weights, seed=3, length=40_000)
    shares = np.bincount(order.at(0, np.arange(40_000)), minlength=4) / 40_000
    np.testing.assert_allclose(shares, weights / 8, atol=0.01)
    assert not np.array_equal(order.at(0, np.arange(100)), order.at(1, np.arange(100)))


def test_balanced_weights_draw_every_class_equally_often() -> None:
    labels = np.array(["rare"] * 10 + ["common"] * 990)
    order = Weighted(balanced_weights(labels), seed=0, length=20_000)
    drawn = labels[order.at(0, np.arange(20_000))]
    assert abs((drawn == "rare").mean() - 0.5) < 0.02


@pytest.mark.parametrize("weights", [[-1.0, 1.0], [0.0, 0.0], [np.nan, 1.0], [[1.0]]])
def test_weights_that_cannot_be_are_refused(weights: list[float]) -> None:
    with pytest.raises(UsageError, match="weights must"):
        Weighted(np.array(weights), 0, length=2)


plans = st.tuples(st.integers(1, 200), st.integers(1, 20), st.integers(1, 5))


@given(shape=plans, consumed=st.integers(0, 200))
def test_ranks_partition_what_is_left(shape: tuple[int, int, int], consumed: int) -> None:
    length, batch_size, world_size = shape
    consumed = min(consumed, length)
    ranks = [Plan(length, batch_size, rank, world_size) for rank in range(world_size)]
    steps = {plan.num_steps(consumed) for plan in ranks}
    assert len(steps) == 1, "unequal ranks would wait for each other for ever"
    parts = [plan.positions(consumed, step) for step in range(steps.pop()) for plan in ranks]
    assert all(1 <= len(part) <= batch_size for part in parts)
    seen = np.concatenate([np.zeros(0, np.int64), *parts])
    fresh = np.sort(seen)[np.sort(seen) >= consumed] if consumed else np.sort(seen)
    assert set(range(consumed, length)) <= set(seen.tolist())
    repeated = len(seen) - (length - consumed)
    assert repeated == 0 or repeated < world_size
    assert len(fresh) >= length - consumed


@given(shape=plans, consumed=st.integers(0, 200), span=st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_positions_of_many_steps_are_those_of_each(
    shape: tuple[int, int, int], consumed: int, span: tuple[int, int]
) -> None:
    length, batch_size, world_size = shape
    for rank in range(world_size):
        plan = Plan(length, batch_size, rank, world_size)
        num_steps = plan.num_steps(min(consumed, length))
        steps = range(min(span[0], num_steps), min(sum(span), num_steps))
        positions, cuts = plan.positions_of(min(consumed, length), steps)
        each = [plan.positions(min(consumed, length), step) for step in steps]
        np.testing.assert_array_equal(positions, np.concatenate([np.zeros(0, np.int64), *each]))
        assert cuts == [0, *np.cumsum([len(part) for part in each]).tolist()]


@given(shape=plans)
def test_dropping_and_padding_make_all_steps_equal(shape: tuple[int, int, int]) -> None:
    length, batch_size, world_size = shape
    for options in ({"drop_last": True}, {"pad": True}):
        for rank in range(world_size):
            plan = Plan(length, batch_size, rank, world_size, **options)
            sizes = {len(plan.positions(0, step)) for step in range(plan.num_steps())}
            assert sizes <= {batch_size}
    assert Plan(length, batch_size, 0, world_size, drop_last=True).num_steps() == length // (
        batch_size * world_size
    )


@given(shape=plans, other=plans, steps=st.integers(0, 10))
def test_another_number_of_ranks_goes_on_with_just_what_is_left(
    shape: tuple[int, int, int], other: tuple[int, int, int], steps: int
) -> None:
    length = shape[0]
    before = [Plan(length, shape[1], rank, shape[2]) for rank in range(shape[2])]
    steps = min(steps, before[0].num_steps())
    consumed = before[0].consumed_after(0, steps)
    done = [plan.positions(0, step) for step in range(steps) for plan in before]
    after = [Plan(length, other[1], rank, other[2]) for rank in range(other[2])]
    rest = [plan.positions(consumed, s) for plan in after for s in range(plan.num_steps(consumed))]
    seen = np.concatenate([np.zeros(0, np.int64), *done, *rest])
    assert set(seen.tolist()) == set(range(length))


def test_a_plan_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="batch_size must be at least 1, got 0"):
        Plan(10, 0)
    with pytest.raises(UsageError, match="rank must be from 0 to world_size - 1, got 2 of 2"):
        Plan(10, 1, 2, 2)


def test_the_order_of_a_billion_samples_costs_nothing() -> None:
    order = Shuffled(10**9, 0)
    found = order.at(0, np.array([0, 10**9 - 1, 123_456_789]))
    assert len(set(found.tolist())) == 3
