"""``stoker views`` as a user meets it: exit codes, messages, views that a ViewCache finds."""

import json
from pathlib import Path
from typing import Any

import pytest

import stoker
from support.commands import call, run
from support.datasets import Signals, keys

COUNT = 20
MODULE = """
import numpy as np

def double(batch, *, index, epoch):
    return {**batch, "x": batch["x"] * 2 + epoch}

def shift(sample):
    return {**sample, "x": sample["x"] + np.float32(1)}

def broken(batch, *, index, epoch):
    raise ValueError("no such wavelet")

class Scale:
    def __call__(self, batch, *, index, epoch):
        return {**batch, "x": batch["x"] * 3}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    splits = {"train": 0.6, "val": 0.4}
    stoker.pack(Signals(keys(COUNT)), tmp_path / "a.stoker", workers=0, splits=splits)
    return tmp_path


def report(folder: Path, *arguments: str) -> dict[str, Any]:
    done = call("views", "a.stoker", "views", *arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_cache_with_the_same_settings_finds_the_views_ready(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["views", "a.stoker", "views", "--augment", "mine:double", "--copies", "3"]
    done = run(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "3 views of 20 samples for epochs 0 to 4" in done.stdout
    monkeypatch.syspath_prepend(folder)
    import mine  # type: ignore[import-not-found]

    store = stoker.open(folder / "a.stoker")
    with stoker.ViewCache(store, mine.double, folder / "views", copies=3) as views:
        assert views.is_ready(0)
        assert not views.is_ready(1)
        assert views.generation(0).column("x")[2::3] == pytest.approx(store.column("x") * 2 + 2)
    again = call(*arguments, cwd=folder)
    assert "(was there already)" in again.stdout


def test_the_report_tells_which_generation_was_made(folder: Path) -> None:
    options = ["--augment", "mine:double", "--refresh-epochs", "4", "--num-workers", "1"]
    found = report(folder, *options, "--epoch", "9", "--split", "train", "--seed", "5")
    assert (found["generation"], found["first_epoch"], found["last_epoch"]) == (2, 8, 11)
    store = stoker.open(folder / "a.stoker")
    assert found["num_samples"] == len(store.split("train"))
    assert found["copies"] == 2
    assert found["was_ready"] is False
    made = stoker.open(folder / found["path"])
    assert made.content_digest == found["content_digest"]
    assert made.manifest.num_bytes == found["num_bytes"]
    assert report(folder, *options, "--generation", "2", "--split", "train", "--seed", "5")["was_ready"]


def test_classes_and_functions_of_single_samples_are_taken(folder: Path) -> None:
    store = stoker.open(folder / "a.stoker")
    scaled = stoker.open(folder / report(folder, "--augment", "mine:Scale")["path"])
    assert scaled.column("x")[::2] == pytest.approx(store.column("x") * 3)
    shifted = stoker.open(folder / report(folder, "--augment", "mine:shift", "--per-sample")["path"])
    assert shifted.column("x")[::2] == pytest.approx(store.column("x") + 1)


def test_a_pipeline_in_a_file_makes_the_views_that_it_makes_in_a_loader(folder: Path) -> None:
    from stoker.augment import Pipeline

    (folder / "augment.yaml").write_text(
        "roles: {x: signal}\nseed: 3\ntransforms:\n  - GaussianNoise: {snr_db: [5, 20], p: 0.7}\n"
    )
    report(folder, "--augment", "augment.yaml")
    store = stoker.open(folder / "a.stoker")
    pipeline = Pipeline.from_config(folder / "augment.yaml")
    with stoker.ViewCache(store, pipeline, folder / "views") as views:
        assert views.is_ready(0)
        made = views.generation(0)
    for epoch in range(2):
        with stoker.Loader(store, 7, augment=pipeline) as loader:
            loader.set_epoch(epoch)
            for batch in loader:
                for row, number in enumerate(batch["index"].tolist()):
                    assert made[2 * number + epoch]["x"] == pytest.approx(batch["x"][row].numpy(), abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["a.stoker", "v", "--augment", "mine:nothing"], "has no 'nothing'"),
        (["a.stoker", "v", "--augment", "mine"], "module:attribute"),
        (["a.stoker", "v", "--augment", "missing.yaml"], "missing.yaml"),
        (["a.stoker", "v", "--augment", "mine:double", "--copies", "9"], "at most refresh_epochs"),
        (["a.stoker", "v", "--augment", "mine:double", "--split", "test"], "no split 'test'"),
        (["a.stoker", "v", "--augment", "mine:double", "--generation", "-1"], "at least 0, got -1"),
        (
            ["a.stoker", "v", "--augment", "mine:double", "--generation", "1", "--epoch", "1"],
            "exclude each other",
        ),
        (["a.stoker", "v", "--augment", "mine:broken"], "ValueError: no such wavelet"),
        (["nowhere.stoker", "v", "--augment", "mine:double"], "no store at nowhere.stoker"),
        (["a.stoker", "v"], "--augment"),
    ],
)
def test_wrong_use_is_told_with_exit_code_2(folder: Path, arguments: list[str], why: str) -> None:
    done = call("views", *arguments, cwd=folder)
    assert done.returncode == 2, done.stdout
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_help_shows_an_example(folder: Path) -> None:
    done = call("views", "--help", cwd=folder)
    assert done.returncode == 0
    assert "stoker views train.stoker views/ --augment augment.yaml --copies 4" in done.stdout
