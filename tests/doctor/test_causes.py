from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.made_records import Pipeline, record_of
from stoker.doctor._record import Line, Moment, Operators, Pause, Place
from stoker.doctor.analysis._analysis import diagnose

CASES = {
    "nothing": (Pipeline(), "compute-bound", "the model's own computing"),
    "a slow transform": (
        Pipeline(transforms={"ToTensor": 0.0003, "SlowFilter": 0.01}),
        "input-bound",
        "transform SlowFilter (10",
    ),
    "a slow transform in the main process": (
        Pipeline(transforms={"SlowFilter": 0.01}, num_workers=0),
        "input-bound",
        "transform SlowFilter",
    ),
    "slow storage": (
        Pipeline(sample_wait_s=0.02, sample_cpu_s=0.0003),
        "input-bound",
        "storage: Made waits 20",
    ),
    "one worker, four cores": (
        Pipeline(sample_cpu_s=0.006, num_workers=1, num_cores=4),
        "input-bound",
        "too few workers (num_workers=1, 4 cores)",
    ),
    "no worker": (
        Pipeline(sample_cpu_s=0.006, num_workers=0, num_cores=4),
        "input-bound",
        "too few workers (num_workers=0",
    ),
    "too many workers": (
        Pipeline(sample_cpu_s=0.01, num_workers=8),
        "input-bound",
        "oversubscribed: 8 workers on 2 cores",
    ),
    "a blocked head": (
        Pipeline(
            sample_cpu_s=0.0,
            sample_wait_s=0.001,
            tail=(0.005, 250.0),
            num_workers=4,
            num_cores=4,
            forward_s=0.001,
            backward_s=0.002,
        ),
        "input-bound",
        "blocked head",
    ),
    "worker restarts": (
        Pipeline(batches_per_epoch=8, start_s=0.1),
        "input-bound",
        "worker restart at each epoch",
    ),
    "collate": (Pipeline(collate_s=0.08), "input-bound", "collate: default_collate takes 8"),
    "transfer": (Pipeline(transfer_s=0.06, sample_cpu_s=0.0002), "input-bound", "transfer: 60.0 ms"),
    "copies": (Pipeline(copy_s=0.05), "copy-bound", "copy to the device"),
    "gradient accumulation": (
        Pipeline(accumulation=4, transforms={"SlowFilter": 0.01}),
        "input-bound",
        "transform SlowFilter",
    ),
    "a generator": (Pipeline(generator_s=0.06), "input-bound", "line train.py:12: numpy normal"),
    "metrics on the host": (Pipeline(host_code_s=0.06), "python-bound", "line train.py:57: sklearn f1_score"),
    "tiny operators": (
        Pipeline(
            operators_per_step=1200,
            seconds_per_operator=1e-5,
            device="cpu",
            loop_threads=1,
            sample_cpu_s=0.0002,
        ),
        "python-bound",
        "module Net: 1,080 operators a step",
    ),
    "data that costs about as much as it counts beside computing": (
        Pipeline(sample_cpu_s=0.00085, num_workers=0),
        "mixed",
        "too few workers (num_workers=0: data made in the main process)",
    ),
}


@pytest.mark.parametrize(("made", "verdict", "culprit"), CASES.values(), ids=CASES.keys())
def test_the_verdict_and_its_culprit_are_those_of_the_pipeline(
    made: Pipeline, verdict: str, culprit: str
) -> None:
    diagnosis = diagnose(record_of(made))
    assert (diagnosis.verdict, culprit in diagnosis.culprit) == (verdict, True), diagnosis.sentence
    assert diagnosis.culprit in diagnosis.sentence


@settings(max_examples=20)
@given(
    loop_s=st.floats(0.005, 0.03),
    ratio=st.one_of(st.floats(0.05, 0.6), st.floats(2.2, 8.0)),
    num_workers=st.integers(0, 3),
    num_cores=st.sampled_from([2, 4]),
    with_transform=st.booleans(),
)
def test_a_clear_bottleneck_is_named(
    loop_s: float, ratio: float, num_workers: int, num_cores: int, with_transform: bool
) -> None:
    # `ratio`: time to make a batch against the loop's; a worker is a core's at most
    lanes = max(1, min(num_workers, num_cores))
    if num_workers == 0 and ratio < 1:
        ratio /= 2
    sample_s = ratio * loop_s * lanes / 8
    parts = {"Heavy": 0.9 * sample_s, "Light": 0.02 * sample_s} if with_transform else {}
    made = Pipeline(
        sample_cpu_s=sample_s - sum(parts.values()), transforms=parts, num_workers=num_workers,
        num_cores=num_cores, forward_s=0.4 * loop_s, backward_s=0.5 * loop_s, optimizer_s=0.1 * loop_s,
    )  # fmt: skip
    diagnosis = diagnose(record_of(made, num_normal=40, num_replayed=10))
    if ratio < 1:
        assert diagnosis.verdict == "compute-bound"
    else:
        assert diagnosis.verdict == "input-bound"
        assert diagnosis.starved_fraction > 0.3
        assert diagnosis.culprit.startswith(("transform Heavy",) if with_transform else ("too few", "fetch"))


def test_a_wait_that_a_replay_does_not_cure_is_not_starvation() -> None:
    record = record_of(Pipeline(sample_cpu_s=0.01))
    slow = [
        replace(step, end_s=step.begin_s + 0.05) if step.phase in {"host", "device"} else step
        for step in record.steps
    ]
    record.steps = slow
    diagnosis = diagnose(record)
    assert diagnosis.verdict != "input-bound"
    assert diagnosis.starved_fraction < 0.1
    assert any("with data at hand it would win only" in note for note in diagnosis.notes)


