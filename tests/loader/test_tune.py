"""Tuning: the model is sound whatever it is given, and a real store gets settings that a profile takes."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.errors import UsageError
from stoker.loader._tune import Choice, tune
from stoker.loader._tune_model import (
    CLOSE_ENOUGH,
    Costs,
    Prediction,
    Reading,
    chance_empty,
    choose,
    corrected,
    fit,
    max_workers,
    predict,
    reading_s,
    threads_of,
)
from stoker.loader._tune_profile import summary, tuned_profile, tuned_settings

seconds = st.floats(1e-6, 1.0)
counts = st.integers(1, 16)
costs_strategy = st.builds(
    Costs,
    step_s=seconds,
    step_cpu_s=st.just(0.0),
    serial_s=seconds,
    shared_s=seconds,
    read_cpu_s=st.just(0.0),
    handover_s=st.floats(0, 1e-3),
    unevenness=st.floats(0, 2),
    cores=counts,
    block_bytes=st.integers(1, 1 << 24),
    consumer_reads=st.booleans(),
)


@given(costs_strategy, counts, counts)
def test_a_step_is_never_faster_than_its_parts(costs: Costs, workers: int, ahead: int) -> None:
    found = predict(costs, workers, ahead)
    assert found.step_s >= costs.step_s + costs.handover_s
    assert found.step_s == pytest.approx(costs.step_s + found.wait_s)
    if not costs.consumer_reads:
        assert found.step_s >= reading_s(costs, workers, ahead) * (1 - 1e-9)


@given(costs_strategy, counts, counts)
def test_more_threads_and_more_ahead_are_never_predicted_slower(
    costs: Costs, workers: int, ahead: int
) -> None:
    now = predict(costs, workers, ahead).step_s
    assert predict(costs, workers + 1, ahead).step_s <= now * (1 + 1e-9)
    assert predict(costs, workers, ahead + 1).step_s <= now * (1 + 1e-9)


@given(costs_strategy, st.floats(0, 10), st.floats(0, 10))
def test_the_cores_are_a_limit(costs: Costs, step_cpu_s: float, read_cpu_s: float) -> None:
    busy = replace(costs, step_cpu_s=step_cpu_s, read_cpu_s=read_cpu_s)
    assert predict(busy, 4, 8).step_s >= (step_cpu_s + read_cpu_s) / busy.cores * (1 - 1e-9)


@given(seconds, seconds, counts)
def test_a_queue_runs_empty_less_often_the_longer_it_is(consumer: float, producer: float, num: int) -> None:
    chance = chance_empty(consumer, producer, num)
    assert 0 <= chance <= 1
    assert chance_empty(consumer, producer, num + 1) <= chance + 1e-9
    assert chance >= 1 - consumer / producer - 1e-9  # a slow producer leaves at least that


@given(costs_strategy, counts, st.integers(0, 1 << 30))
def test_the_choice_is_near_the_fastest_and_nothing_cheaper_is(
    costs: Costs, most: int, memory_bytes: int
) -> None:
    workers, ahead = choose(costs, max_workers=most, memory_bytes=memory_bytes)
    assert 1 <= workers <= most
    assert 1 <= ahead <= costs.most_ahead(workers, memory_bytes)
    options = {
        (n, a): predict(costs, n, a).step_s
        for n in range(1, most + 1)
        for a in range(1, costs.most_ahead(n, memory_bytes) + 1)
    }
    limit = min(options.values()) * CLOSE_ENOUGH
    assert options[workers, ahead] <= limit
    assert all(found > limit for option, found in options.items() if option < (workers, ahead))


@given(seconds, seconds, st.integers(2, 16))
def test_two_readings_tell_what_threads_share(serial: float, shared: float, cores: int) -> None:
    found = fit(
        {n: Reading(serial + shared / n, cpu_s=0.0) for n in (1, cores)},
        step_s=0.01,
        step_cpu_s=0.0,
        cores=cores,
        block_bytes=1,
        consumer_reads=False,
    )
    assert found.serial_s == pytest.approx(serial, abs=1e-9 + 1e-6 * shared)
    assert found.shared_s == pytest.approx(shared, abs=1e-9 + 1e-6 * serial)


@given(st.dictionaries(counts, st.builds(Reading, seconds, seconds), min_size=1), counts, st.booleans())
def test_any_readings_give_costs_that_can_be(
    readings: dict[int, Reading], cores: int, consumer_reads: bool
) -> None:
    found = fit(
        readings, step_s=0.01, step_cpu_s=0.0, cores=cores, block_bytes=1, consumer_reads=consumer_reads
    )
    assert found.serial_s >= 0
    assert found.shared_s >= 0
    assert max_workers(found) >= 1


@given(costs_strategy, counts, counts, seconds, st.floats(0, 1))
def test_a_correction_explains_the_trial_at_least_as_well(
    costs: Costs, workers: int, ahead: int, step_s: float, waiting: float
) -> None:
    even = replace(costs, unevenness=0.0, consumer_reads=False)
    measured = Prediction(step_s, step_s * waiting)
    after = predict(corrected(even, workers, ahead, measured), workers, ahead)
    if measured.wait_s >= even.handover_s:
        # never more optimistic than what was seen
        assert after.step_s >= measured.step_s * (1 - 1e-6)


def test_a_consumer_that_reads_is_one_of_the_workers() -> None:
    assert [threads_of(n, consumer_reads=True) for n in (1, 2, 3)] == [1, 1, 2]
    assert [threads_of(n, consumer_reads=False) for n in (1, 2, 3)] == [1, 2, 3]


class Signals:
    def __len__(self) -> int:
        return 200

    def __getitem__(self, i: int) -> dict[str, object]:
        return {"x": np.full((1, 4000), i, np.float32), "y": i % 2}


@pytest.fixture(scope="module", params=["none", "gzip"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    path = tmp_path_factory.mktemp("tune") / "signals.stoker"
    return stoker.pack(Signals(), path, workers=0, compression=request.param)


def test_a_store_is_tuned_by_a_few_trials(
    store: stoker.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    made: list[Choice] = []

    def make_loader(choice: Choice) -> stoker.Loader:
        made.append(choice)
        return stoker.Loader(store, 32, **choice.options())

    found = tune(make_loader, lambda _: time.sleep(0.002), trial_s=0.05)
    assert found.best in found.trials
    assert found.default in found.trials
    assert found.num_trials == len(made) - 1  # the first was only looked at
    assert found.num_trials <= 16
    assert found.facts.is_compressed == (store.manifest.compression == "gzip")
    assert all(trial.step_s >= 0.002 for trial in found.trials)
    assert all((trial.error is None) == (trial.predicted_s is None) for trial in found.trials)
    assert set(tuned_settings(found)) == set(found.reasons)
    text = tuned_profile(found, what="signals\n.stoker")
    assert "# Found by `stoker tune signals .stoker`" in text
    assert "ms a step" in summary(found)
    loader = stoker.Loader(store, 32, **tuned_settings(found))
    with loader:
        assert sum(len(batch["y"]) for batch in loader) == len(store)


def test_data_of_no_whole_step_are_refused(tmp_path: Path) -> None:
    few = stoker.pack([{"x": np.zeros(4, np.float32)}] * 5, tmp_path / "few.stoker", workers=0)
    with pytest.raises(UsageError, match="there is no step to time: 5 samples"):
        tune(lambda choice: stoker.Loader(few, 8, drop_last=True, **choice.options()), lambda _: None)


def test_a_dataset_is_not_for_tuning() -> None:
    with pytest.raises(UsageError, match="stoker doctor"):
        tune(lambda _: stoker.Loader(Signals(), 32, num_workers=0), lambda _: None)
    with pytest.raises(UsageError, match="trial_s must be above 0, got 0"):
        tune(lambda _: stoker.Loader(Signals(), 32, num_workers=0), lambda _: None, trial_s=0)
