import json
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from stoker.recipes import find
from stoker.recipes.emg_pose._prepare import prepare
from stoker.recipes.emg_pose._settings import PROFILES, EmgSettings
from stoker.train import load_checkpoint
from support.commands import call
from support.stages import have_same_weights, run_stage, write_config

TINY = {
    "progress": False,
    "windows": {"length": 200, "padding": [20, 20]},
    "model": {"features": 16, "width": 4, "hidden": 8, "num_blocks": [0, 0, 1]},
    "training": {"epochs": 2, "batch_size": 16, "lr": 0.01, "device": "cpu"},
}


stage = partial(run_stage, "emg-pose")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_config(tmp_path / "tiny.yaml", TINY)


def test_from_raw_files_to_predictions_by_commands(sessions: Path, tiny: Path, tmp_path: Path) -> None:
    trained = stage("train", tiny, sessions, cwd=tmp_path)
    assert trained["checkpoint"] == "run/train/best.pt"
    metrics = json.loads((tmp_path / "run/train/metrics.json").read_text())
    assert metrics["epochs"] == 2
    assert metrics["best"]["mae/INDEX_PIP_FE"] > 0
    evaluated = stage("evaluate", tiny, sessions, cwd=tmp_path)
    values = json.loads((tmp_path / "run/evaluate/evaluation.json").read_text())["values"]
    assert values["mae"] == evaluated["values"]["mae"]
    assert values["fraction_of_mean_pose"] == pytest.approx(values["mae"] / values["mean_pose_mae"])
    validated = stage("evaluate", tiny, sessions, "--set", "evaluation.split=val", cwd=tmp_path)
    assert validated["values"]["mae"] == pytest.approx(trained["values"]["mae"], rel=1e-6)
    predicted = stage("predict", tiny, sessions, cwd=tmp_path)
    assert predicted["values"]["sessions"] == 2
    _check_predictions(tmp_path / "run/predict/predictions.h5", sessions)


def _check_predictions(path: Path, sessions: Path) -> None:
    """Angles lie where their EMG does: context is NaN, and the error is that of any other pass."""
    errors = []
    with h5py.File(path) as file:
        assert list(file.attrs["joints"])[:1] == ["THUMB_CMC_FE"]
        assert len(file) == 2
        for name, group in file.items():
            angles = group["joint_angles"][:]
            with h5py.File(sessions / f"{name}.hdf5") as raw:
                truth = raw["emg2pose/timeseries"]["joint_angles"]
            assert angles.shape == (3820, 20)  # 20 + 19 windows of 200
            assert np.isnan(angles[:20]).all()
            assert np.isfinite(angles[20:]).all()
            errors.append(np.abs(angles[20:] - truth[20:3820])[(truth[20:3820] != 0).any(1)])
    assert np.concatenate(errors).mean() < 0.5


def test_a_packed_store_trains_to_the_same_weights(sessions: Path, tiny: Path, tmp_path: Path) -> None:
    prepare(sessions, tmp_path / "emg.stoker", EmgSettings(progress=False), workers=0)
    for data, out in ((sessions, "files"), (tmp_path / "emg.stoker", "store")):
        stage("train", tiny, data, "--set", f"out={out}", "--set", "training.epochs=1", cwd=tmp_path)
    assert have_same_weights(*(tmp_path / out / "train/last.pt" for out in ("files", "store")))


def test_a_run_goes_on_to_the_bit(sessions: Path, tiny: Path, tmp_path: Path) -> None:
    half = ("--set", "out=parts", "--set", "training.checkpoint_every=3")
    stop = ("--set", "training.epochs=1", "--set", "training.warmup=0", "--set", "training.floor=1")
    constant = ("--set", "training.warmup=0", "--set", "training.floor=1")
    stage("train", tiny, sessions, *half, *stop, cwd=tmp_path)
    stage("train", tiny, sessions, *half, *constant, "--resume", "auto", cwd=tmp_path)
    stage("train", tiny, sessions, "--set", "out=whole", *constant, cwd=tmp_path)
    assert have_same_weights(*(tmp_path / out / "train/last.pt" for out in ("parts", "whole")))


def test_two_ranks_train_and_evaluate_what_one_process_does(
    sessions: Path, tiny: Path, tmp_path: Path
) -> None:
    more = ("training.epochs=1", "model.dropout=0", "augment.channel_dropout=0")
    words = [word for each in more for word in ("--set", each)]
    found = []
    for ranks in (1, 2):
        batch = ("--set", f"training.batch_size={16 // ranks}", "--set", f"out=by-{ranks}")
        done = stage("train", tiny, sessions, *words, *batch, cwd=tmp_path, ranks=ranks)
        found.append(done["values"])
    assert found[0]["mae"] == pytest.approx(found[1]["mae"], rel=1e-3)


