"""``stoker tune``: a profile for a store or a run, which ``stoker train --profile`` takes."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import stoker
from stoker.config import resolve_training

NETS = """
from torch import nn

def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
"""
RUN = """
data:
  train: {store: tones.stoker, split: train}
model: {name: "tuned_nets:small"}
task: {name: classification, arguments: {num_classes: 2}}
batch_size: 16
checkpoint_dir: out
"""
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tones") / "tones.stoker"
    samples = [{"x": np.full((1, 64), i, np.float32), "y": np.int64(i % 2)} for i in range(120)]
    stoker.pack(samples, path, workers=0, splits={"train": 0.8, "val": 0.2})
    return path


@pytest.fixture
def call(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    """The command in this process: exit code, output, errors."""
    from stoker.cli._main import _run

    (tmp_path / "tones.stoker").symlink_to(tones)
    (tmp_path / "tuned_nets.py").write_text(NETS)
    (tmp_path / "run.yaml").write_text(RUN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def called(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return _run(["tune", *arguments], debug=False), *capsys.readouterr()

    yield called
    torch.set_num_threads(num_threads)
    sys.modules.pop("tuned_nets", None)


def test_a_run_is_tuned_and_its_profile_trains(call: Call, tmp_path: Path) -> None:
    code, out, err = call("run.yaml", "--trial-s", "0.05")
    assert code == 0, err
    assert "profile: tuned.yaml" in out
    assert "num_workers" in out
    resolved = resolve_training("run.yaml", profile="tuned.yaml")
    assert resolved.origins["data.loader.num_workers"] == "profile tuned.yaml"
    assert resolved.origins["clip_norm"] == "profile default"  # the training stays as it was
    assert resolved.settings.clip_norm == 1.0
    assert "# Found by `stoker tune run.yaml`" in (tmp_path / "tuned.yaml").read_text()
    assert not (tmp_path / "out").exists(), "tuning writes no checkpoints and no logs"


def test_a_store_is_tuned_for_a_step_time(call: Call) -> None:
    options = ("--step-ms", "1", "--batch-size", "32", "--split", "train", "--trial-s", "0.03")
    code, out, err = call("tones.stoker", *options, "--out", "fast.yaml", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["profile"] == "fast.yaml"
    assert found["step_ms"] >= 1
    assert 0 <= found["starved_fraction"] < 1
    assert set(found["settings"]) == set(found["reasons"])
    assert len(found["trials"]) >= 2
    assert found["trials"][0]["predicted_ms"] is None  # the defaults, before there was a model


def test_the_profile_can_be_printed_alone(call: Call, tmp_path: Path) -> None:
    code, out, err = call("tones.stoker", "--trial-s", "0.02", "--out", "-")
    assert code == 0, err
    assert out.startswith("# Found by")
    assert "data:\n  loader:\n" in out
    assert not list(tmp_path.glob("tuned*.yaml"))


def test_what_a_file_sets_itself_is_said(call: Call) -> None:
    code, out, err = call(
        "run.yaml", "--set", "data.loader.num_workers=1", "--step-ms", "0", "--trial-s", "0.02", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["notes"] == [
        "run.yaml sets data.loader.num_workers itself, which wins over the profile"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tones.stoker", "--out", "tuned.txt"), "--out must be a .yaml file"),
        (("tones.stoker", "--out", "-", "--json"), "leave one out"),
        (("tones.stoker", "--set", "epochs=1"), "--set is for a configuration"),
        (("run.yaml", "--batch-size", "8"), "--batch-size is for a store"),
        (("nothing.stoker",), "nothing.stoker"),
        (("nothing.yaml",), "the settings file must exist"),
        (("tones.stoker", "--split", "test"), "test"),
    ],
)
def test_wrong_use_is_answered(call: Call, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = call(*arguments)
    assert code == 2
    assert message in err
    assert not out
