from dataclasses import replace

import numpy as np
import pytest

from doctor.made_records import Pipeline, record_of, seconds_per_step
from stoker.doctor._diagnosis import Advice, Interval
from stoker.doctor._record import Division, Moment, Record
from stoker.doctor.analysis._advice import keywords
from stoker.doctor.analysis._analysis import diagnose
from stoker.doctor.analysis._model import Setting

STARVED = {
    "storage": Pipeline(sample_wait_s=0.01, sample_cpu_s=0.0003),
    "no worker": Pipeline(sample_cpu_s=0.004, num_workers=0, num_cores=4),
    "one worker": Pipeline(sample_cpu_s=0.004, num_workers=1, num_cores=4),
    "one worker beside a busy loop": Pipeline(sample_cpu_s=0.004, num_workers=1, num_cores=4, loop_threads=1),
    "restarts": Pipeline(batches_per_epoch=8, start_s=0.1),
    "openings": Pipeline(batches_per_epoch=8, opening_s=0.2, sample_cpu_s=0.0001),
    "uneven": Pipeline(
        sample_wait_s=0.001, sample_cpu_s=0.0002, tail=(0.01, 100.0), num_workers=4, num_cores=4
    ),
    "costly queue": Pipeline(transfer_s=0.06, sample_cpu_s=0.0002),
}


def by_key(record: Record) -> dict[str, Advice]:
    return {advice.key: advice for advice in diagnose(record).advice}


@pytest.mark.parametrize("name", STARVED)
def test_the_advised_settings_bring_what_was_predicted_and_nearly_the_best(name: str) -> None:
    made = STARVED[name]
    advice = by_key(record_of(made))["settings"]
    known = {key: value for key, value in advice.settings.items() if value is not None}
    after = replace(made, **known)
    before_s, after_s = seconds_per_step(made), seconds_per_step(after)
    achieved = before_s / after_s
    assert advice.speedup.value == pytest.approx(achieved, rel=0.1)
    others = [
        seconds_per_step(
            replace(after, num_workers=workers, prefetch_factor=depth, persistent_workers=True), num_steps=80
        )
        for workers in (0, 1, 2, 4, 8, 16)
        for depth in (2, 8)
    ]
    assert after_s <= min(others) / 0.9
    assert not advice.changes_training
    assert advice.place is not None
    assert advice.loader == "train"


def test_where_no_worker_can_stay_the_process_that_does_opens_the_files() -> None:
    record = record_of(STARVED["openings"])
    record.loaders[0] = replace(record.loaders[0], num_made=record.loaders[0].num_epochs)
    advice = by_key(record)["settings"]
    assert advice.settings["num_workers"] == 0
    assert "open anew what one process opens once" in advice.reason


def test_nothing_is_advised_where_nothing_is_to_be_gained() -> None:
    diagnosis = diagnose(record_of(Pipeline()))
    assert diagnosis.advice == ()
    assert "Leave the loader alone" in diagnosis.sentence


def test_a_run_that_free_data_would_speed_up_is_not_said_to_have_nothing_to_gain() -> None:
    diagnosis = diagnose(record_of(Pipeline()))
    assert diagnosis.has_nothing_to_gain
    could_gain = replace(diagnosis, ceiling_speedup=Interval(1.2, 1.1, 1.3))
    assert not could_gain.has_nothing_to_gain
    assert not replace(diagnosis, verdict="mixed").has_nothing_to_gain


def test_advice_is_ranked_worth_its_while_and_knows_its_limits() -> None:
    widths = []
    for made in STARVED.values():
        found = diagnose(record_of(made)).advice
        gains = [advice.speedup.value for advice in found]
        assert gains == sorted(gains, reverse=True)
        assert min(gains) >= 1.03
        widths += [advice.speedup.high / advice.speedup.low for advice in found]
    assert min(widths) > 1.05
    assert np.median(widths) < 1.6


def test_only_what_leaves_the_order_alone_is_safe() -> None:
    advice = by_key(record_of(STARVED["uneven"]))
    assert advice["in_order"].changes_training
    assert advice["in_order"].settings == {"in_order": False}
    assert "in_order" not in advice["settings"].settings


