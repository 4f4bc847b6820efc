import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.made_records import Pipeline, record_of, seconds_per_step
from stoker.doctor.analysis._fit import fit
from stoker.doctor.analysis._forecast import Forecast, forecast
from stoker.doctor.analysis._model import Model, Setting
from stoker.doctor.analysis._queue import Loop, play
from stoker.doctor.analysis._stages import Timing, time_steps

QUICK = Loop(seconds=0.001, demand=0.0, drag=1.0, receive_s=0.0)


def fitted(pipeline: Pipeline) -> tuple[Model, Timing]:
    record = record_of(pipeline)
    timing = time_steps(record)
    assert timing is not None
    model = fit(record, timing)
    assert model is not None
    return model, timing


def setting_of(pipeline: Pipeline) -> Setting:
    return Setting(
        num_workers=pipeline.num_workers,
        prefetch_factor=pipeline.prefetch_factor,
        in_order=pipeline.in_order,
        persistent_workers=pipeline.persistent_workers,
    )


def test_without_workers_making_and_training_follow_each_other() -> None:
    flow = play([(0.02, 0.03)] * 10, QUICK, num_workers=0, prefetch_factor=2, in_order=True, num_cores=4)
    assert flow.batch_s == pytest.approx(0.051)


@pytest.mark.parametrize(
    ("num_workers", "num_cores", "expected_s"),
    [
        (1, 4, 0.05),  # one makes a batch in 50 ms
        (4, 4, 0.0125),  # four at a time
        (100, 100, 0.001),  # the loop is the slower one
    ],
)
def test_workers_share_the_batches_and_the_cores(num_workers: int, num_cores: int, expected_s: float) -> None:
    jobs = [(0.02, 0.03)] * (4 * num_workers + 201)
    flow = play(jobs, QUICK, num_workers=num_workers, prefetch_factor=2, in_order=True, num_cores=num_cores)
    assert flow.batch_s == pytest.approx(expected_s, rel=0.02)


def test_waiting_hides_behind_the_computing_of_others() -> None:
    jobs = [(0.02, 0.03)] * 217
    flow = play(jobs, QUICK, num_workers=4, prefetch_factor=2, in_order=True, num_cores=2)
    # 30 ms a batch on two cores at best; all four waiting at the same time would make it 20 ms
    assert 0.015 <= flow.batch_s < 0.0175


def test_a_slow_batch_holds_up_the_others_only_in_order() -> None:
    jobs = [(1.0 if number % 20 == 0 else 0.01, 0.0) for number in range(400)]
    times = {
        in_order: play(jobs, QUICK, num_workers=8, prefetch_factor=2, in_order=in_order, num_cores=8)
        for in_order in (True, False)
    }
    assert times[False].batch_s < 0.5 * times[True].batch_s
    assert times[True].blocked > 0
    assert times[False].blocked == 0


@settings(max_examples=60)
@given(
    jobs=st.lists(st.tuples(st.floats(0, 0.1), st.floats(0, 0.1)), min_size=1, max_size=30),
    num_workers=st.integers(1, 6),
    prefetch_factor=st.integers(1, 4),
    num_cores=st.integers(1, 8),
    loop_s=st.floats(1e-4, 0.1),
    demand=st.floats(0, 3),
    in_order=st.booleans(),
)
def test_no_play_beats_its_loop_or_its_cores(
    jobs: list[tuple[float, float]],
    num_workers: int,
    prefetch_factor: int,
    num_cores: int,
    loop_s: float,
    demand: float,
    in_order: bool,
) -> None:
    flow = play(
        jobs, Loop(loop_s, demand, 1.0, 1e-4), num_workers=num_workers, prefetch_factor=prefetch_factor,
        in_order=in_order, num_cores=num_cores,
    )  # fmt: skip
    computed = sum(cpu for _, cpu in jobs) + len(jobs) * loop_s * min(demand, 1.0)
    assert flow.all_s >= len(jobs) * (loop_s + 1e-4) * (1 - 1e-6)
    assert flow.all_s >= computed / max(num_cores, demand) * (1 - 1e-6)
    assert flow.all_s >= sum(wait + cpu for wait, cpu in jobs) / num_workers * (1 - 1e-6)


def random_pipelines(seed: int, num: int) -> list[tuple[Pipeline, Pipeline]]:
    """Pipelines, and each with other settings such as would be advised."""
    draws = np.random.default_rng(seed)

    def pick(*choices: float) -> float:
        return float(draws.choice(choices))

    found = []
    for number in range(num):
        cores = int(pick(2, 4, 8))
        made = Pipeline(
            sample_cpu_s=pick(0.0002, 0.001, 0.004),
            sample_wait_s=pick(0, 0, 0.002, 0.01),
            transforms={"Filter": pick(0, 0.002), "ToTensor": 0.0003},
            num_cores=cores,
            num_workers=int(draws.integers(0, 2 * cores + 1)),
            prefetch_factor=int(pick(2, 4)),
            forward_s=pick(0.005, 0.02),
            backward_s=pick(0.005, 0.02),
            loop_threads=int(pick(0, 0, 1, 2)),
            accumulation=int(pick(1, 1, 2)),
            batches_per_epoch=int(pick(10, 60, 10_000)),
            tail=(0.0, 1.0) if draws.random() < 0.7 else (0.02, 10.0),
            seed=number,
        )
        other = replace(
            made,
            num_workers=int(draws.integers(0, 2 * cores + 1)),
            prefetch_factor=int(pick(2, 4, 8)),
            persistent_workers=bool(draws.random() < 0.5) or made.num_workers == 0,
            in_order=bool(draws.random() < 0.8),
            seed=number + 1000,
        )
        found.append((made, other))
    return found


