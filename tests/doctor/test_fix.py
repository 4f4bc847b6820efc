"""Applying advice: what is chosen, kept and taken back, on pipelines whose truth is a simulation."""

import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from doctor.made_records import SCRIPT, Pipeline, record_of, seconds_per_step
from stoker.doctor._diagnosis import Advice, Interval
from stoker.doctor._record import Division, Record
from stoker.doctor.analysis._analysis import diagnose
from stoker.doctor.mending._fix import fix, merged, with_patches
from stoker.doctor.mending._patch import Edit

SOURCE = "\n" * 39 + "loader = DataLoader(data)\n"


@dataclass
class Runs:
    """Measures a pipeline, as edited, in virtual time."""

    pipeline: Pipeline
    spoilt_by: dict[str, Any] = field(default_factory=dict)  # what any edit does besides
    asked: list[tuple[tuple[Edit, ...], int]] = field(default_factory=list)

    def measure(self, edits: tuple[Edit, ...], filling: int) -> Record:
        self.asked.append((edits, filling))
        return record_of(self.edited(edits))

    def edited(self, edits: tuple[Edit, ...]) -> Pipeline:
        pipeline = self.pipeline
        for edit in edits:
            keywords = {name: value for name, value in edit.keywords.items() if value is not None}
            pipeline = replace(pipeline, **keywords, **self.spoilt_by)
            if edit.is_cached:
                pipeline = replace(pipeline, sample_cpu_s=2e-5, sample_wait_s=0.0, transforms={})
        return pipeline


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / SCRIPT).write_text(SOURCE)
    return tmp_path


def test_no_workers_become_workers_and_the_patch_says_so(folder: Path) -> None:
    runs = Runs(Pipeline(num_workers=0, sample_cpu_s=0.002, forward_s=0.012, backward_s=0.008))
    fixed = fix(runs.measure, folder=folder)
    assert fixed.best is not None
    assert fixed.comparison is not None
    done = fixed.comparison
    before, after = (seconds_per_step(runs.edited(edits)) for edits in ((), fixed.best.edits))
    assert done.achieved.value == pytest.approx(before / after, rel=0.05)
    assert done.predicted.value == pytest.approx(done.achieved.value, rel=0.1)
    assert runs.asked[0] == ((), 0)
    assert not fixed.patch.refused
    assert done.patch == fixed.patch.text
    (folder / "fix.patch").write_text(fixed.patch.text)
    subprocess.run(["git", "apply", "fix.patch"], cwd=folder, check=True)
    assert f"num_workers={fixed.best.edits[0].keywords['num_workers']}" in (folder / SCRIPT).read_text()
    assert "times as fast" in fixed.sentence


def test_another_order_is_tried_only_where_it_is_allowed(folder: Path) -> None:
    class Divided(Runs):
        def measure(self, edits: tuple[Edit, ...], filling: int) -> Record:
            record = super().measure(edits, filling)
            record.loaders = [replace(loader, is_iterable=True) for loader in record.loaders]
            record.trials = [
                replace(trial, division=Division(8, 1000, is_whole=False)) for trial in record.trials
            ]
            return record

    runs = Divided(Pipeline(num_workers=0, num_cores=4, sample_wait_s=0.004, forward_s=0.010))
    kept, allowed = (fix(runs.measure, folder=folder, may_reorder=may) for may in (False, True))
    assert kept.best is not None
    assert allowed.best is not None
    assert kept.best.edits[0].keywords["num_workers"] == 1
    assert allowed.best.edits[0].keywords["num_workers"] > 1
    assert allowed.best.comparison.achieved.value > 1.5 * kept.best.comparison.achieved.value
    assert kept.reordering is not None
    assert kept.reordering.settings["num_workers"] == allowed.best.edits[0].keywords["num_workers"]
    assert allowed.reordering is None


def test_what_makes_it_slower_is_taken_back(folder: Path) -> None:
    runs = Runs(
        Pipeline(num_workers=0, sample_cpu_s=0.002, forward_s=0.012, backward_s=0.008),
        spoilt_by={"forward_s": 0.2},
    )
    fixed = fix(runs.measure, folder=folder, max_trials=2)
    assert fixed.best is None
    assert fixed.comparison is None
    assert fixed.patch.text == ""
    assert len(fixed.attempts) <= 2
    assert fixed.attempts[0].why.startswith("slower beyond noise: 0.")
    assert "taken back" in fixed.sentence
    assert any("Tried and taken back: Set num_workers=" in note for note in fixed.diagnosis.notes)