def made_anew(made: Pipeline) -> Record:
    """The same run, of a script that makes its DataLoader for every epoch."""
    record = record_of(made, num_warmup=16, num_normal=64)
    record.loaders = [replace(loader, num_epochs=10, num_made=10) for loader in record.loaders]
    return record


def test_a_loader_that_is_made_for_every_epoch_should_be_made_once() -> None:
    made = replace(STARVED["restarts"], num_cores=4)
    advice = by_key(made_anew(made))
    once = advice["one loader"]
    assert once.settings == {}  # no setting does it
    assert once.action.startswith("Make the DataLoader once, before the loop over epochs, with ")
    assert "persistent_workers=True" in once.action
    assert once.place is not None
    kept = by_key(record_of(made, num_warmup=16, num_normal=64))["settings"]
    assert once.speedup.value == pytest.approx(kept.speedup.value, rel=1e-6)
    assert "persistent_workers" not in advice
    assert "cache" not in advice  # it would be made anew, too
    assert not any("persistent_workers" in each.settings for each in advice.values())


def test_workers_that_would_have_to_start_in_every_short_epoch_are_not_advised() -> None:
    short = Pipeline(sample_cpu_s=0.0005, num_workers=0, num_cores=4, batches_per_epoch=4)
    assert by_key(record_of(short))["settings"].settings["persistent_workers"]
    anew = by_key(made_anew(short))
    workers = [each.settings["num_workers"] for each in anew.values() if each.settings.get("num_workers")]
    assert workers == []
    assert "workers would have to start" in anew["one loader"].reason


def test_an_iterable_gets_no_more_than_one_worker() -> None:
    record = of_a_stream(STARVED["no worker"], None)
    workers = [
        one.settings["num_workers"] for one in diagnose(record).advice if "num_workers" in one.settings
    ]
    assert workers == [1]


def of_a_stream(made: Pipeline, division: Division | None, *, drop_last: bool = False) -> Record:
    """The same run, of a data set that is iterated."""
    record = record_of(made)
    record.loaders = [replace(loader, is_iterable=True, drop_last=drop_last) for loader in record.loaders]
    record.trials = [replace(trial, division=division) for trial in record.trials]
    return record


def test_a_stream_that_divides_itself_gets_workers_at_the_price_of_its_order() -> None:
    made = STARVED["no worker"]
    among_eight = Division(8, 1000, is_whole=False)
    advice = by_key(of_a_stream(made, among_eight))
    assert advice["settings"].settings["num_workers"] == 1
    assert not advice["settings"].changes_training
    divided = advice["divided stream"]
    assert divided.changes_training
    assert divided.changes_order_only
    assert divided.settings["num_workers"] > 1
    after = replace(made, **divided.settings)
    assert divided.speedup.value == pytest.approx(seconds_per_step(made) / seconds_per_step(after), rel=0.1)
    for other in (None, Division(1, 1000, is_whole=True)):
        assert "divided stream" not in by_key(of_a_stream(made, other))
    assert "divided stream" not in by_key(of_a_stream(made, among_eight, drop_last=True))


def test_a_stream_is_divided_no_further_than_was_tried_and_leaves_each_some_batches() -> None:
    made = Pipeline(sample_wait_s=0.02, sample_cpu_s=0.0003, num_workers=0, num_cores=4)
    for division, most in (
        (Division(8, 100, is_whole=False), 8),
        (Division(2, 100, is_whole=False), 2),
        (Division(8, 12 * made.batch_size, is_whole=True), 3),
    ):
        advice = by_key(of_a_stream(made, division))["divided stream"]
        assert advice.settings["num_workers"] == most
    short = Division(8, 7 * made.batch_size, is_whole=True)
    assert "divided stream" not in by_key(of_a_stream(made, short))


def test_workers_that_give_a_stream_more_than_once_are_noted() -> None:
    made = Pipeline(num_workers=2)
    said = "Each of the 2 workers of 'train' gives all samples"
    repeated = Division(1, 1000, is_whole=True)
    assert any(said in note for note in diagnose(of_a_stream(made, repeated)).notes)
    for fine in (None, Division(2, 1000, is_whole=True)):
        assert not any(said in note for note in diagnose(of_a_stream(made, fine)).notes)
    alone = replace(made, num_workers=1)
    assert not any("gives all samples" in note for note in diagnose(of_a_stream(alone, repeated)).notes)