def test_bf16_and_accumulation_learn_too(sessions: Path, tiny: Path, tmp_path: Path) -> None:
    more = ("--set", "training.precision=bf16", "--set", "training.accumulate=2", "--set", "out=half")
    found = stage("train", tiny, sessions, *more, cwd=tmp_path)
    assert found["values"]["mae"] < 0.5
    assert load_checkpoint(tmp_path / "half/train/last.pt")["settings"]["precision"] == "bf16"


def test_averaged_weights_are_what_is_evaluated(sessions: Path, tiny: Path, tmp_path: Path) -> None:
    trained = stage("train", tiny, sessions, "--set", "training.ema=0.9", cwd=tmp_path)
    found = stage("evaluate", tiny, sessions, "--set", "evaluation.split=val", cwd=tmp_path)
    assert found["values"]["mae"] == pytest.approx(trained["values"]["mae"], rel=1e-6)


@pytest.mark.parametrize(
    ("profile", "batch", "workers", "prefetch", "cache", "samples"),
    [
        ("default", (64, 1), 4, 2, 64, 10_000),
        ("low_memory", (16, 4), 2, 1, 32, 5_000),
        ("high_performance", (128, 1), 8, 4, 128, 20_000),
        ("quick_demo", (32, 1), 2, 2, 64, 10_000),
    ],
)
def test_profiles_are_those_of_the_table(
    profile: str,
    batch: tuple[int, int],
    workers: int,
    prefetch: int,
    cache: int,
    samples: int,
    tmp_path: Path,
) -> None:
    done = call("train", "emg-pose", "--profile", profile, "--dry-run", "--json", cwd=tmp_path)
    settings = EmgSettings.model_validate_json(done.stdout)
    assert (settings.training.batch_size, settings.training.accumulate) == batch
    assert (settings.loading.num_workers, settings.loading.prefetch) == (workers, prefetch)
    assert settings.windows.chunk_cache_bytes == cache << 20
    assert settings.normalize.max_samples == samples
    assert set(PROFILES) == {"default", "low_memory", "high_performance", "quick_demo"}


def test_without_data_it_runs_on_synthetic_sessions(tiny: Path, tmp_path: Path) -> None:
    more = ("--set", "synthetic.num_users=3", "--set", "synthetic.seconds=1", "--set", "training.epochs=1")
    done = call("train", "emg-pose", "--config", tiny, "--out", "run", *more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "emg-pose, train: loss" in done.stdout
    assert (tmp_path / "run/synthetic/metadata.csv").is_file()


def test_mistakes_are_named(sessions: Path, tiny: Path, tmp_path: Path) -> None:
    words = ("train", "emg-pose", "--config", tiny, "--data", sessions, "--out", "run")
    done = call(*words, "--stage", "evaluate", cwd=tmp_path)
    assert done.returncode == 2
    assert "best.pt" in done.stderr
    assert "no stage 'pretrain'" in call(*words, "--stage", "pretrain", cwd=tmp_path).stderr
    assert "windows of mapped files" in call(*words, "--set", "loading.preload=true", cwd=tmp_path).stderr
    assert "no profile 'huge'" in call(*words, "--profile", "huge", cwd=tmp_path).stderr


def test_packing_by_command(sessions: Path, tmp_path: Path) -> None:
    words = ("pack", "--recipe", "emg-pose", sessions, "emg.stoker", "--json")
    judged = call(*words, "--validate-only", cwd=tmp_path)
    assert judged.returncode == 0, judged.stderr
    assert not (tmp_path / "emg.stoker").exists()
    packed = json.loads(call(*words, cwd=tmp_path).stdout)
    assert packed["num_samples"] == 8
    assert packed["counts"] == json.loads(judged.stdout)["counts"]
    assert packed["counts"]["sessions for test"] == 2


def test_it_learns(tmp_path: Path) -> None:
    """More than the mean pose, of a user it never saw, within seconds."""
    options = {
        "synthetic": {"num_users": 5, "sessions_per_user": 1, "seconds": 8.0},
        "training": {"epochs": 12, "batch_size": 16, "lr": 0.01, "device": "cpu"},
        "model": {"features": 32, "hidden": 32, "num_blocks": [0, 0, 1], "dropout": 0},
        "augment": {"rotate": None, "channel_dropout": None, "scale": None},
        "out": str(tmp_path / "run"),
        "progress": False,
    }
    recipe = find("emg-pose")
    settings = recipe.settings.model_validate(options)
    recipe.run("train", settings)
    values = recipe.run("evaluate", settings).values
    assert values["fraction_of_mean_pose"] < 0.92
