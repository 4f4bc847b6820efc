"""Whether a stream divides itself among workers is found out by asking it as one of two would."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from stoker.doctor.making._streams import divides_itself


class Stream(IterableDataset[int]):
    def __init__(self, part: Callable[[Any], range | list[int]]) -> None:
        self.part = part

    def __iter__(self) -> Iterator[int]:
        return iter(self.part(get_worker_info()))


def by_steps(info: Any) -> range:
    return range(10) if info is None else range(info.id, 10, info.num_workers)


def whole(_info: Any) -> range:
    return range(10)


def by_id_alone(info: Any) -> range:
    return range(10) if info is None else range(info.id, 10, 2)


def of_one_shard(info: Any) -> range:
    return range(10) if info is None or info.id % info.num_workers == 0 else range(0)


def refusing(info: Any) -> range:
    if info is not None and info.num_workers > 1:
        raise ValueError("one worker at most")
    return range(10)


@pytest.mark.parametrize(
    ("part", "expected"),
    [(by_steps, True), (whole, False), (by_id_alone, None), (of_one_shard, False), (refusing, None)],
)
def test_it_is_found_out_by_asking(part: Callable[[Any], range], expected: bool | None) -> None:
    assert divides_itself(DataLoader(Stream(part))) is expected
    assert get_worker_info() is None


def test_what_was_found_is_what_two_workers_give() -> None:
    for part, expected in ((by_steps, True), (whole, False)):
        loader = DataLoader(Stream(part), batch_size=None, num_workers=2)
        is_each_once = sorted(int(sample) for sample in loader) == list(range(10))
        assert divides_itself(loader) is expected is is_each_once


def test_an_initialiser_of_workers_may_divide_it_in_ways_that_cannot_be_seen() -> None:
    loader = DataLoader(Stream(whole), worker_init_fn=print)
    assert divides_itself(loader) is None