def test_workers_must_fit_into_memory() -> None:
    record = record_of(STARVED["storage"])
    free, tight = by_key(record), record
    gigabyte = 1 << 30
    tight.moments.append(Moment(1.0, 5 * gigabyte, 1 * gigabyte, (0.5, 0.5), 1.0, None))
    assert free["settings"].settings["num_workers"] > 4
    # 0.8 * 8 GB less 5 GB, at half a gigabyte each: two more than there are
    assert by_key(tight)["settings"].settings["num_workers"] == 4
    assert by_key(tight)["settings"].ram_bytes >= gigabyte


def test_samples_are_cached_only_if_they_are_the_same_each_time_and_fit() -> None:
    made = Pipeline(sample_cpu_s=0.01, is_deterministic=True, num_samples=64, batches_per_epoch=8,
                    persistent_workers=True)  # fmt: skip
    assert by_key(record_of(made))["settings"].settings["cache"] is True
    assert by_key(record_of(made))["cache"].ram_bytes == 64 * made.bytes_per_sample
    for other in (replace(made, is_deterministic=False), replace(made, is_deterministic=None),
                  replace(made, num_samples=10**7)):  # fmt: skip
        assert not any("cache" in advice.settings for advice in diagnose(record_of(other)).advice)


def test_a_pack_saves_the_part_that_is_the_same_each_time() -> None:
    made = Pipeline(sample_cpu_s=0.008, transforms={"Noise": 0.001}, deterministic_s=0.008, num_workers=2)
    advice = by_key(record_of(made))["pack"]
    achieved = seconds_per_step(made) / seconds_per_step(replace(made, sample_cpu_s=0.00001))
    assert advice.speedup.value == pytest.approx(achieved, rel=0.1)
    assert not advice.changes_training
    on_device = by_key(record_of(made)).get("device augmentation")
    assert on_device is None or on_device.changes_training


def test_a_metric_is_to_be_taken_off_the_step() -> None:
    made = Pipeline(host_code_s=0.02)
    advice = by_key(record_of(made))["host code"]
    achieved = seconds_per_step(made) / seconds_per_step(replace(made, host_code_s=0.001))
    assert advice.speedup.value == pytest.approx(achieved, rel=0.05)
    assert advice.place is not None
    assert advice.place.line == 57
    assert advice.action.startswith("Take the metric off the step")


def test_a_faster_loop_is_not_promised_beyond_what_the_loader_can_feed() -> None:
    made = Pipeline(host_code_s=0.02, sample_cpu_s=0.006)
    advice = by_key(record_of(made))["host code"]
    achieved = seconds_per_step(made) / seconds_per_step(replace(made, host_code_s=0.001))
    assert advice.speedup.value == pytest.approx(achieved, rel=0.1)


def test_pinning_is_for_cuda_only() -> None:
    record = record_of(Pipeline(copy_s=0.05))
    assert "pin_memory" not in by_key(record)
    record.machine = replace(record.machine, device="cuda:0 NVIDIA")
    assert by_key(record)["pin_memory"].settings == {"pin_memory": True}


def test_tiny_operators_are_to_be_fused_and_larger_batches_change_the_training() -> None:
    made = Pipeline(operators_per_step=1200, seconds_per_operator=1e-5, device="cpu", loop_threads=1,
                    sample_cpu_s=0.0002)  # fmt: skip
    advice = by_key(record_of(made))
    assert not advice["operators"].changes_training
    assert advice["batch_size"].changes_training
    assert 1 < advice["batch_size"].speedup.value < 2


def test_a_generator_is_to_become_a_data_loader() -> None:
    made = Pipeline(generator_s=0.02)
    advice = by_key(record_of(made))["DataLoader"]
    loader = replace(made, generator_s=0.0, sample_cpu_s=0.02 / 8)
    achieved = seconds_per_step(made) / seconds_per_step(loader)
    assert advice.speedup.value == pytest.approx(achieved, rel=0.1)


def test_what_workers_need_falls_with_them() -> None:
    loader = record_of(replace(STARVED["restarts"], persistent_workers=True), num_normal=8).loaders[0]
    now = Setting(2, 2, persistent_workers=True)
    assert keywords(loader, now, replace(now, num_workers=0)) == {
        "num_workers": 0,
        "prefetch_factor": None,
        "persistent_workers": False,
    }
