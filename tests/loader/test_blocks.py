"""Blocks that several threads and the consumer read side by side."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.errors import BadSampleError, StoreUnreachableError, StoreWriteError
from stoker.loader._blocks import BlockReader
from stoker.loader._course import INDEX, Course
from stoker.loader._order import Sequential
from stoker.loader._plan import Plan
from stoker.loader._slots import Slot, Slots

NUM_SAMPLES = 40


class Numbers:
    """Data whose sample is its number; reading one of them may fail, and who reads what is told."""

    identity = "numbers"
    fixed: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]] = {"x": (np.dtype(np.int64), ())}
    has_rest = False
    rest_bytes = 0
    num_parts = num_bytes = 0

    def __init__(
        self, *, at_memory_speed: bool, failing: int = -1, error: BaseException | None = None
    ) -> None:
        self.at_memory_speed = at_memory_speed
        self.read: list[int] = []
        self._failing = failing
        self._error = error

    def __len__(self) -> int:
        return NUM_SAMPLES

    def key(self, number: int) -> str:
        return f"number {number}"

    def check(self) -> None: ...

    def expect(self, num_bytes: int, in_turn_bytes: int) -> None: ...

    def locate(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return numbers

    def read_fixed(
        self,
        places: NDArray[np.int64],
        out: Mapping[str, NDArray[Any]],
        *,
        seed: int,  # noqa: ARG002
        epoch: int,  # noqa: ARG002
    ) -> None:
        if self._error is not None and self._failing in places:
            raise self._error
        out["x"][: len(places)] = places
        self.read += places.tolist()

    def read_rest(self, places: NDArray[np.int64]) -> dict[str, Any]:  # noqa: ARG002
        return {}

    def ahead(self, course: Course) -> None: ...

    def populate(self, part: int) -> None: ...


def slots_of(rows: int) -> Slots:
    def allocate() -> Slot:
        return {name: np.empty(rows, np.int64) for name in ("x", INDEX)}

    return Slots(allocate)


def blocks(
    data: Numbers, pool: ThreadPoolExecutor, slots: Slots, num_threads: int, *, skip_bad: bool = False
) -> BlockReader:
    course = Course(Sequential(NUM_SAMPLES), Plan(NUM_SAMPLES, 2), 0, 0, 0)
    return BlockReader(
        data,
        course,
        slots,
        pool,
        collate=lambda batch: batch,
        steps_per_block=2,
        num_ahead=4,
        num_threads=num_threads,
        skip_bad=skip_bad,
    )


def take(reader: BlockReader, given: list[int]) -> None:
    for block in reader:
        given += block.slot["x"][: block.cuts[-1]].tolist()


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("consumer_reads", [False, True])
def test_every_block_is_read_once_and_given_in_order(*, consumer_reads: bool, num_threads: int) -> None:
    data, slots = Numbers(at_memory_speed=consumer_reads), slots_of(4)
    given: list[int] = []
    with ThreadPoolExecutor(num_threads) as pool:
        for _ in range(50):
            take(blocks(data, pool, slots, num_threads), given)
    assert given == 50 * list(range(NUM_SAMPLES))
    assert sorted(data.read) == sorted(given)
    assert len(slots) <= 6  # four ahead, the consumer's, and one that a thread took before it was given back


@pytest.mark.parametrize("consumer_reads", [False, True])
def test_what_goes_wrong_is_raised_where_its_block_would_have_been_given(*, consumer_reads: bool) -> None:
    data = Numbers(at_memory_speed=consumer_reads, failing=21, error=MemoryError("no room"))
    given: list[int] = []
    with ThreadPoolExecutor(2) as pool, pytest.raises(BadSampleError, match=r"number 21.*no room"):
        take(blocks(data, pool, slots_of(4), 2), given)
    assert given == list(range(len(given)))
    assert 18 <= len(given) <= 21


@pytest.mark.parametrize("error", [StoreUnreachableError("no answer"), StoreWriteError("no room")])
def test_no_sample_is_skipped_for_what_is_not_its_fault(error: Exception) -> None:
    data = Numbers(at_memory_speed=False, failing=21, error=error)
    with ThreadPoolExecutor(2) as pool, pytest.raises(type(error)):
        take(blocks(data, pool, slots_of(4), 2, skip_bad=True), [])


def test_an_interrupt_while_the_consumer_reads_reaches_it_at_once() -> None:
    data = Numbers(at_memory_speed=True, failing=6, error=KeyboardInterrupt())
    no_thread = ThreadPoolExecutor(1)
    busy = threading.Event()
    no_thread.submit(busy.wait, 60)  # so that the consumer has to read all of it
    try:
        with pytest.raises(KeyboardInterrupt):
            take(blocks(data, no_thread, slots_of(4), 1), [])
    finally:
        busy.set()
        no_thread.shutdown()
    assert max(data.read) < 6


def test_left_early_it_gives_back_every_slot() -> None:
    slots = slots_of(4)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(100):
            for _block in blocks(Numbers(at_memory_speed=True), pool, slots, 2):
                break
    assert len(slots) <= 6
