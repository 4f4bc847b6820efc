import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from doctor.made_records import Pipeline, record_of
from stoker.doctor._check import compare
from stoker.doctor._diagnosis import Interval
from stoker.doctor._json import from_json, to_json
from stoker.doctor._record import (
    Batch,
    Event,
    Line,
    Loader,
    Machine,
    Moment,
    Operators,
    Pause,
    Place,
    Record,
    Step,
    Trial,
)
from stoker.doctor.analysis._analysis import diagnose
from stoker.errors import UsageError

MACHINE = Machine(2, 4, 8 << 30, "cpu", 2, "3.11", "2.13", "linux")


def test_stages_are_those_of_the_pipeline_and_sum_up_to_the_step() -> None:
    made = Pipeline(copy_s=0.003, forward_s=0.004, backward_s=0.006, optimizer_s=0.001, host_code_s=0.002)
    diagnosis = diagnose(record_of(made))
    truth = {"copy": 0.003, "forward": 0.004, "backward": 0.006, "optimizer": 0.001, "other": 0.002}
    for stage, seconds in truth.items():
        assert diagnosis.stages[stage] == pytest.approx(seconds, rel=0.05), stage
    assert sum(diagnosis.stages.values()) == pytest.approx(diagnosis.step_s.value)
    assert diagnosis.step_s.low <= diagnosis.step_s.value <= diagnosis.step_s.high
    assert diagnosis.samples_per_s == pytest.approx(8 / diagnosis.step_s.value, rel=0.01)


def test_workers_that_deliver_all_at_once_are_averaged_over_whole_rounds() -> None:
    made = Pipeline(
        sample_wait_s=0.02,
        sample_cpu_s=0,
        num_workers=7,
        num_cores=8,
        jitter=0.001,
        forward_s=0.0005,
        backward_s=0.0005,
        optimizer_s=0.0001,
    )
    diagnosis = diagnose(record_of(made))
    assert diagnosis.step_s.value == pytest.approx(0.16 / 7, rel=0.03)


def test_warm_up_and_a_single_stall_move_nothing() -> None:
    record = record_of(Pipeline())
    expected = diagnose(record).step_s.value
    normal = record.in_phase("normal")[30]
    stalled = replace(normal, end_s=normal.end_s + 5.0, stages={**normal.stages, "wait": 5.0})
    record.steps = [
        stalled
        if step is normal
        else replace(step, end_s=step.end_s + 9.0)
        if step.phase == "warmup"
        else step
        for step in record.steps
    ]
    assert diagnose(record).step_s.value == pytest.approx(expected, rel=0.01)


def test_a_stall_that_recurs_counts() -> None:
    record = record_of(Pipeline(num_workers=0, sample_cpu_s=0.0001))
    expected = diagnose(record).step_s.value
    record.steps = [
        replace(step, end_s=step.end_s + 0.1, stages={**step.stages, "other": 0.1})
        if number % 10 == 0
        else step
        for number, step in enumerate(record.steps)
    ]
    assert diagnose(record).step_s.value == pytest.approx(expected + 0.01, rel=0.1)


def test_the_ceiling_is_that_of_a_loop_which_always_has_data() -> None:
    diagnosis = diagnose(record_of(Pipeline(sample_cpu_s=0.01, copy_s=0.004)))
    assert diagnosis.ceiling_speedup is not None
    assert diagnosis.device_ceiling_speedup is not None
    step = diagnosis.step_s.value + diagnosis.pause_s_per_step
    assert diagnosis.ceiling_speedup.value == pytest.approx(step / 0.015, rel=0.03)
    assert diagnosis.device_ceiling_speedup.value == pytest.approx(step / 0.011, rel=0.03)
    assert diagnosis.ceiling_speedup.low <= diagnosis.ceiling_speedup.value <= diagnosis.ceiling_speedup.high


@pytest.mark.parametrize(("num_workers", "most"), [(0, 1.0), (2, 2.0)])
def test_a_replay_in_a_quieter_moment_promises_no_more_than_the_waiting_allows(
    num_workers: int, most: float
) -> None:
    record = record_of(Pipeline(num_workers=num_workers, sample_cpu_s=0.01))
    record.machine = replace(record.machine, num_cores=2, num_torch_threads=2)
    record.steps = [
        replace(step, end_s=step.begin_s + step.seconds / 50, stages={"forward": step.seconds / 50})
        if step.phase == "host"
        else step
        for step in record.steps
    ]
    diagnosis = diagnose(record)
    assert diagnosis.ceiling_speedup is not None
    busy = diagnosis.step_s.value - diagnosis.stages["wait"]
    assert diagnosis.ceiling_speedup.value <= 1.01 * most * diagnosis.step_s.value / busy
    assert any("faster than before" in note for note in diagnosis.notes)


