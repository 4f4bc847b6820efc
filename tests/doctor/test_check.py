import json
from dataclasses import replace
from typing import Any

import pytest

from doctor.made_records import Pipeline, record_of
from stoker.doctor._check import check
from stoker.doctor._json import to_json
from stoker.doctor._record import Machine, Record
from stoker.doctor.analysis._analysis import diagnose
from stoker.errors import UsageError

MADE = Pipeline(num_workers=0, sample_cpu_s=0.0005, jitter=0.1)


def report_of(made: Pipeline) -> dict[str, Any]:
    record = record_of(made, num_replayed=5)
    found: dict[str, Any] = json.loads(json.dumps(to_json(diagnose(record), record), allow_nan=False))
    return found


def test_the_same_run_with_other_noise_is_no_regression() -> None:
    baseline = report_of(MADE)
    for seed in range(1, 6):
        result = check(report_of(replace(MADE, seed=seed)), baseline, max_regress=0.02)
        assert result.ok, result.sentence
        assert abs(result.slowdown.value) < 0.05


def test_a_slower_stage_fails_the_check_and_is_named() -> None:
    baseline = report_of(MADE)
    result = check(report_of(replace(MADE, backward_s=0.009, seed=1)), baseline, max_regress=0.05)
    assert not result.ok
    assert result.slowdown.value == pytest.approx(0.2, abs=0.04)
    assert "backward went from 5.9" in result.sentence or "backward went from 6" in result.sentence
    assert result.stages["backward"].is_significant
    assert not result.stages["forward"].is_significant


def test_a_slowdown_within_the_allowance_passes() -> None:
    result = check(report_of(replace(MADE, backward_s=0.0065, seed=1)), report_of(MADE), max_regress=0.1)
    assert result.ok
    assert result.slowdown.value > 0


def test_a_faster_run_is_said_to_be_faster() -> None:
    result = check(report_of(replace(MADE, backward_s=0.003, seed=1)), report_of(MADE), max_regress=0.0)
    assert result.ok
    assert result.sentence.startswith("Faster by")


def test_more_noise_widens_the_interval_and_is_told() -> None:
    calm, rough = (replace(MADE, jitter=jitter) for jitter in (0.02, 0.5))
    noises = [
        check(report_of(replace(made, seed=1)), report_of(made), max_regress=0.05).noise
        for made in (calm, rough)
    ]
    assert noises[1] > 3 * noises[0]


def test_workers_that_restart_are_found_though_no_step_is_slower() -> None:
    baseline = Pipeline(batches_per_epoch=8, start_s=0.1, persistent_workers=True)
    result = check(
        report_of(replace(baseline, persistent_workers=False)), report_of(baseline), max_regress=0.05
    )
    assert not result.ok
    assert "epoch start went from" in result.sentence


def test_runs_with_other_batch_sizes_are_compared_per_sample() -> None:
    double = replace(MADE, batch_size=16, forward_s=0.008, backward_s=0.012, optimizer_s=0.002)
    result = check(report_of(double), report_of(MADE), max_regress=0.02)
    assert result.slowdown.value == pytest.approx(0.0, abs=0.04)


def test_a_diagnosis_is_taken_as_well_as_its_report() -> None:
    diagnosis = diagnose(record_of(MADE, num_replayed=5))
    assert check(diagnosis, report_of(MADE), max_regress=0.0).slowdown.value == pytest.approx(0.0)


def test_a_run_without_steps_cannot_be_checked() -> None:
    nothing = diagnose(Record(command=[], machine=Machine(2, 2, 0, "cpu", 1, "3", "2", "p")))
    with pytest.raises(UsageError, match="the baseline has none"):
        check(report_of(MADE), to_json(nothing), max_regress=0.05)
    with pytest.raises(UsageError, match="max_regress must be at least 0"):
        check(report_of(MADE), report_of(MADE), max_regress=-0.1)
