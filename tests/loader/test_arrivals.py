"""Which shards are fetched ahead, as a function of how far reading is; threads that do it."""

import threading
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from stoker.loader._arrivals import FetchAhead, FetchPlan

Part = tuple[int, list[int]]
parts = st.lists(
    st.tuples(st.integers(1, 5), st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=4)),
    max_size=30,
)


@given(parts, st.integers(1, 40), st.integers(1, 20))
def test_every_part_is_asked_for_by_the_time_it_is_read(
    epoch: list[Part], max_bytes: int, max_samples: int
) -> None:
    plan = FetchPlan(iter(epoch), [4] * 10, max_bytes=max_bytes, max_samples=max_samples)
    asked: set[int] = set(plan.advance(0))
    for num_samples, shards in epoch:
        assert set(shards) <= asked
        asked |= set(plan.advance(num_samples))


@given(parts)
def test_while_a_shard_is_still_to_be_used_it_is_asked_for_once(epoch: list[Part]) -> None:
    plan = FetchPlan(iter(epoch), [1] * 10, max_bytes=10**6, max_samples=10**6)
    asked = plan.advance(0)
    assert len(asked) == len(set(asked)) == len({shard for _, shards in epoch for shard in shards})
    firsts = list(dict.fromkeys(shard for _, shards in epoch for shard in shards))
    assert asked == firsts


def test_no_more_is_looked_at_than_the_window_has_room_for() -> None:
    walked = []

    def endless() -> Iterator[Part]:
        for number in range(1000):
            walked.append(number)
            yield 10, [number]

    plan = FetchPlan(endless(), [100] * 1000, max_bytes=250, max_samples=10**6)
    assert plan.advance(0) == [0, 1, 2]
    assert plan.advance(5) == []
    assert plan.advance(5) == [3]
    assert walked == [0, 1, 2, 3]


def test_everything_asked_for_is_brought_and_an_error_ends_nothing() -> None:
    from stoker.errors import StoreUnreachableError

    brought = []
    all_there = threading.Event()

    def bring(number: int, _: threading.Event) -> None:
        brought.append(number)
        if len(brought) == 50:
            all_there.set()
        if number % 7 == 0:
            raise StoreUnreachableError("gone")

    plan = FetchPlan(iter([(1, list(range(50)))]), [1] * 50, max_bytes=100)
    ahead = FetchAhead(plan, bring)
    ahead.advance(0)
    assert all_there.wait(60)
    ahead.close()
    assert sorted(brought) == list(range(50))
