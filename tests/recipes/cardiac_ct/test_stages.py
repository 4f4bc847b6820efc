import csv
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from stoker.recipes.cardiac_ct import CardiacSettings
from stoker.recipes.cardiac_ct._settings import PROFILES
from stoker.train import load_checkpoint
from support.commands import call
from support.stages import have_same_weights, run_stage, write_config

stage = partial(run_stage, "cardiac-ct")


@pytest.fixture
def config(tiny: dict[str, Any], packed: Path, tmp_path: Path) -> Path:
    """Tiny settings with the store that was packed for all tests."""
    return write_config(tmp_path / "config.yaml", {**tiny, "store": str(packed)})


def test_from_raw_files_to_predictions_by_commands(
    studies: Path, tiny: dict[str, Any], tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**tiny, "data": str(studies), "out": "run"}))
    words = ("pack", "--recipe", "cardiac-ct", "--config", config, "--num-workers", "0", "--batch-size", "4")
    packed = call(*words, "--json", cwd=tmp_path)
    assert packed.returncode == 0, packed.stderr
    assert json.loads(packed.stdout)["path"] == "run/cardiac-ct.stoker"
    assert call("verify", "run/cardiac-ct.stoker", cwd=tmp_path).returncode == 0
    trained = stage("train", config, studies, cwd=tmp_path)
    assert trained["checkpoint"] == "run/train/best.pt"
    assert trained["notes"][0] == "volumes are read from the packed store run/cardiac-ct.stoker"
    assert "of the time waited for data" in trained["notes"][-1]
    metrics = json.loads((tmp_path / "run/train/metrics.json").read_text())
    assert metrics["samples_per_s"] > 0
    assert 0 <= metrics["data_wait_fraction"] <= 1
    evaluated = stage("evaluate", config, studies, cwd=tmp_path)["values"]
    values = json.loads((tmp_path / "run/evaluate/evaluation.json").read_text())["values"]
    assert values["lvef/mae"] == evaluated["lvef/mae"]
    assert values["lvef/fraction_of_mean"] == pytest.approx(values["lvef/mae"] / values["lvef/mean_mae"])
    assert 0.5 <= values["AS_maybe/majority_accuracy"] <= 1
    validated = stage("evaluate", config, studies, "--set", "evaluation.split=val", cwd=tmp_path)
    assert validated["values"]["loss"] == pytest.approx(trained["values"]["loss"], rel=1e-5)
    predicted = stage("predict", config, studies, "--set", "evaluation.split=all", cwd=tmp_path)
    assert predicted["values"]["studies"] == 24
    _check_predictions(tmp_path / "run/predict/predictions.csv", studies, evaluated, tmp_path)


def _check_predictions(path: Path, studies: Path, evaluated: dict[str, float], cwd: Path) -> None:
    """Each study's prediction lies beside its key: the test studies' error is that of evaluation."""
    with path.open(newline="") as file:
        said = {row["basename"]: row for row in csv.DictReader(file)}
    with (studies / "studies.csv").open(newline="") as file:
        truth = {row["basename"]: row for row in csv.DictReader(file)}
    assert said.keys() == truth.keys()
    splits = json.loads((cwd / "run/train/splits.json").read_text())["patients"]
    errors = [
        abs(float(row["lvef"]) - float(truth[key]["lvef"]))
        for key, row in said.items()
        if splits[row["patient_id"]] == "test" and truth[key]["lvef"]
    ]
    assert np.mean(errors) == pytest.approx(evaluated["lvef/mae"], rel=1e-3)
    assert all(0 <= float(row["AS_maybe"]) <= 1 for row in said.values())


def test_raw_files_train_to_the_same_weights_and_say_so(studies: Path, config: Path, tmp_path: Path) -> None:
    for out, more in (("store", ()), ("files", ("--set", "packed=never"))):
        done = stage(
            "train", config, studies, "--out", out, "--set", "training.epochs=1", *more, cwd=tmp_path
        )
    assert "read and resampled from raw files in every epoch" in done["notes"][0]
    assert have_same_weights(*(tmp_path / out / "train/last.pt" for out in ("files", "store")))


def test_a_run_goes_on_to_the_bit(studies: Path, config: Path, tmp_path: Path) -> None:
    constant = ("--set", "training.warmup=0", "--set", "training.floor=1", "--set", "training.ema=0.9")
    stage("train", config, studies, "--out", "whole", *constant, cwd=tmp_path)
    part = ("--out", "parts", *constant)
    stage("train", config, studies, *part, "--set", "training.epochs=1", cwd=tmp_path)
    stage("train", config, studies, *part, "--resume", "auto", cwd=tmp_path)
    assert load_checkpoint(tmp_path / "whole/train/last.pt")["ema"]["average"]
    assert have_same_weights(*(tmp_path / out / "train/last.pt" for out in ("parts", "whole")))


def test_two_ranks_train_and_measure_what_one_process_finds(
    studies: Path, config: Path, tmp_path: Path
) -> None:
    # each rank normalises its own part of a batch, so it does not learn what one process would
    more = ("--out", "two", "--set", "training.batch_size=16")
    two = stage("train", config, studies, *more, cwd=tmp_path, ranks=2)["values"]
    assert load_checkpoint(tmp_path / "two/train/best.pt")["settings"]["world_size"] == 2
    val = ("--out", "two", "--set", "evaluation.split=val")
    one = stage("evaluate", config, studies, *val, cwd=tmp_path)["values"]
    assert two["loss"] == pytest.approx(one["loss"], rel=0.1)
    assert two["lvef/mae"] == pytest.approx(one["lvef/mae"], rel=0.1)


