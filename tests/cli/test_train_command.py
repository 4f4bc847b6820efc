"""``stoker train`` as a user meets it: real data, real processes, exit codes, messages."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import stoker
from stoker.config import TrainSettings, load, profile_names
from stoker.train import load_checkpoint

Done = subprocess.CompletedProcess[str]

NETS = """
import torch
from torch import nn

def small(width=8, num_classes=2):
    return nn.Sequential(nn.Conv1d(1, width, 9, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
                         nn.Linear(width, num_classes))

def pixels(num_classes=2):
    return nn.Conv1d(1, num_classes, 5, padding=2)

def values():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))

def broken():
    raise RuntimeError("no weights here")

def text():
    return "not a model"

def my_task(scale=1.0):
    return lambda model, batch: scale * nn.functional.cross_entropy(model(batch["x"]), batch["y"])
"""
RUN = """
data:
  train: {store: tones.stoker, split: train}
  val: {store: tones.stoker, split: val}
model: {name: "nets:small", arguments: {width: 16}}
task: {name: classification}
epochs: 6
batch_size: 16
optimizer: {lr: 0.02}
checkpoint_dir: out
"""


ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # for a model this small more only wait
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def run(*arguments: str, cwd: Path, launcher: Sequence[str] = ()) -> Done:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, *launcher, "-m", "stoker", "train", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env=ONE_THREAD,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def call(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """The command in this process, which has torch already: exit code, output, errors."""
    from stoker.cli._main import _run

    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def called(*arguments: str) -> tuple[int, str, str]:
        sys.modules.pop("nets", None)
        capsys.readouterr()
        return _run(["train", *arguments], debug=False), *capsys.readouterr()

    yield called
    torch.set_num_threads(num_threads)
    sys.modules.pop("nets", None)


class Tones:
    """Two classes of tones in noise, told apart by their pitch; a mask and a value to learn too."""

    classes = {"y": ("low", "high")}  # noqa: RUF012 - as a source declares them

    def __len__(self) -> int:
        return 240

    def __getitem__(self, i: int) -> dict[str, object]:
        rng = np.random.default_rng(i)
        label = i % 2
        pitch = 0.15 + 0.25 * label
        x = np.sin(pitch * np.arange(64) + rng.uniform(0, 6)) + 0.3 * rng.standard_normal(64)
        return {
            "x": x[None].astype(np.float32),
            "y": np.int64(label),
            "mask": (x > 0).astype(np.uint8),
            "value": x[:8].mean(keepdims=True).astype(np.float32),
        }


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tones") / "tones.stoker"
    stoker.pack(Tones(), path, workers=0, splits={"train": 0.75, "val": 0.25}, stratify="y")
    return path


@pytest.fixture
def folder(tones: Path, tmp_path: Path) -> Path:
    (tmp_path / "tones.stoker").symlink_to(tones)
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "run.yaml").write_text(RUN)
    return tmp_path


Call = Callable[..., tuple[int, str, str]]


def test_a_run_out_of_a_configuration_learns_and_can_be_resumed(folder: Path, call: Call) -> None:
    code, out, err = call("run.yaml", "--json")
    assert code == 0, err
    result = json.loads(out)
    losses = [row["val_loss"] for row in result["history"]]
    assert losses[-1] < 0.5 * losses[0]
    assert result["best"]["accuracy"] > 0.9
    assert result["best"]["auroc"] > 0.95
    written = json.loads((folder / "out" / "metrics.json").read_text())
    assert written["best"]["accuracy"] == result["best"]["accuracy"]
    assert load_checkpoint(folder / "out" / "last.pt")["config"]["model"]["arguments"] == {"width": 16}
    code, _, err = call("run.yaml")
    assert code == 2
    assert "of an earlier run" in err
    code, out, err = call("run.yaml", "--resume", "auto", "--set", "epochs=7")
    assert code == 0, err
    assert out.startswith("out: 7 epochs, the best in epoch ")


def test_two_processes_train_one_model(folder: Path, call: Call) -> None:
    arguments = ["run.yaml", "--profile", "quick_demo", "--set", "epochs=2", "--json"]
    done = run(*arguments, "--set", "batch_size=8", launcher=TORCHRUN, cwd=folder)
    assert done.returncode == 0, done.stderr
    two = json.loads(done.stdout)  # one object: the other process is silent
    one = json.loads(call(*arguments, "--set", "checkpoint_dir=alone")[1])
    assert two["epochs"] == one["epochs"] == 2
    assert two["best"] == pytest.approx(one["best"], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("profile", profile_names())
def test_every_profile_trains(call: Call, profile: str) -> None:
    code, out, err = call("run.yaml", "--profile", profile, "--set", "epochs=1", "--json")
    assert code == 0, err
    assert json.loads(out)["epochs"] == 1
    assert ("profile auto: data.loader.num_workers = " in err) == (profile == "auto")


def test_the_largest_batch_that_fits_is_found(folder: Path, call: Call) -> None:
    code, _, err = call("run.yaml", "--set", "epochs=1", "--set", "batch_size=auto")
    assert code == 0, err
    rows = [json.loads(line) for line in (folder / "out" / "log.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] <= 2  # of 180 samples


def test_a_task_of_the_user_s_own_is_called_by_name(call: Call) -> None:
    code, out, err = call(
        "run.yaml",
        "--set",
        "task={name: 'nets:my_task', arguments: {scale: 2.0}}",
        "--set",
        "epochs=1",
        "--json",
    )
    assert code == 0, err
    assert set(json.loads(out)["best"]) == {"loss"}


def test_a_terminated_run_exits_with_the_signal_s_code_and_a_checkpoint(folder: Path) -> None:
    arguments = ["run.yaml", "--profile", "quick_demo", "--set", "epochs=100000"]
    with subprocess.Popen(
        [sys.executable, "-m", "stoker", "train", *arguments],
        cwd=folder,
        env=ONE_THREAD,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("epoch 1/100000")
        process.terminate()
        rest = process.stderr.read()
    assert process.returncode == 128 + signal.SIGTERM, rest
    assert "SIGTERM ended the training" in rest
    assert (folder / "out" / "last.pt").exists()


@pytest.mark.parametrize(
    ("task", "model", "targets", "metric"),
    [
        ("segmentation", {"name": "nets:pixels"}, "mask", "miou"),
        ("regression", {"name": "nets:values"}, "value", "r2"),
    ],
)
def test_the_other_tasks_learn_too(
    call: Call, task: str, model: dict[str, str], targets: str, metric: str
) -> None:
    arguments: dict[str, object] = {"targets": targets, "inputs": "x"}
    if task == "segmentation":
        arguments["num_classes"] = 2
    settings = {
        **yaml.safe_load(RUN),
        "model": model,
        "task": {"name": task, "arguments": arguments},
        "augment": {"roles": {"x": "signal"}, "transforms": [{"signal.GaussianNoise": {"snr_db": [30, 40]}}]},
        "batch_size": 32,
        "epochs": 8,
        "ema": 0.9,
        "monitor": metric,
    }
    Path("other.json").write_text(json.dumps(settings))
    code, out, err = call("other.json", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["history"][-1]["val_loss"] < result["history"][0]["val_loss"]
    assert result["best"][metric] > 0.6


def test_a_dry_run_shows_every_value_and_where_it_is_from(folder: Path, call: Call) -> None:
    code, out, err = call("run.yaml", "--profile", "low_memory", "--set", "seed=3", "--dry-run")
    assert code == 0, err
    lines = {line.split(":")[0]: line for line in out.splitlines()}
    assert lines["accumulate"].split() == ["accumulate:", "4", "#", "profile", "low_memory"]
    assert lines["batch_size"].split() == ["batch_size:", "16", "#", "file"]
    assert lines["seed"].split() == ["seed:", "3", "#", "--set"]
    assert not (folder / "out").exists()
    (folder / "shown.yaml").write_text(out)
    assert load(TrainSettings, folder / "shown.yaml").seed == 3


def test_auto_says_what_it_chose_and_why(call: Call) -> None:
    code, out, err = call("run.yaml", "--profile", "auto", "--dry-run", "--json")
    assert code == 0, err
    shown = json.loads(out)
    decisions = {each["setting"]: each for each in shown["decisions"]}
    assert decisions["data.loader.preload"]["value"] is True
    assert "of data within half of" in decisions["data.loader.preload"]["reason"]
    assert "batch_size" not in decisions  # the file has one
    assert shown["origins"]["batch_size"] == "file"
    if not torch.cuda.is_available():
        assert shown["settings"]["compile"] == "off"
    code, _, err = call("run.yaml", "--profile", "auto", "--dry-run")
    assert "profile auto: data.loader.preload = true (" in err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["epoch=3"], "unknown key 'epoch'; did you mean 'epochs'?"),
        (["batch_size=0"], "'batch_size' must be"),
        (["model.name=net:small"], "model: cannot import 'net' of 'net:small'"),
        (["model.name=nets:smal"], "module 'nets' has no 'smal'"),
        (["model.name=nets:broken", "model.arguments={}"], "no weights here"),
        (["model.name=nets:text", "model.arguments={}"], "must give a torch.nn.Module, got 'not a model'"),
        (["model.arguments={widht: 3}"], "'nets:small' has no argument 'widht'; did you mean 'width'?"),
        (["task.name=clasification"], "did you mean 'classification'?"),
        (["task.arguments={targets: mask}"], "missing a required argument: 'num_classes'"),
        (["optimizer.name=AdmW"], "did you mean 'AdamW'?"),
        (["optimizer.arguments={momentun: 1}", "optimizer.name=sgd"], "did you mean 'momentum'?"),
        (["augment=heart_sound"], "augment: a preset must be a known one, got 'heart_sound'"),
        (["data.train.store=none.stoker"], "none.stoker"),
        (["data.val.split=test"], "data.val.split: there is no split 'test'; there are ['train', 'val']"),
    ],
)
def test_a_mistake_is_named_with_exit_code_2(call: Call, changes: list[str], message: str) -> None:
    code, _, err = call("run.yaml", *(part for change in changes for part in ("--set", change)))
    assert (code, err.count("error:")) == (2, 1), err
    assert message in err


def test_a_missing_file_and_an_unknown_profile_are_wrong_use(folder: Path, call: Call) -> None:
    done = run("nothing.yaml", cwd=folder)
    assert done.returncode == 2
    assert "nothing.yaml: the settings file must exist" in done.stderr
    assert "Traceback" not in done.stderr
    code, _, err = call("run.yaml", "--profile", "fast")
    assert code == 2
    assert "a profile must be a known one or a .yaml file, got 'fast'; there are default, low_memory" in err


def test_a_name_that_is_nothing_says_where_recipes_are(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stoker", "train", "nonsense"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'nonsense' is neither a recipe nor a settings file" in " ".join(done.stderr.split())