def test_what_is_lost_because_cores_are_shared_is_told_apart_from_waiting() -> None:
    record = record_of(Pipeline(num_workers=3, sample_cpu_s=0.012, loop_threads=2, device="cpu"))
    diagnosis = diagnose(record)
    shared = re.search(
        r"([\d.]+) % of it for want of data and ([\d.]+) % because workers", diagnosis.sentence
    )
    assert shared is not None, diagnosis.sentence
    assert float(shared[1]) / 100 == pytest.approx(diagnosis.starved_fraction, abs=0.02)


def test_data_that_is_always_there_makes_no_step_slower() -> None:
    record = record_of(Pipeline(num_workers=0, sample_cpu_s=1e-6, jitter=0.5))
    record.steps = [
        replace(step, end_s=step.begin_s + 1.5 * step.seconds) if step.phase == "host" else step
        for step in record.steps
    ]
    ceiling = diagnose(record).ceiling_speedup
    assert ceiling is not None
    assert (ceiling.value, ceiling.low) == (1.0, 1.0)


def test_waiting_for_a_core_is_not_called_storage() -> None:
    """Four workers on two cores that only compute: where the system tells, and where it does not."""
    for tells in (True, False):
        record = record_of(Pipeline(num_workers=4, sample_cpu_s=0.01, tells_queues=tells))
        causes = {cause.kind: cause.share for cause in diagnose(record).causes}
        assert causes.get("storage", 0.0) < 0.05


def test_without_replay_there_is_no_ceiling_and_a_note_says_so() -> None:
    diagnosis = diagnose(record_of(Pipeline(sample_cpu_s=0.01), num_replayed=0))
    assert diagnosis.ceiling_speedup is None
    assert diagnosis.verdict == "input-bound"
    assert any("No replay" in note for note in diagnosis.notes)


def test_few_steps_lower_the_confidence() -> None:
    many, few = (diagnose(record_of(Pipeline(), num_normal=num)) for num in (60, 4))
    assert few.confidence < 0.5 * many.confidence
    assert any("Only 4 steps" in note for note in few.notes)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "no optimizer step was seen, no DataLoader was made"),
        (
            {"error": "Traceback (most recent call last):\nKeyError: 'x'\n", "ended": "crashed"},
            "the run crashed (KeyError: 'x')",
        ),
        ({"exit_code": 3}, "the script ended itself with exit code 3"),
    ],
)
def test_a_run_that_trains_nothing_is_said_to_be_so(change: dict[str, Any], text: str) -> None:
    diagnosis = diagnose(Record(command=["train.py"], machine=MACHINE, **change))
    assert diagnosis.verdict == "nothing observed"
    assert text in diagnosis.sentence


def test_steps_of_the_warm_up_alone_are_not_judged() -> None:
    diagnosis = diagnose(record_of(Pipeline(), num_warmup=8, num_normal=0, num_replayed=0))
    assert diagnosis.verdict == "nothing observed"
    assert "of 8 optimizer steps none came after the warm-up" in diagnosis.sentence


def test_what_was_not_observed_and_what_happened_is_noted() -> None:
    record = record_of(Pipeline())
    record.not_observed["copy"] = "the model stays on the processor"
    record.events.append(Event(1.0, "throughput", "The script's own samples/s are wrong."))
    notes = diagnose(record).notes
    assert "Not observed: copy (the model stays on the processor)." in notes
    assert "The script's own samples/s are wrong." in notes