def test_a_scaler_called_for_each_sample_is_named_by_its_line() -> None:
    record = record_of(Pipeline(sample_cpu_s=0.01))
    place = Place("data.py", 31, "Signals.__getitem__", "x = self.scaler.transform(x)")
    callee = "sklearn.preprocessing._data.StandardScaler.transform"
    record.lines = [Line("workers", None, place, callee, "", False, 100, 0.5)]
    diagnosis = diagnose(record)
    assert diagnosis.culprit.startswith("line data.py:31: sklearn StandardScaler.transform")
    advice = {one.key: one for one in diagnosis.advice}
    assert advice["prenormalise"].place == place


def test_a_copy_back_to_the_host_waits_for_the_device_and_is_not_host_code() -> None:
    record = record_of(Pipeline(host_code_s=0.06, num_workers=2))
    place = Place("train.py", 41, "main", "total += loss.item()")
    record.lines = [Line("loop", "other", place, "", "", False, 100, 0.5)]
    record.machine = replace(record.machine, device="cuda:0 NVIDIA")
    assert diagnose(record).verdict == "compute-bound"
    record.machine = replace(record.machine, device="cpu")
    assert diagnose(record).verdict == "python-bound"


def test_numpy_inside_the_forward_pass_is_host_code() -> None:
    record = record_of(Pipeline(forward_s=0.04, backward_s=0.002))
    place = Place("model.py", 12, "Net.forward", "np.median(x)")
    record.lines = [Line("loop", "forward", place, "numpy.lib.median", "Net", False, 100, 0.5)]
    diagnosis = diagnose(record)
    assert diagnosis.verdict == "python-bound"
    assert diagnosis.culprit.startswith("line model.py:12: numpy median")


def test_large_operators_are_computing_however_many_they_are() -> None:
    record = record_of(Pipeline())
    record.operators = Operators(5000, 2e-4, {"Net": 5000}, {})
    record.machine = replace(record.machine, device="cpu")
    record.steps = [
        replace(
            step, end_s=step.begin_s + step.seconds * 100, stages={k: v * 100 for k, v in step.stages.items()}
        )
        for step in record.steps
    ]
    assert diagnose(record).verdict == "compute-bound"


def test_one_batch_that_is_fetched_ahead_is_no_gradient_accumulation() -> None:
    record = record_of(Pipeline())
    record.steps[10] = replace(record.steps[10], num_batches=2)
    assert not any("accumulation" in note for note in diagnose(record).notes)
    record = record_of(Pipeline(accumulation=2))
    assert any("A step is 2 batches (gradient accumulation)" in note for note in diagnose(record).notes)


def test_a_processor_waits_for_no_device() -> None:
    record = record_of(Pipeline())
    record.machine = replace(record.machine, device="cpu")
    record.operators = Operators(100, 1e-4, {"Net": 100}, {".item() train.py:41": 1.0})
    assert "sync" not in {cause.kind for cause in diagnose(record).causes}


def test_host_syncs_are_told_without_being_blamed() -> None:
    record = record_of(Pipeline())
    record.operators = Operators(100, 1e-4, {"Net": 100}, {".item() train.py:41": 1.0})
    causes = {cause.kind: cause for cause in diagnose(record).causes}
    assert causes["sync"].share == 0
    assert "train.py:41" in causes["sync"].text


def test_workers_that_slow_the_model_down_are_blamed_though_it_never_waits() -> None:
    made = Pipeline(
        sample_cpu_s=0.012, num_workers=8, num_cores=2, loop_threads=2, forward_s=0.03, backward_s=0.05,
        device="cpu",
    )  # fmt: skip
    diagnosis = diagnose(record_of(made))
    assert diagnosis.ceiling_speedup is not None
    assert diagnosis.ceiling_speedup.value > 1.5
    assert diagnosis.verdict in {"input-bound", "mixed"}
    assert any("share 2 cores" in note for note in diagnosis.notes)


def test_a_line_that_waits_is_storage_and_is_told_with_it() -> None:
    record = record_of(Pipeline(sample_wait_s=0.02, sample_cpu_s=0.0003))
    place = Place("data.py", 19, "Signals.__getitem__", "x = self.file[i]")
    record.lines = [Line("workers", None, place, "h5py._hl.dataset.Dataset.__getitem__", "", False, 100, 0.5)]
    culprit = diagnose(record).culprit
    assert culprit.startswith("storage: Made waits 20.0 ms of 20.3 ms a sample (data.py:19: h5py Dataset")


def test_other_users_of_the_machine_are_noted() -> None:
    record = record_of(Pipeline())
    record.moments.append(Moment(1.0, 1 << 30, 0, (1.0, 0.9), 0.5, None))
    assert any("Other processes kept 1.4 cores busy" in note for note in diagnose(record).notes)


def test_a_loader_that_is_made_for_every_epoch_is_blamed_for_its_workers_restart() -> None:
    record = record_of(Pipeline(batches_per_epoch=8, start_s=0.1, persistent_workers=False))
    record.loaders = [replace(loader, num_made=loader.num_epochs) for loader in record.loaders]
    culprit = diagnose(record).culprit
    assert "worker restart at each epoch" in culprit
    assert "the DataLoader is made anew" in culprit


def test_ending_the_workers_belongs_to_their_restart() -> None:
    record = record_of(Pipeline(batches_per_epoch=8, start_s=0.01))
    before = diagnose(record).pause_s_per_step
    record.pauses += [Pause("other", 1.0, 1.4, "train"), Pause("other", 2.0, 9.0, None)]
    assert diagnose(record).pause_s_per_step == pytest.approx(before + 0.4 / 8)
