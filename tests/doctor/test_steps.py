"""From spans of time to steps and pauses, without clocks or torch."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.doctor._record import Pause, Step
from stoker.doctor.probes._steps import (
    STAGE_OF,
    LoopLoader,
    Span,
    exclusive,
    find_steps,
    in_order,
    training_epochs,
)

TRAIN, VALID = 0, 1
MS = 1_000_000


class Loop:
    """Writes the spans of a made-up loop; times in milliseconds."""

    def __init__(self) -> None:
        self.time = 1000
        self.spans: list[Span] = []
        self.cpu = 0

    def span(self, kind: Any, length: int, inside: Callable[[], None] | None = None, **fields: Any) -> None:
        begin = self.time * MS
        if inside:
            inside()
        self.time += length
        self.spans.append(Span(kind, begin, self.time * MS, cpu=self.cpu * MS, **fields))

    def iterate(self, loader: int, epoch: int, length: int = 0) -> None:
        self.span("epoch", length, loader=loader, epoch=epoch)

    def take(self, loader: int, epoch: int, length: int, **fields: Any) -> None:
        self.span("next", length, loader=loader, epoch=epoch, **{"num_samples": 8, **fields})

    def stop(self, loader: int, epoch: int, length: int = 0) -> None:
        self.span("stop", length, loader=loader, epoch=epoch)

    def passes(self) -> None:
        self.span("forward", 3)
        self.span("backward", 5)

    def optimize(self, optimizer: int = 7) -> None:
        self.span("optimizer", 1, optimizer=optimizer)

    def rest(self, length: int) -> None:
        self.time += length

    def cut(self, *, num_workers: int = 0, **options: Any) -> tuple[list[Step], list[Pause]]:
        loaders = {TRAIN: LoopLoader("train", num_workers), VALID: LoopLoader("valid", 0)}
        defaults: dict[str, Any] = {"phases": [(0, "normal")], "origin": 0, "forward_since": 0}
        return find_steps(self.spans, loaders=loaders, **{**defaults, **options})


def lengths(steps: list[Step]) -> list[float]:
    return [round(1000 * step.seconds, 6) for step in steps]


def named(pauses: list[Pause]) -> list[tuple[str, str | None, float]]:
    return [(each.kind, each.loader, round(1000 * (each.end_s - each.begin_s), 6)) for each in pauses]


def epoch(loop: Loop, number: int, *, steps: int = 3, first: int = 2) -> None:
    loop.iterate(TRAIN, number, 4)
    for index in range(steps):
        loop.take(TRAIN, number, first if index == 0 else 2, number=index)
        loop.passes()
        loop.optimize()
        loop.rest(1)
    loop.stop(TRAIN, number, 1)


def test_a_step_lasts_from_one_batch_to_the_next() -> None:
    loop = Loop()
    epoch(loop, 0)
    steps, pauses = loop.cut()
    assert lengths(steps) == [12, 12, 12]
    expected = {"wait": 0.002, "forward": 0.003, "backward": 0.005, "optimizer": 0.001, "other": 0.001}
    assert all(step.stages == pytest.approx(expected) for step in steps)
    assert {step.loader for step in steps} == {"train"}
    assert {(step.num_batches, step.num_samples) for step in steps} == {(1, 8)}
    assert named(pauses) == [("epoch start", "train", 4), ("other", "train", 1)]


def test_workers_that_start_up_are_a_pause_and_no_wait() -> None:
    loop = Loop()
    epoch(loop, 0, first=40)
    epoch(loop, 1, first=30)
    steps, pauses = loop.cut(num_workers=2)
    assert lengths(steps) == [10, 12, 12] * 2
    assert ["wait" in step.stages for step in steps] == [False, True, True] * 2
    assert [step.num_samples for step in steps] == [8] * 6
    assert named(pauses) == [
        ("epoch start", "train", 44),
        ("other", "train", 1),
        ("epoch start", "train", 34),
        ("other", "train", 1),
    ]


def test_batches_without_an_optimizer_step_are_grouped() -> None:
    loop = Loop()
    loop.iterate(TRAIN, 0)
    for index in range(9):
        loop.take(TRAIN, 0, 2, number=index)
        loop.passes()
        if index % 3 == 2:
            loop.optimize()
    loop.stop(TRAIN, 0)
    steps, _ = loop.cut()
    assert lengths(steps) == [31, 31, 31]
    assert all(step.num_batches == 3 and step.num_samples == 24 for step in steps)
    assert all(step.waits == pytest.approx((0.002,) * 3) for step in steps)


def test_validation_in_the_middle_of_an_epoch_is_kept_apart() -> None:
    loop = Loop()
    loop.iterate(TRAIN, 0)
    for index in range(4):
        loop.take(TRAIN, 0, 2, number=index)
        loop.passes()
        loop.optimize()
        if index == 1:
            loop.iterate(VALID, 0)
            for _ in range(3):
                loop.take(VALID, 0, 2)
                loop.span("forward", 3)
            loop.stop(VALID, 0)
            loop.rest(6)
    loop.stop(TRAIN, 0)
    assert training_epochs(loop.spans) == {(TRAIN, 0)}
    steps, pauses = loop.cut()
    assert lengths(steps) == [11, 11, 11, 11]
    assert named(pauses) == [("validation", "valid", 15), ("other", None, 6)]


def test_a_validation_that_is_broken_off_ends_where_training_goes_on() -> None:
    loop = Loop()
    loop.iterate(TRAIN, 0)
    for index in range(3):
        loop.take(TRAIN, 0, 2, number=index)
        loop.passes()
        loop.optimize()
        loop.iterate(VALID, index)
        loop.take(VALID, index, 2)
        loop.span("forward", 3)
    loop.stop(TRAIN, 0)
    steps, pauses = loop.cut()
    assert lengths(steps) == [11, 11, 11]
    assert named(pauses)[0] == ("validation", "valid", 5)


def test_a_loader_that_is_trained_on_and_then_evaluated_on_has_epochs_of_both_kinds() -> None:
    loop = Loop()
    epoch(loop, 0)
    loop.iterate(TRAIN, 1)
    loop.take(TRAIN, 1, 2)
    loop.span("forward", 3)
    loop.take(TRAIN, 1, 2)
    loop.span("forward", 3)
    loop.stop(TRAIN, 1)
    epoch(loop, 2)
    assert training_epochs(loop.spans) == {(TRAIN, 0), (TRAIN, 2)}
    steps, pauses = loop.cut()
    assert len(steps) == 6
    assert ("validation", "train", 10) in named(pauses)


def test_a_batch_asked_for_without_gradients_is_not_trained_on() -> None:
    loop = Loop()
    loop.take(VALID, 0, 2, grad=False)
    loop.passes()
    assert training_epochs(loop.spans) == set()


def test_loaders_that_are_iterated_together_are_both_trained_on() -> None:
    loop = Loop()
    loop.iterate(TRAIN, 0)
    loop.iterate(VALID, 0)
    for index in range(3):
        loop.take(TRAIN, 0, 2, number=index)
        loop.take(VALID, 0, 4, number=index)
        loop.passes()
        loop.optimize()
    loop.stop(TRAIN, 0)
    assert training_epochs(loop.spans) == {(TRAIN, 0), (VALID, 0)}
    steps, _ = loop.cut()
    assert lengths(steps) == [15, 15, 15]
    assert steps[0].num_batches == 1
    assert steps[0].stages["wait"] == pytest.approx(0.006)


def test_a_loop_that_fetches_one_ahead_keeps_its_last_step() -> None:
    loop = Loop()
    loop.iterate(TRAIN, 0)
    loop.take(TRAIN, 0, 2)
    for _ in range(2):
        loop.take(TRAIN, 0, 2)
        loop.passes()
        loop.optimize()
    loop.stop(TRAIN, 0)
    loop.passes()
    loop.optimize()
    loop.iterate(TRAIN, 1)
    loop.take(TRAIN, 1, 2)
    loop.passes()
    steps, _ = loop.cut()
    assert lengths(steps) == [13, 11, 9]
    assert steps[-1].loader == "train"


def test_two_optimizers_make_one_step() -> None:
    loop = Loop()
    loop.iterate(TRAIN, 0)
    for index in range(3):
        loop.take(TRAIN, 0, 2, number=index)
        for optimizer in (7, 8):
            loop.passes()
            loop.optimize(optimizer)
    loop.stop(TRAIN, 0)
    steps, _ = loop.cut()
    assert lengths(steps) == [20, 20, 20]


def test_without_any_optimizer_a_backward_pass_makes_the_step() -> None:
    loop = Loop()
    loop.iterate(TRAIN, 0)
    for index in range(3):
        loop.take(TRAIN, 0, 2, number=index)
        loop.passes()
    loop.stop(TRAIN, 0)
    steps, _ = loop.cut()
    assert lengths(steps) == [10, 10, 10]
    assert "optimizer" not in steps[0].stages


def test_without_a_loader_the_optimizer_marks_the_steps() -> None:
    loop = Loop()
    for _ in range(4):
        loop.rest(6)
        loop.passes()
        loop.optimize()
        loop.optimize(8)
    steps, pauses = loop.cut()
    assert lengths(steps) == [16, 16, 16]  # the first one's begin is not known
    assert "wait" not in steps[0].stages
    assert steps[0].stages["other"] == pytest.approx(0.006)
    assert pauses == []


def test_an_optimizer_that_calls_a_closure_claims_only_what_is_its_own() -> None:
    loop = Loop()
    loop.iterate(TRAIN, 0)
    for index in range(2):
        loop.take(TRAIN, 0, 2, number=index)
        loop.span("optimizer", 1, inside=loop.passes)
    loop.stop(TRAIN, 0)
    steps, _ = loop.cut()
    assert steps[0].stages == pytest.approx(
        {"wait": 0.002, "forward": 0.003, "backward": 0.005, "optimizer": 0.001, "other": 0.0}
    )


def test_our_own_doing_is_nobodys_time_and_changes_the_phase() -> None:
    loop = Loop()
    loop.iterate(TRAIN, 0)
    phases = [(0, "warmup")]
    for index in range(6):
        if index == 2:
            loop.span("aside", 100)
            phases.append((loop.time * MS, "normal"))
        if index == 4:
            loop.span("aside", 50)
            phases.append((loop.time * MS, "profile"))
        if index == 5:
            loop.span("aside", 50)
            phases.append((loop.time * MS, "host"))
        loop.take(TRAIN, 0, 2, number=index)
        loop.passes()
        loop.optimize()
    loop.span("aside", 100)
    steps, _ = loop.cut(phases=phases)
    assert lengths(steps) == [11] * 5
    assert [step.phase for step in steps] == ["warmup"] * 2 + ["normal"] * 2 + ["host"]


def test_a_stage_has_no_key_before_it_could_be_seen() -> None:
    loop = Loop()
    loop.iterate(TRAIN, 0)
    for index in range(4):
        loop.take(TRAIN, 0, 2, number=index)
        if index < 2:
            loop.rest(3)
        else:
            loop.span("forward", 3)
        loop.span("backward", 5)
        loop.optimize()
        if index == 1:
            since = loop.time * MS
    loop.stop(TRAIN, 0)
    steps, _ = loop.cut(forward_since=since)
    assert ["forward" in step.stages for step in steps] == [False, False, True, True]
    assert lengths(steps) == [11] * 4


@st.composite
def nested_spans(draw: st.DrawFn) -> list[Span]:
    """Spans of one thread: side by side or one inside the other."""

    def fill(begin: int, end: int, depth: int) -> list[Span]:
        spans: list[Span] = []
        at = begin
        while depth < 3 and at < end and draw(st.booleans()):
            inner = draw(st.integers(at, end))
            stop = draw(st.integers(inner, end))
            kind = draw(st.sampled_from(sorted(STAGE_OF)))
            spans.append(Span(kind, inner, stop, loader=TRAIN, epoch=0))  # type: ignore[arg-type]
            spans += fill(inner, stop, depth + 1)
            at = stop + 1
        return spans

    return fill(0, 60, 0)


@given(nested_spans())
def test_every_moment_belongs_to_the_innermost_span_around_it(spans: list[Span]) -> None:
    ordered = in_order(spans)
    claimed: dict[int, str] = {}
    for begin, end, stage in exclusive(ordered):
        for moment in range(begin, end):
            assert moment not in claimed
            claimed[moment] = stage
    for moment in range(60):
        around = [span for span in ordered if span.begin <= moment < span.end]
        expected = STAGE_OF[around[-1].kind] if around else None
        assert claimed.get(moment) == expected


@given(nested_spans(), st.lists(st.integers(0, 60), min_size=2, max_size=6, unique=True))
def test_stages_sum_up_to_the_step(spans: list[Span], cuts: list[int]) -> None:
    marks = [Span("aside", cut, cut) for cut in cuts]
    steps, _ = find_steps(
        [*spans, *marks],
        phases=[(0, "normal")],
        loaders={TRAIN: LoopLoader("train", 0)},
        origin=0,
        forward_since=0,
    )
    for step in steps:
        assert sum(step.stages.values()) == pytest.approx(step.seconds)
        assert all(seconds >= 0 for seconds in step.stages.values())
    for one, other in pairwise(steps):
        assert one.end_s <= other.begin_s