SHORT = (Phase.explicit, Phase.generate, Phase.shrink)
seconds = st.one_of(st.floats(0, 1), st.floats())
names = st.sampled_from(["train", "validation", ""])
places = st.builds(Place, st.text(max_size=5), st.integers(0, 99), st.text(max_size=5), st.text(max_size=5))
stages = st.dictionaries(
    st.sampled_from(["wait", "copy", "forward", "backward", "optimizer", "other"]), seconds
)
steps = st.builds(
    Step, phase=st.sampled_from(["warmup", "normal", "host", "device"]), begin_s=seconds, end_s=seconds,
    stages=stages, num_batches=st.integers(0, 4), num_samples=st.none() | st.integers(0, 64),
    loader=st.none() | names, waits=st.just(()), cpu_s=seconds,
)  # fmt: skip
records = st.builds(
    Record,
    command=st.just(["train.py"]),
    machine=st.builds(
        Machine,
        num_cores=st.integers(0, 64),
        memory_bytes=st.integers(0, 2**40),
        num_torch_threads=st.integers(0, 64),
        device=st.sampled_from(["cpu", "cuda:0 X", "emulated accelerator"]),
        num_cores_present=st.integers(0, 64),
        python=st.just("3"),
        torch=st.just("2"),
        platform=st.just("p"),
    ),
    loaders=st.lists(
        st.builds(
            Loader,
            name=names,
            role=st.sampled_from(["train", "validation", "unused"]),
            batch_size=st.none() | st.integers(0, 9),
            num_workers=st.integers(0, 70),
            prefetch_factor=st.none() | st.integers(0, 9),
            num_samples=st.none() | st.integers(0, 99),
            num_batches=st.none() | st.integers(0, 99),
            made_at=st.none() | places,
            num_epochs=st.integers(0, 3),
        ),
        max_size=2,
    ),
    batches=st.lists(
        st.builds(
            Batch,
            loader=names,
            worker=st.none() | st.integers(0, 3),
            begin_s=seconds,
            end_s=seconds,
            fetch_s=seconds,
            fetch_cpu_s=seconds,
            collate_s=seconds,
            collate_cpu_s=seconds,
            transforms=st.dictionaries(st.text(max_size=3), seconds, max_size=2),
            num_samples=st.none() | st.integers(0, 9),
            num_bytes=st.none() | st.integers(0, 99),
            asked_s=st.none() | seconds,
            taken_s=st.none() | seconds,
            was_ready=st.none() | st.booleans(),
            was_blocked=st.none() | st.booleans(),
            queued_s=st.none() | seconds,
        ),
        max_size=6,
    ),
    steps=st.lists(steps, max_size=8),
    pauses=st.lists(st.builds(Pause, begin_s=seconds, end_s=seconds, loader=st.none() | names), max_size=3),
    lines=st.lists(st.builds(Line, place=places, seconds=seconds, num_samples=st.integers(0, 9)), max_size=4),
    operators=st.none()
    | st.builds(Operators, seconds, seconds, st.dictionaries(st.text(max_size=2), seconds)),
    trials=st.lists(
        st.builds(
            Trial,
            loader=names,
            num_samples=st.integers(0, 9),
            seconds_per_sample=seconds,
            cpu_s_per_sample=seconds,
            spread=seconds,
            transforms=st.dictionaries(st.text(max_size=2), seconds, max_size=2),
            collate_s_per_batch=seconds,
            transfer_s_per_batch=st.none() | seconds,
            bytes_per_sample=st.integers(0, 99),
            is_deterministic=st.none() | st.booleans(),
            deterministic_s_per_sample=st.none() | seconds,
        ),
        max_size=2,
    ),
    moments=st.lists(st.builds(Moment, memory_bytes=st.integers(0, 2**40)), max_size=2),
)


@settings(
    max_examples=40, phases=SHORT, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(record=records)
def test_any_record_has_a_diagnosis_that_json_can_hold(record: Record) -> None:
    diagnosis = diagnose(record)
    report = json.loads(json.dumps(to_json(diagnosis, record), allow_nan=False))
    assert report["verdict"] == diagnosis.verdict
    assert 0 <= diagnosis.confidence <= 1
    assert 0 <= diagnosis.starved_fraction <= 1
    assert all(math.isfinite(advice.speedup.value) for advice in diagnosis.advice)
    assert all(one.speedup.low <= one.speedup.value <= one.speedup.high for one in diagnosis.advice)


def test_a_report_gives_the_diagnosis_back() -> None:
    record = record_of(Pipeline(sample_cpu_s=0.01, is_deterministic=True))
    diagnosis = diagnose(record)
    report = json.loads(json.dumps(to_json(diagnosis, record), allow_nan=False))
    assert from_json(report) == diagnosis
    assert report["schema_version"] == 1
    assert report["ceiling_speedup"] == diagnosis.ceiling_speedup.value  # type: ignore[union-attr]
    assert report["run"]["machine"]["num_cores"] == 2
    assert {"action", "predicted_speedup", "low", "high", "ram_bytes", "changes_training", "patch"} <= set(
        report["advice"][0]
    )


@pytest.mark.parametrize("report", [{}, {"schema_version": 99}, {"schema_version": 1, "verdict": "mixed"}])
def test_what_is_no_report_is_refused(report: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="report"):
        from_json(report)


def test_a_comparison_shows_what_was_predicted_and_what_came() -> None:
    made = Pipeline(sample_cpu_s=0.004, num_workers=1, num_cores=4)
    record = record_of(made)
    before = diagnose(record)
    advice = next(one for one in before.advice if one.key == "settings")
    later = record_of(replace(made, num_workers=advice.settings["num_workers"], seed=7))
    comparison = compare(before, record, diagnose(later), later, [advice])
    assert comparison.predicted == advice.speedup
    assert comparison.achieved.value == pytest.approx(advice.speedup.value, rel=0.05)
    assert comparison.achieved.low <= comparison.achieved.value <= comparison.achieved.high
    assert comparison.settings == {"train": advice.settings}
    nothing = Record(command=[], machine=MACHINE)
    assert compare(before, record, diagnose(nothing), nothing, []).achieved == Interval(1.0, 1.0, 1.0)