def test_bf16_accumulation_and_preloading_run(studies: Path, config: Path, tmp_path: Path) -> None:
    more = (
        "training.precision=bf16",
        "training.accumulate=2",
        "loading.preload=true",
        "loading.preload_val=true",
    )
    overrides = [word for each in more for word in ("--set", each)]
    found = stage("train", config, studies, *overrides, "--set", "training.epochs=1", cwd=tmp_path)
    assert found["values"]["lvef/mae"] < 40
    assert load_checkpoint(tmp_path / "run/train/last.pt")["settings"]["precision"] == "bf16"


def test_evaluation_takes_volumes_and_labels_of_the_training(
    studies: Path, config: Path, tmp_path: Path
) -> None:
    only = ("--set", "labels.regression=[]", "--set", "training.epochs=1")
    stage("train", config, studies, *only, cwd=tmp_path)
    found = stage("evaluate", config, studies, "--set", "volume.high=300", cwd=tmp_path)
    assert "AS_maybe/auroc" in found["values"]
    assert "lvef/mae" not in found["values"]


def test_patients_stay_where_they_were_when_labels_change(
    studies: Path, config: Path, tmp_path: Path
) -> None:
    stage("train", config, studies, "--set", "training.epochs=1", cwd=tmp_path)
    table = tmp_path / "labels.csv"
    lines = (studies / "studies.csv").read_text().splitlines()
    table.write_text("\n".join([lines[0], *(line[:-3] + "1,1" for line in lines[1:])]) + "\n")
    found = stage("evaluate", config, studies, "--set", f"labels.csv={table}", cwd=tmp_path)
    assert found["values"]["AS_maybe/majority_accuracy"] == 1
    splits = json.loads((tmp_path / "run/train/splits.json").read_text())["patients"]
    members = [line for line in lines[1:] if splits[line.split(",")[2]] == "test"]
    assert found["notes"][-1].startswith(f"{len(members)} studies of ")


def test_without_data_it_runs_on_synthetic_studies_that_it_packs(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny))
    more = ("--set", "synthetic.num_patients=12", "--set", "synthetic.scans_per_patient=1")
    words = ("train", "cardiac-ct", "--config", "tiny.yaml", "--out", "run", *more)
    done = call(*words, "--set", "training.epochs=1", "--set", "progress=true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cardiac-ct, train: " in done.stdout
    assert "volumes are read from the packed store run/cardiac-ct.stoker" in done.stderr.splitlines()
    assert (tmp_path / "run/synthetic/studies.csv").is_file()


@pytest.mark.parametrize(
    ("profile", "batch", "size", "epochs"),
    [
        ("default", (8, 1), (48, 48, 40), 30),
        ("original", (8, 1), (224, 224, 160), 100),
        ("low_memory", (2, 4), (224, 224, 160), 100),
        ("high_performance", (24, 1), (224, 224, 160), 100),
        ("quick_demo", (8, 1), (48, 48, 40), 2),
    ],
)
def test_every_profile_is_valid(
    profile: str, batch: tuple[int, int], size: tuple[int, ...], epochs: int, tmp_path: Path
) -> None:
    done = call("train", "cardiac-ct", "--profile", profile, "--dry-run", "--json", cwd=tmp_path)
    settings = CardiacSettings.model_validate_json(done.stdout)
    assert (settings.training.batch_size, settings.training.accumulate) == batch
    assert settings.volume.size == size
    assert settings.training.epochs == epochs
    assert set(PROFILES) == {"default", "original", "low_memory", "high_performance", "quick_demo"}


def test_mistakes_are_named(studies: Path, config: Path, tmp_path: Path) -> None:
    words = ("train", "cardiac-ct", "--config", config, "--data", studies, "--out", "run")
    done = call(*words, "--stage", "evaluate", cwd=tmp_path)
    assert done.returncode == 2
    assert "best.pt" in done.stderr
    assert (
        "must have the column 'strain'"
        in call(*words, "--set", "labels.regression=[strain]", cwd=tmp_path).stderr
    )
    assert (
        "volume.size [20, 20, 16] (now [8, 8, 8])"
        in call(*words, "--set", "volume.size=[8,8,8]", cwd=tmp_path).stderr
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "name it with studies.csv" in call(*words, "--data", empty, cwd=tmp_path).stderr
    flags = ("pack", "--recipe", "emg-pose", studies, "x.stoker", "--batch-size", "4")
    assert "leave it out" in call(*flags, cwd=tmp_path).stderr
    assert (
        "--output-dir goes with --recipe" in call("pack", studies, "--output-dir", "x", cwd=tmp_path).stderr
    )


def test_packing_by_command(studies: Path, config: Path, tmp_path: Path) -> None:
    words = (
        "pack",
        "--recipe",
        "cardiac-ct",
        studies,
        "--config",
        config,
        "--output-dir",
        "packed",
        "--json",
    )
    judged = call(*words, "--validate-only", cwd=tmp_path)
    assert judged.returncode == 0, judged.stderr
    assert not (tmp_path / "packed").exists()
    done = call(*words, "--num-workers", "1", cwd=tmp_path)
    packed = json.loads(done.stdout)
    assert packed["path"] == "packed/cardiac-ct.stoker"
    assert packed["num_samples"] == 24
    assert packed["counts"] == json.loads(judged.stdout)["counts"]
    assert packed["counts"] == {
        "studies in the table": 24,
        "studies": 24,
        "patients": 16,
        "studies without lvef": 1,
        "studies without AS_maybe": 0,
    }
