"""``stoker augment`` as a user meets it: exit codes, messages, a picture that opens."""

import importlib.util
import json
import wave
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import stoker
from stoker.augment import Pipeline, registered
from support.commands import call, run

CONFIG = """
roles: {x: signal}
seed: 3
transforms:
  - TimeShift: {shift: 0.2}
  - signal.GaussianNoise: {snr_db: [5, 10], p: 0.5}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of unequal length, a store of them, images with masks, and pipelines for both."""
    root = tmp_path_factory.mktemp("augment")
    rng = np.random.default_rng(0)
    for i in range(6):
        path = root / "sounds" / "ab"[i % 2] / f"{i}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 1000, 0, "NONE", ""))
            file.writeframes(rng.integers(-9999, 9999, 600 + 10 * i).astype("<i2").tobytes())
    samples = [
        {"x": rng.random((3, 24, 32), np.float32), "m": rng.integers(0, 4, (24, 32))} for _ in range(5)
    ]
    stoker.pack(samples, root / "images.stoker", workers=0)
    stoker.pack([{"flat": rng.random(50)} for _ in range(3)], root / "flat.stoker", workers=0)
    (root / "augment.yaml").write_text(CONFIG)
    (root / "wrong.yaml").write_text("roles: {x: signal}\ntransforms: [TimeShft]\n")
    return root


def test_a_picture_of_recordings_is_drawn(folder: Path) -> None:
    done = run(
        *("augment", "preview", "augment.yaml", "sounds", "--out", "grid.png"),
        *("--num-samples", "2", "--num-views", "2", "--epoch", "1", "--labels", "folder"),
        cwd=folder,
        options=["-W", "error"],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "grid.png: 2 samples, 2 views of each\n"
    with Image.open(folder / "grid.png") as picture:
        assert picture.width > 1000
        assert picture.height > 500


def test_roles_and_seed_can_be_replaced_and_a_picture_is_repeatable(folder: Path) -> None:
    config = {"roles": {"sound": "signal"}, "transforms": [{"signal.GaussianNoise": {"snr_db": 5}}]}
    (folder / "other.json").write_text(json.dumps(config))
    options = ["--role", "x=signal", "--num-samples", "1", "--num-views", "1"]
    pictures = []
    for number, seed in enumerate(["4", "4", "5"]):
        out = f"role{number}.png"
        done = call(
            "augment", "preview", "other.json", "sounds", "--out", out, *options, "--seed", seed, cwd=folder
        )
        assert done.returncode == 0, done.stderr
        pictures.append((folder / out).read_bytes())
    assert pictures[0] == pictures[1]
    assert pictures[0] != pictures[2]


def test_show_prints_a_config_that_makes_the_same_pipeline(folder: Path) -> None:
    for config in ("augment.yaml", "heart_sounds"):
        done = call("augment", "show", config, cwd=folder)
        assert done.returncode == 0, done.stderr
        shown = yaml.safe_load(done.stdout)
        assert Pipeline.from_config(shown).to_config() == shown


def test_list_names_every_transform(folder: Path) -> None:
    done = call("augment", "list", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    entries = {entry["name"]: entry for entry in json.loads(done.stdout)["transforms"]}
    assert entries.keys() == registered().keys()
    shift = entries["signal.TimeShift"]
    assert shift["family"] == "signal"
    assert shift["arguments"]["shift"] == "0.1"
    assert entries["signal.LowPass"]["arguments"]["cutoff"] is None
    assert all(entry["summary"].endswith(".") for entry in entries.values())
    table = call("augment", "list", cwd=folder)
    assert "signal.TimeShift" in table.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["preview", "heart_sond", "sounds", "--out", "a.png"], "did you mean 'heart_sounds'?"),
        (["preview", "agment.yaml", "sounds", "--out", "a.png"], "did you mean 'augment.yaml'?"),
        (["preview", "wrong.yaml", "sounds", "--out", "a.png"], "did you mean 'signal.TimeShift'?"),
        (["preview", "heart_sounds", "nowhere", "--out", "a.png"], "no file or folder 'nowhere'"),
        (["preview", "heart_sounds", "nowhere.stoker", "--out", "a.png"], "no store at nowhere.stoker"),
        (["preview", "heart_sounds", "flat.stoker", "--out", "a.png"], "got no 'x' among 'flat'"),
        (["preview", "heart_sounds", "images.stoker", "--out", "a.png"], "must be [B, C, T]"),
        (["preview", "heart_sounds", "sounds", "--out", "a.png", "--role", "x"], "FIELD=ROLE"),
        (["preview", "heart_sounds", "sounds", "--out", "a.png", "--role", "x=sgnal"], "got 'sgnal'"),
        (["preview", "heart_sounds", "sounds", "--out", "a.png", "--role", "x=mask"], "role signal"),
        (
            ["preview", "heart_sounds", "flat.stoker", "--out", "a.png", "--labels", "folder"],
            "leave them out",
        ),
        (["preview", "heart_sounds", "sounds", "--out", "nowhere/a.png"], "make nowhere first"),
        (["preview", "heart_sounds", "sounds", "--out", "a.txt"], "must end in .png"),
        (["preview", "heart_sounds", "sounds", "--out", "/proc/a.png"], "must be a writable file"),
        (["preview", "heart_sounds", "sounds"], "--out"),
        (["preview", "heart_sounds", "sounds", "--out", "a.png", "--num-views", "0"], "--num-views"),
        (["show", "heart"], "must be a .yaml or .json file or a preset"),
    ],
)
def test_wrong_use_is_told_with_exit_code_2(folder: Path, arguments: list[str], why: str) -> None:
    done = call("augment", *arguments, cwd=folder)
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "a.png").exists()


def test_without_matplotlib_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *a: None if name == "matplotlib" else found(name, *a)
    )
    done = call("augment", "preview", "augment.yaml", "sounds", "--out", "a.png", cwd=folder)
    assert done.returncode == 2
    assert "pip install 'stoker[plot]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_shows_an_example(folder: Path) -> None:
    done = call("augment", "preview", "--help", cwd=folder)
    assert done.returncode == 0
    assert "stoker augment preview augment.yaml train.stoker --out grid.png --epoch 3" in done.stdout
