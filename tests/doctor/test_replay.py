"""Batches that are given again."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stoker.doctor.probes._compute import ComputeProbe
from stoker.doctor.probes._replay import (
    MAX_KEPT,
    DeviceResults,
    KeptBatches,
    look_at,
    num_samples_of,
    pointers_of,
    rebuilt,
    tensors_of,
)
from stoker.doctor.probes._tape import Swaps, Tape

Pair = namedtuple("Pair", ["x", "y"])  # noqa: PYI024 - what scripts have


class Custom:
    def __init__(self, x: Tensor) -> None:
        self.x = x


def kept_of(*batches: Any) -> KeptBatches:
    kept = KeptBatches()
    for batch in batches:
        kept.settle()
        kept.offer(batch)
    kept.settle(is_last=True)
    return kept


def test_kept_batches_are_given_in_turn_as_they_were() -> None:
    batches: list[dict[str, Any]] = [
        {"x": torch.full((4, 2), float(number)), "y": [1, 2]} for number in range(3)
    ]
    kept = kept_of(*batches)
    for number in range(7):
        given_batch = kept.give()
        assert torch.equal(given_batch["x"], batches[number % 3]["x"])
        given_batch.pop("x")  # the next one is given it all the same


def test_a_loop_that_changes_its_batches_gets_clones_restored_each_time() -> None:
    kept = KeptBatches()
    for number in range(6):
        batch = [torch.full((4,), float(number))]
        kept.settle()
        kept.offer(batch)
        batch[0].mul_(-1)
    kept.settle(is_last=True)
    assert kept.in_place
    assert len(kept) > 0
    first = kept.give()[0].clone()
    for _ in range(2 * len(kept)):
        given_batch = kept.give()[0]
        assert given_batch[0] >= 0
        given_batch.mul_(-1)
    assert first[0] >= 0


def test_a_short_last_batch_is_not_kept() -> None:
    kept = kept_of(torch.zeros(8, 2), torch.zeros(3, 2), torch.zeros(8, 2))
    assert len(kept) == 2


def test_no_more_is_kept_than_is_needed() -> None:
    assert len(kept_of(*[torch.zeros(2) for _ in range(3 * MAX_KEPT)])) == MAX_KEPT


def test_two_batches_are_kept_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.doctor.probes._replay.MAX_KEPT_BYTES", 10)
    assert len(kept_of(*[torch.zeros(100) for _ in range(5)])) == 2


leaves = st.builds(torch.zeros, st.integers(1, 3)) | st.integers() | st.text(max_size=3) | st.none()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=6,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other or bool(one == other)


@given(trees)
def test_a_rebuilt_batch_is_the_same_in_new_containers(batch: Any) -> None:
    again = rebuilt(batch, {})
    assert same(again, batch)
    if isinstance(batch, dict | list):
        assert again is not batch


@given(trees)
def test_what_is_seen_of_a_batch_is_where_its_tensors_lie(batch: Any) -> None:
    expected = {tensor.untyped_storage().data_ptr() for tensor in tensors_of(batch)}
    assert pointers_of(batch) == expected


@pytest.mark.parametrize(
    "pair",
    [
        [torch.zeros(4, 2), torch.zeros(4)],
        [torch.zeros(6, 2)[2:], torch.zeros(8)[4:]],  # views
        [torch.tensor(1.0), torch.zeros(3)],
        [torch.eye(2).to_sparse(), torch.zeros(2)],
    ],
)
def test_a_pair_is_looked_at_as_any_other_batch(pair: list[torch.Tensor]) -> None:
    assert look_at(pair) == look_at(tuple(pair))


def test_arrays_objects_and_sparse_tensors_are_no_hindrance() -> None:
    array = np.zeros((5, 2))
    pointers, num_samples = look_at((array, torch.eye(2).to_sparse(), Custom(torch.zeros(1))))
    assert pointers == {array.ctypes.data}
    assert num_samples == 5
    assert num_samples_of("nothing") is None
    custom = Custom(torch.zeros(1))
    assert rebuilt(custom, {}).x is custom.x


class Nobody:
    is_stopping = False

    def saw_backward(self) -> None: ...
    def ended_backward(self, end: int, cpu: int) -> None: ...
    def ended_step(self, end: int, cpu: int) -> None: ...

    def saw_optimizer(self, _: Any) -> bool:
        return False

    def stop(self) -> None: ...


def probed() -> tuple[Tape, ComputeProbe, Swaps]:
    tape = Tape(lambda: 0)
    probe = ComputeProbe(tape, director=Nobody())
    swaps = Swaps()
    probe.install_copies(swaps)
    return tape, probe, swaps


def test_only_what_is_copied_of_a_batch_counts() -> None:
    tape, _, swaps = probed()
    with swaps:
        x, other = torch.zeros(4, 4), torch.zeros(4, 4)
        tape.give(pointers_of([x]))
        x.to("cpu")
        x.to(torch.float32)
        other.to(torch.float64)
        torch.nn.Linear(2, 2).to(torch.float64)
        assert tape.spans == []
        double = x[1:].to(torch.float64)  # a view of it
        kept = [double.half(), x.to("cpu", copy=True)]  # a copy of a copy; alive, so that memory is its own
        other.copy_(x)
        other.copy_(torch.ones(4, 4))
        assert [span[0] for span in tape.spans] == ["copy"] * 4
        del kept
        tape.give(set())
        x.double()  # frameworks fetch one batch ahead
        tape.give(set())
        x.double()
        assert len(tape.spans) == 5
    assert torch.Tensor.to is not None
    assert "to" not in vars(torch.Tensor)


def test_copies_of_kept_batches_are_given_again() -> None:
    tape, probe, swaps = probed()
    with swaps:
        x = torch.arange(8.0)
        tape.give(pointers_of([x]))
        probe.results = DeviceResults(pointers_of([x]))
        first = x.to(torch.float64)
        assert x.to(torch.float64) is first
        assert x[2:].to(torch.float64) is not first
        assert torch.equal(x[2:].to(torch.float64), first[2:])
        assert x.to(torch.float16).dtype is torch.float16
        other = torch.arange(8.0)
        tape.give(pointers_of([other]))
        assert other.to(torch.float64) is not first
        first.add_(1)  # the loop changes it in place: the next one is copied anew
        tape.give(pointers_of([x]))
        assert torch.equal(x.to(torch.float64), torch.arange(8.0, dtype=torch.float64))


def test_a_copy_into_a_buffer_is_left_out_once_it_is_filled() -> None:
    tape, probe, swaps = probed()
    with swaps:
        x, buffer = torch.ones(4), torch.zeros(4)
        tape.give(pointers_of([x]))
        probe.results = DeviceResults(pointers_of([x]))
        buffer.copy_(x)
        buffer.zero_()
        buffer.copy_(x)
        assert torch.equal(buffer, torch.zeros(4))
