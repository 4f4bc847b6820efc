"""Memory is handed out again once nobody holds it, and never before."""

import copy
import pickle
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stoker.augment import Pipeline, _memory
from stoker.augment._memory import Memory
from stoker.augment.signal import AmplitudeScale

SHAPE = (3, 5)


@pytest.fixture(autouse=True, scope="module")
def _small_blocks_too() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_memory, "_LEAST_BYTES", 1)
        yield


def place_of(memory: Memory) -> int:
    return memory.empty(SHAPE, torch.float32).data_ptr()


def test_what_was_dropped_is_used_again() -> None:
    memory = Memory()
    first = memory.empty(SHAPE, torch.float32)
    place = first.data_ptr()
    del first
    assert place_of(memory) == place


def test_a_view_an_array_or_a_graph_keeps_it() -> None:
    memory = Memory()
    x = memory.empty(SHAPE, torch.float32).fill_(2)
    place = x.data_ptr()
    view = x[1:].T
    del x
    assert place_of(memory) != place
    array = view.numpy()
    del view
    assert place_of(memory) != place
    weight = torch.ones(array.shape, requires_grad=True)
    loss = (torch.from_numpy(array) * weight).sum()
    del array
    assert place_of(memory) != place
    loss.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert bool((weight.grad == 2).all())
    del loss
    assert place_of(memory) == place


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.sampled_from([(2, 3), (6,), (4, 4)]))))
def test_no_two_tensors_that_are_held_share_memory(steps: list[tuple[bool, int, tuple[int, ...]]]) -> None:
    memory = Memory()
    held: dict[int, Tensor] = {}
    for number, (drop, which, shape) in enumerate(steps):
        if drop and held:
            del held[list(held)[which % len(held)]]
        else:
            held[number] = memory.empty(shape, torch.float32).fill_(number)
        assert all(bool((x == value).all()) for value, x in held.items())


def test_a_few_blocks_are_kept_at_most() -> None:
    memory = Memory()
    held = [memory.empty(SHAPE, torch.float32) for _ in range(20)]
    places = {x.data_ptr() for x in held}
    del held
    found = [memory.empty(SHAPE, torch.float32) for _ in range(20)]
    assert len(memory._blocks) == 8
    assert len({x.data_ptr() for x in found}) == 20
    assert len(places) == 20


def test_a_batch_that_is_held_is_not_written_to_by_the_next() -> None:
    aug = Pipeline(AmplitudeScale((0.5, 2)), roles={"x": "signal"})
    x = torch.randn(4, 1, 64)
    batches = [aug({"x": x}, index=range(4), epoch=epoch)["x"] for epoch in range(12)]
    again = [aug({"x": x}, index=range(4), epoch=epoch)["x"].clone() for epoch in range(12)]
    assert all(torch.equal(first, second) for first, second in zip(batches, again, strict=True))


def test_a_copy_has_memory_of_its_own() -> None:
    memory = Memory()
    held = memory.empty(SHAPE, torch.float32)
    for other in (copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))):
        assert place_of(other) != held.data_ptr()
