"""Whole stages by command, on a few synthetic recordings."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.recipes import find
from stoker.recipes.heart_sounds import HeartSoundSettings
from stoker.train import load_checkpoint
from support.commands import call
from support.stages import call_ranks

TINY = [
    "--profile=quick_demo",
    "--set=progress=false",
    "--set=encoder.width=4",
    "--set=synthetic.num_patients=14",
    "--set=synthetic.seconds=3",
    "--set=pretraining.epochs=1",
    "--set=pretraining.batch_size=16",
    "--set=training.epochs=1",
    "--set=training.batch_size=16",
]

STORE = "synthetic-circor-14-3s-0.stoker"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With synthetic data, a store and a pre-trained encoder."""
    folder = tmp_path_factory.mktemp("runs")
    train(folder, "pretrain")
    return folder


def train(out: Path, stage: str, *more: str) -> dict[str, Any]:
    done = call("train", "heart-sounds", "--stage", stage, "--out", out, *TINY, *more, "--json", cwd=out)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_pretraining_leaves_a_checkpoint_and_values(out: Path) -> None:
    assert (out / "pretrain" / "best.pt").is_file()
    metrics = json.loads((out / "pretrain" / "metrics.json").read_text())
    assert set(metrics["best"]) >= {"loss", "retrieval"}
    assert (out / "synthetic-circor-14-3s-0" / "training_data.csv").is_file()


def test_a_probe_from_it_is_evaluated_by_cycles_recordings_and_patients(out: Path) -> None:
    found = train(out, "finetune", "--set=finetune.mode=probe")
    assert found["folder"].endswith("probe-circor-murmur")
    names = {"accuracy", "macro_f1", "sensitivity", "specificity", "auroc", "auprc"}
    assert {f"{level}/{name}" for level in ("cycle", "recording", "patient") for name in names} <= set(
        found["values"]
    )
    saved = load_checkpoint(found["checkpoint"])["model"]
    given = load_checkpoint(out / "pretrain" / "best.pt")["model"]
    own = [name for name in saved if name.startswith("encoder.")]
    assert own
    assert all(torch.equal(saved[name], given[name]) for name in own)
    again = train(out, "evaluate", "--pretrained", found["checkpoint"])
    assert again["values"] == found["values"]
    assert json.loads((out / "evaluate-circor-murmur" / "evaluation.json").read_text())["values"]


def test_a_whole_fine_tune_changes_the_encoder_and_goes_on(out: Path) -> None:
    more = ["--set=finetune.mode=full", "--task=circor-outcome", "--set=classifier.balance=focal"]
    first = train(out, "finetune", *more, "--set=training.precision=bf16")
    saved = load_checkpoint(first["checkpoint"])
    given = load_checkpoint(out / "pretrain" / "best.pt")["model"]
    assert not torch.equal(saved["model"]["encoder.front.0.0.weight"], given["encoder.front.0.0.weight"])
    assert saved["config"]["task"] == "circor-outcome"
    assert "cycle/alarm_threshold" in first["values"] or "cycle/auroc" in first["values"]
    refused = call("train", "heart-sounds", "--stage=finetune", "--out", out, *TINY, *more, cwd=out)
    assert refused.returncode == 2
    assert "resume" in refused.stderr
    train(out, "finetune", *more, "--set=training.precision=bf16", "--set=training.epochs=2", "--resume=auto")
    assert json.loads((out / "full-circor-outcome" / "metrics.json").read_text())["epochs"] == 2


@pytest.mark.parametrize("task", ["physionet2016", "pascal", "folders"])
def test_every_task_has_data_of_its_own(task: str, tmp_path: Path) -> None:
    more = ["--set=synthetic.num_patients=12", "--set=classifier.balance=sampler", "--set=label_fraction=0.6"]
    found = train(tmp_path, "supervised", "--task", task, *more, "--set=split_seed=1")
    assert 0 <= found["values"]["recording/accuracy"] <= 1
    assert json.loads((Path(found["folder"]) / "evaluation.json").read_text())["task"] == task


def test_views_can_be_made_ahead_and_keys_by_a_momentum_encoder(out: Path, tmp_path: Path) -> None:
    store = out / STORE
    more = ["--set=contrast.momentum=0.99", "--set=contrast.queue=40", "--set=views.refresh_epochs=1"]
    found = train(tmp_path, "pretrain", "--data", str(store), *more, "--set=pretraining.accumulate=2")
    assert list((tmp_path / "views").glob("generation-0-*.stoker"))
    state = load_checkpoint(found["checkpoint"])["model"]
    assert (state["copy.recordings"] >= 0).all()


def test_two_ranks_pretrain_together(out: Path) -> None:
    more = ("--set=contrast.momentum=0.99", "--set=contrast.queue=40", "--set=pretraining.batch_size=8")
    words = ("train", "heart-sounds", "--stage=pretrain", "--data", out / STORE, "--out=two", "--json")
    call_ranks(2, *words, *TINY, *more, cwd=out)
    state = load_checkpoint(out / "two" / "pretrain" / "last.pt")
    assert state["settings"]["world_size"] == 2
    assert (state["model"]["copy.recordings"] >= 0).all()


def test_mistakes_are_named(out: Path, tmp_path: Path) -> None:
    base: list[str | Path] = [
        "train",
        "heart-sounds",
        "--out",
        tmp_path,
        "--data",
        out / STORE,
    ]
    cases = {
        ("--stage=supervised", "--task=folders", *TINY): "has no labels 'y' for the task folders",
        ("--stage=supervised",): "cycles of 1600 points",
        ("--stage=finetune", *TINY): "best.pt",
        ("--stage=pretrain", "--set=splits.train=0.9", *TINY): "must sum to at most 1",
        ("--stage=nothing",): "there are pretrain, supervised, finetune, evaluate",
        ("--task=nothing",): "there are circor-murmur",
    }
    for words, message in cases.items():
        done = call(*base, *words, cwd=tmp_path)
        assert done.returncode != 0
        assert message in " ".join(done.stderr.split()), done.stderr


@pytest.mark.parametrize("profile", ["default", *find("heart-sounds").profiles])
def test_every_profile_is_valid(profile: str, tmp_path: Path) -> None:
    done = call("train", "heart-sounds", "--profile", profile, "--dry-run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    HeartSoundSettings.model_validate_json(done.stdout)


def test_the_recipe_is_listed(tmp_path: Path) -> None:
    done = call("recipes", "--json", cwd=tmp_path)
    found = {each["name"]: each for each in json.loads(done.stdout)["recipes"]}
    assert found["heart-sounds"]["stages"] == ["pretrain", "supervised", "finetune", "evaluate"]