def test_a_model_that_computes_is_left_alone(folder: Path) -> None:
    runs = Runs(Pipeline(forward_s=0.05, backward_s=0.05))
    fixed = fix(runs.measure, folder=folder)
    assert len(runs.asked) == 1
    assert not fixed.attempts
    assert fixed.sentence.startswith("There is nothing to gain")


def test_samples_that_stay_the_same_are_cached_and_the_cache_may_fill(folder: Path) -> None:
    runs = Runs(
        Pipeline(
            sample_cpu_s=0.02,
            batches_per_epoch=12,
            num_samples=96,
            is_deterministic=True,
            persistent_workers=True,
        )
    )
    fixed = fix(runs.measure, folder=folder)
    assert fixed.best is not None
    assert fixed.best.edits[0].is_cached
    assert runs.asked[1][1] == 12  # the first epoch
    assert "stoker.cache(data)" in fixed.patch.text


def test_trials_are_bounded_and_none_is_made_twice(folder: Path) -> None:
    class NeverAsPredicted(Runs):
        def measure(self, edits: tuple[Edit, ...], filling: int) -> Record:
            self.asked.append((edits, filling))
            return record_of(
                replace(self.pipeline, forward_s=self.pipeline.forward_s - 0.001 * len(self.asked))
            )

    runs = NeverAsPredicted(Pipeline(num_workers=0, sample_cpu_s=0.002, forward_s=0.02))
    fixed = fix(runs.measure, folder=folder, max_trials=3)
    tried = [edits for edits, _ in runs.asked]
    assert len(tried) <= 4
    assert all(edits not in tried[:number] for number, edits in enumerate(tried))
    assert fixed.best is None or fixed.best.comparison.achieved.value > 1


def test_a_run_that_crashes_with_the_settings_is_not_kept(folder: Path) -> None:
    pipeline = Pipeline(num_workers=0, sample_cpu_s=0.002, forward_s=0.02)

    def measure(edits: tuple[Edit, ...], _: int) -> Record:
        record = record_of(pipeline)
        if edits:
            record.steps.clear()
            record.ended, record.error = "crashed", "RuntimeError: unable to open shared memory"
        return record

    fixed = fix(measure, folder=folder, max_trials=1)
    assert fixed.best is None
    assert "unable to open shared memory" in fixed.attempts[0].why


def test_nothing_is_tried_on_a_script_that_crashes_as_it_is(folder: Path) -> None:
    asked = []

    def measure(edits: tuple[Edit, ...], _: int) -> Record:
        asked.append(edits)
        record = record_of(Pipeline(num_workers=0, sample_cpu_s=0.002, forward_s=0.02))
        record.ended, record.error = "crashed", "ValueError: labels"
        return record

    fixed = fix(measure, folder=folder)
    assert asked == [()]
    assert "crashes as it is" in fixed.sentence


def test_edits_of_one_call_are_merged() -> None:
    record = record_of(Pipeline(), num_warmup=2, num_normal=4, num_replayed=0)

    def advice(**settings: Any) -> Advice:
        return Advice("settings", "", "", Interval(2, 2, 2), 0, False, settings, loader="train")

    edits = merged((), advice(num_workers=2, cache=True), record)
    edits = merged(edits, advice(num_workers=4, torch_threads=1), record)
    assert edits == (Edit(SCRIPT, 40, {"num_workers": 4}, is_cached=True, torch_threads=1),)
    assert merged(edits, replace(advice(num_workers=1), loader="unknown"), record) == edits


def test_advice_that_a_diff_can_follow_carries_it(folder: Path) -> None:
    record = record_of(Pipeline(num_workers=0, sample_cpu_s=0.002, forward_s=0.02))
    diagnosis = with_patches(diagnose(record), record, folder=folder)
    patches = {bool(advice.settings): advice.patch or "" for advice in diagnosis.advice}
    assert patches[True].startswith("--- a/train.py")
    assert not patches.get(False)