def test_predictions_hold_when_the_change_is_made() -> None:
    errors, held = [], []
    for made, other in random_pipelines(seed=1, num=20):
        model, timing = fitted(made)
        predicted = forecast(model, timing).speedup(setting_of(other))
        achieved = seconds_per_step(made, num_steps=160) / seconds_per_step(other, num_steps=160)
        errors.append(abs(predicted.value / achieved - 1))
        held.append(predicted.low <= achieved <= predicted.high)
    assert np.median(errors) <= 0.03
    assert np.quantile(errors, 0.9) <= 0.2
    assert np.mean(held) >= 0.75


def test_the_model_shows_what_was_observed_under_the_present_settings() -> None:
    for made, _ in random_pipelines(seed=2, num=10):
        model, timing = fitted(made)
        assert model.step_s(model.present) == pytest.approx(timing.whole_s, rel=0.02)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_new_workers_open_is_not_opened_again_in_a_process_that_lives_on(num_workers: int) -> None:
    made = Pipeline(batches_per_epoch=8, opening_s=0.2, sample_cpu_s=0.0001, seed=3)
    model, timing = fitted(made)
    assert model.opening_s == pytest.approx(0.2, rel=0.05)
    other = replace(made, num_workers=num_workers, persistent_workers=num_workers > 0)
    achieved = seconds_per_step(made, num_steps=160) / seconds_per_step(other, num_steps=160)
    assert forecast(model, timing).speedup(setting_of(other)).value == pytest.approx(achieved, rel=0.05)
    assert achieved > 2


def test_a_first_batch_like_the_others_opens_nothing() -> None:
    for made in (
        Pipeline(batches_per_epoch=8),
        Pipeline(batches_per_epoch=8, persistent_workers=True, opening_s=0.2),
    ):
        model, _ = fitted(made)
        assert model.opening_s == 0


def test_without_replay_or_trial_predictions_still_hold() -> None:
    made = Pipeline(sample_cpu_s=0.004, num_workers=1, num_cores=4, loop_threads=1)
    record = record_of(made, num_replayed=0, with_trial=False)
    timing = time_steps(record)
    assert timing is not None
    model = fit(record, timing)
    assert model is not None
    other = replace(made, num_workers=4)
    achieved = seconds_per_step(made) / seconds_per_step(other)
    assert model.speedup(setting_of(other)) == pytest.approx(achieved, rel=0.06)


def test_waiting_for_a_core_is_told_from_waiting_for_storage() -> None:
    crowded, _ = fitted(Pipeline(sample_cpu_s=0.005, num_workers=6, num_cores=2))
    slow_disk, _ = fitted(Pipeline(sample_cpu_s=0.0005, sample_wait_s=0.01, num_workers=6, num_cores=2))
    shares = []
    for model in (crowded, slow_disk):
        waiting, computing = (sum(times) for times in zip(*model.jobs, strict=True))
        shares.append(waiting / (waiting + computing))
    assert shares[0] < 0.2
    assert shares[1] > 0.85


def test_fewer_threads_make_the_loop_slower_by_its_parallel_part() -> None:
    model, _ = fitted(Pipeline(loop_threads=2, num_cores=4, num_workers=1, sample_cpu_s=0.0001))
    one = model.step_s(replace(model.present, torch_threads=1))
    assert 1.3 < one / model.step_s(model.present) < 2.0


def test_first_workers_promise_little_beside_a_loop_that_computes_on_every_core() -> None:
    busy, _ = fitted(Pipeline(loop_threads=2, num_cores=2, num_workers=0, sample_cpu_s=0.0005))
    single, _ = fitted(Pipeline(loop_threads=1, num_cores=2, num_workers=0, sample_cpu_s=0.0005))
    gains = [model.speedup(replace(model.present, num_workers=2)) for model in (busy, single)]
    assert gains[0] < 1.1 < gains[1]
    roomy, _ = fitted(Pipeline(loop_threads=2, num_cores=8, num_workers=0, sample_cpu_s=0.0005))
    assert roomy.speedup(replace(roomy.present, num_workers=2)) > 1.1  # where there are cores for all


def test_how_much_a_loop_suffers_from_workers_is_doubted_until_one_was_seen() -> None:
    widths = []
    for workers in (0, 1):
        made = Pipeline(loop_threads=2, num_cores=2, num_workers=workers, sample_cpu_s=0.0005)
        model, _ = fitted(made)
        found = Forecast(model, loop_doubt=0.0, job_doubt=0.0).speedup(replace(model.present, num_workers=2))
        widths.append(found.high / found.low)
    assert widths[0] > widths[1]


def test_a_play_is_the_same_each_time() -> None:
    made = Pipeline(tail=(0.05, 8.0))
    first, second = (fitted(made)[0] for _ in range(2))
    settings = [Setting(workers, depth) for workers, depth in itertools.product((0, 1, 3), (2, 4))]
    assert [first.step_s(one) for one in settings] == [second.step_s(one) for one in settings]
