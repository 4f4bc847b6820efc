import json
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from stoker.recipes import find
from stoker.recipes.printer_tcn._layout import find_layers, read_layer
from stoker.recipes.printer_tcn._settings import PROFILES, PrinterSettings
from stoker.train import load_checkpoint
from support.commands import call
from support.ranks import run_ranks
from support.stages import have_same_weights, run_stage, write_config

TINY: dict[str, Any] = {
    "progress": False,
    "windows": {"length": 60, "horizon": 20, "stride": 20},
    "model": {"channels": [8, 8], "dilations": [1, 2], "hidden": 16},
    "training": {"epochs": 2, "batch_size": 16, "lr": 0.01, "device": "cpu"},
}


stage = partial(run_stage, "printer-tcn")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_config(tmp_path / "tiny.yaml", TINY)


def test_from_raw_files_to_predictions_by_commands(parts: Path, tiny: Path, tmp_path: Path) -> None:
    data = parts / "data_simulation_*"
    trained = stage("train", tiny, data, cwd=tmp_path)
    assert trained["checkpoint"] == "run/train/best.pt"
    metrics = json.loads((tmp_path / "run/train/metrics.json").read_text())
    assert metrics["epochs"] == 2
    assert metrics["best"]["rmse/internal_stress"] > 0
    evaluated = stage("evaluate", tiny, data, cwd=tmp_path)
    values = json.loads((tmp_path / "run/evaluate/evaluation.json").read_text())["values"]
    assert values["fraction_of_mean"] == evaluated["values"]["fraction_of_mean"]
    assert {f"{kind}/porosity" for kind in ("rmse", "mae", "r2", "mape", "correlation", "bias")} < set(values)
    validated = stage("evaluate", tiny, data, "--set", "evaluation.split=val", cwd=tmp_path)
    assert validated["values"]["loss"] == pytest.approx(trained["values"]["loss"], rel=1e-5)
    predicted = stage("predict", tiny, data, cwd=tmp_path)
    assert predicted["values"]["layers"] == 3
    _check_predictions(tmp_path / "run/predict/predictions.h5", parts, values)
    only = parts / "data_simulation_simple_boat5_3"  # a checkpoint brings its scaler to other data
    more = ("--pretrained", "run/train/best.pt", "--set", "out=other", "--set", "evaluation.split=all")
    found = stage("evaluate", tiny, only, *more, cwd=tmp_path)["values"]
    assert found["r2"] == pytest.approx(values["r2"], rel=1e-5)


def _check_predictions(path: Path, parts: Path, values: dict[str, float]) -> None:
    """They lie where their truths do: errors of the file are those of the evaluation."""
    stress, states = [], []
    layers = {each.key: each for each in find_layers(parts)[0]}
    with h5py.File(path) as file:
        assert list(file) == ["data_simulation_simple_boat5_3"]
        for name, group in file["data_simulation_simple_boat5_3"].items():
            rows = read_layer(layers[f"data_simulation_simple_boat5_3/{name}"])[0]
            quality, errors = group["quality"][:], group["states"][:]
            assert list(group["quality"].attrs["units"])[:2] == ["1", "MPa"]
            steps = np.flatnonzero(np.isfinite(quality[:, 1]))
            assert steps.tolist() == list(range(79, len(quality), 20))  # 60 + 20 steps, then every 20
            steps = steps[rows[steps, -1] == 1]
            stress.append(quality[steps, 1] - rows[steps, 17])
            assert np.isnan(errors[:12]).all()  # before a whole receptive field of 13
            assert np.isfinite(errors[12:]).all()
            states.append(errors[12:, 0] - rows[12 : len(errors), 12])
    assert np.sqrt((np.concatenate(stress) ** 2).mean()) == pytest.approx(
        values["rmse/internal_stress"], rel=1e-3
    )
    assert np.sqrt((np.concatenate(states) ** 2).mean()) == pytest.approx(values["rmse/error_x"], rel=0.1)


def test_a_packed_store_trains_to_the_same_weights(
    parts: Path, packed: Path, tiny: Path, tmp_path: Path
) -> None:
    for data, out in ((parts, "files"), (packed, "store")):
        stage("train", tiny, data, "--set", f"out={out}", "--set", "training.epochs=1", cwd=tmp_path)
    assert have_same_weights(*(tmp_path / out / "train/last.pt" for out in ("files", "store")))


def test_a_run_goes_on_to_the_bit(packed: Path, tiny: Path, tmp_path: Path) -> None:
    constant = ("--set", "training.warmup=0", "--set", "training.floor=1")
    part = ("--set", "out=parts", "--set", "training.checkpoint_every=3", *constant)
    stage("train", tiny, packed, *part, "--set", "training.epochs=1", cwd=tmp_path)
    stage("train", tiny, packed, *part, "--resume", "auto", cwd=tmp_path)
    stage("train", tiny, packed, "--set", "out=whole", *constant, cwd=tmp_path)
    assert have_same_weights(*(tmp_path / out / "train/last.pt" for out in ("parts", "whole")))


def test_two_ranks_train_and_evaluate_what_one_process_does(packed: Path, tmp_path: Path) -> None:
    recipe = find("printer-tcn")

    def values(out: str, batch_size: int) -> dict[str, float]:
        options = {**TINY, "data": packed, "out": tmp_path / out, "loss": {"adaptive": True}}
        training = {**TINY["training"], "epochs": 1, "batch_size": batch_size}
        settings = recipe.settings.model_validate({**options, "training": training})
        trained = recipe.run("train", settings).values
        recipe.run("predict", settings)
        return {**trained, "test_loss": recipe.run("evaluate", settings).values["loss"]}

    two = run_ranks(2, lambda: values("two", 8))
    one = values("one", 16)
    assert two[0] == two[1]
    assert two[0] == pytest.approx(one, rel=1e-3)
    assert (load_checkpoint(tmp_path / "two/train/last.pt")["model"]["log_variance"] != 0).all()
    assert (tmp_path / "two/predict/predictions.h5").is_file()


def test_bf16_accumulation_and_averages_work_together(packed: Path, tiny: Path, tmp_path: Path) -> None:
    more = ("--set", "training.precision=bf16", "--set", "training.accumulate=2", "--set", "training.ema=0.9")
    trained = stage("train", tiny, packed, *more, cwd=tmp_path)
    assert load_checkpoint(tmp_path / "run/train/last.pt")["settings"]["precision"] == "bf16"
    again = stage("evaluate", tiny, packed, *more, "--set", "evaluation.split=val", cwd=tmp_path)
    assert again["values"]["loss"] == pytest.approx(trained["values"]["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("profile", "batch", "workers", "prefetch", "compile_mode", "channels"),
    [
        ("default", (128, 1), None, 8, "auto", (16, 16, 32)),
        ("basic", (512, 1), 8, 8, "auto", (128, 128, 256)),
        ("high_performance", (512, 1), 8, 8, "reduce-overhead", (128, 128, 256)),
        ("low_memory", (32, 4), 2, 1, "auto", (16, 16, 32)),
        ("quick_demo", (128, 1), 2, 2, "auto", (16, 16, 32)),
    ],
)
def test_profiles_are_those_of_the_table(
    profile: str,
    batch: tuple[int, int],
    workers: int | None,
    prefetch: int,
    compile_mode: str,
    channels: tuple[int, ...],
    tmp_path: Path,
) -> None:
    done = call("train", "printer-tcn", "--profile", profile, "--dry-run", "--json", cwd=tmp_path)
    settings = PrinterSettings.model_validate_json(done.stdout)
    assert (settings.training.batch_size, settings.training.accumulate) == batch
    assert (settings.loading.num_workers, settings.loading.prefetch) == (workers, prefetch)
    assert settings.training.compile == compile_mode
    assert settings.model.channels == channels
    assert set(PROFILES) == {"default", "basic", "high_performance", "low_memory", "quick_demo"}


def test_without_data_it_runs_on_simulated_parts(tiny: Path, tmp_path: Path) -> None:
    size = {"num_parts": 3, "layers_per_part": 2, "points_per_layer": 200}
    more = [word for key, value in size.items() for word in ("--set", f"synthetic.{key}={value}")]
    words = ("train", "printer-tcn", "--config", tiny, "--out", "run", "--set", "training.epochs=1")
    done = call(*words, *more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "printer-tcn, train: loss" in done.stdout
    first = sorted((tmp_path / "run/synthetic").rglob("*.mat"))
    assert len(first) == 6
    stamps = [path.stat().st_mtime_ns for path in first]
    done = call(*words, *more, "--resume", "fresh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.stat().st_mtime_ns for path in first] == stamps
    (tmp_path / "run/synthetic/synthetic.json").unlink()
    done = call(*words, *more, "--resume", "fresh", cwd=tmp_path)
    assert "something else than synthetic parts" in done.stderr


def test_mistakes_are_named(parts: Path, packed: Path, tiny: Path, tmp_path: Path) -> None:
    words = ("train", "printer-tcn", "--config", tiny, "--out", "run", "--data")
    done = call(*words, packed, "--stage", "evaluate", cwd=tmp_path)
    assert done.returncode == 2
    assert "best.pt" in done.stderr
    assert "no stage 'pretrain'" in call(*words, packed, "--stage", "pretrain", cwd=tmp_path).stderr
    assert (
        "windows of mapped files"
        in call(*words, packed, "--set", "loading.preload=true", cwd=tmp_path).stderr
    )
    assert "no profile 'huge'" in call(*words, packed, "--profile", "huge", cwd=tmp_path).stderr
    assert "a pattern of such folders" in call(*words, "data_simulation_*", cwd=tmp_path).stderr
    alone = parts / "data_simulation_bearing5_3"
    assert "a layer for 'val', and there are 3 for train" in call(*words, alone, cwd=tmp_path).stderr


def test_packing_by_command(parts: Path, tmp_path: Path) -> None:
    words = ("pack", "--recipe", "printer-tcn", parts, "layers.stoker", "--json")
    judged = call(*words, "--validate-only", cwd=tmp_path)
    assert judged.returncode == 0, judged.stderr
    assert not (tmp_path / "layers.stoker").exists()
    packed = json.loads(call(*words, cwd=tmp_path).stdout)
    assert packed["num_samples"] == 12
    assert packed["counts"] == json.loads(judged.stdout)["counts"]
    assert call("verify", "layers.stoker", cwd=tmp_path).returncode == 0


def test_it_learns(tmp_path: Path) -> None:
    """More than the mean, of a part it never saw, within seconds."""
    options = {
        "synthetic": {"num_parts": 5, "layers_per_part": 3, "points_per_layer": 600},
        "windows": {"length": 60, "horizon": 20, "stride": 10},
        "training": {"epochs": 10, "batch_size": 32, "lr": 0.01, "device": "cpu"},
        "model": {"channels": [16, 16], "dilations": [1, 2], "hidden": 32, "dropout": 0},
        "out": str(tmp_path / "run"),
        "progress": False,
    }
    recipe = find("printer-tcn")
    settings = recipe.settings.model_validate(options)
    recipe.run("train", settings)
    values = recipe.run("evaluate", settings).values
    assert values["fraction_of_mean"] < 0.8
    assert values["states_r2"] > 0.5
