"""Data as settings name it: windows over a store or over files, samples drawn by class or weight."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

import stoker
from stoker.config import TrainSettings, resolve
from stoker.errors import ConfigError
from stoker.loader import Windows
from stoker.train import assembled, find_facts
from stoker.train._parts import draw_weights, opened_parts

NETS = """
from torch import nn

def pointwise():
    return nn.Conv1d(2, 1, 1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sessions [2, T] of one user of four and three of another, as a store and as files."""
    rng = np.random.default_rng(0)
    sessions = []
    (tmp_path / "files").mkdir()
    for number in range(8):
        x = rng.standard_normal((2, 100 + 10 * number)).astype(np.float32)
        if number == 0:
            x[:, :60] = 0
        user = "anna" if number % 4 == 0 else "bert"
        sessions.append({"x": x, "y": 2 * x[:1] + 1, "user": user, "weight": float(number > 5)})
        with h5py.File(tmp_path / "files" / f"{number}.h5", "w") as file:
            group = file.create_group("recording")
            group.attrs["user"] = user
            group["x"], group["y"] = x, 2 * x[:1] + 1
    stoker.pack(sessions, tmp_path / "sessions.stoker", workers=0, splits={"train": 0.75, "val": 0.25})
    (tmp_path / "pointwise.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def settings(data: dict[str, Any], **more: Any) -> TrainSettings:
    given = {
        "data": data,
        "model": {"name": "pointwise:pointwise"},
        "task": {"name": "regression"},
        "optimizer": {"name": "sgd", "lr": 0.2},
        "compile": "off",
        "device": "cpu",
        "batch_size": 8,
        "epochs": 4,
        **more,
    }
    return resolve(TrainSettings, given)


STORED = {"train": {"store": "sessions.stoker", "split": "train"}, "val": {"store": "sessions.stoker"}}


@pytest.mark.parametrize(
    ("parts", "windows"),
    [
        (STORED, {"length": 20, "stride": 5, "jitter": 3}),
        (
            {"train": {"files": "files/*.h5"}, "val": {"files": ["files/1.h5"]}},
            {"length": 20, "time_axis": 1},
        ),
    ],
)
def test_a_run_learns_from_windows(folder: Path, parts: dict[str, Any], windows: dict[str, Any]) -> None:
    data = {**parts, "windows": windows, "fields": ["x", "y"]}
    with assembled(settings(data, checkpoint_dir=str(folder / "run")), progress=False) as run:
        assert {tuple(batch["x"].shape[1:]) for batch in run.train} == {(2, 20)}
        assert run.fit().best["r2"] > 0.99  # type: ignore[operator]
    metrics = json.loads((folder / "run" / "metrics.json").read_text())
    assert metrics["best"]["mse"] < 0.05
    facts = find_facts(settings(data))
    assert facts.windows
    assert facts.data_bytes > 8 * 100 * 3 * 4


@pytest.mark.usefixtures("folder")
def test_windows_are_cut_as_the_settings_say() -> None:
    data = {
        **STORED,
        "fields": ["x"],
        "windows": {"length": 20, "stride": 5, "jitter": 3, "skip": "all_zero:x"},
    }
    with opened_parts(settings(data).data) as parts:
        train, val = parts["train"].source, parts["val"].source
        assert isinstance(train, Windows)
        assert isinstance(val, Windows)
        whole = stoker.open("sessions.stoker")
        lengths = [x.shape[1] - 60 * (not x[:, 0].any()) for x in whole.column("x")]
        assert len(val) == sum((length - 20) // 5 + 1 for length in lengths)
        assert set(val.fields) == {"x"}
        numbers = np.arange(len(train))
        moved, still = ({"x": np.empty((len(part), 2, 20), np.float32)} for part in (train, val))
        train.read_into(numbers, moved, seed=0, epoch=0)
        assert not all(np.array_equal(moved["x"][i], train[i]["x"]) for i in range(len(train)))
        val.read_into(np.arange(len(val)), still, seed=0, epoch=0)
        assert all(np.array_equal(still["x"][i], val[i]["x"]) for i in range(len(val)))  # no jitter


@pytest.mark.usefixtures("folder")
def test_ragged_fields_are_padded_as_the_settings_say() -> None:
    data = {**STORED, "fields": ["x", "y"], "loader": {"pad_values": {"y": -7}}}
    num_padded = 0
    with assembled(settings(data), progress=False) as run:
        for batch in run.train:
            for name, padding in (("x", 0), ("y", -7)):
                for row, length in zip(batch[name], batch[f"{name}_length"].tolist(), strict=True):
                    assert (row[:, length:] == padding).all()
                    assert (row[:, :length] != padding).any()
                    num_padded += length < row.shape[-1]
    assert num_padded > 2


@pytest.mark.parametrize("source", ["samples", "windows of a store", "windows of files"])
@pytest.mark.usefixtures("folder")
def test_classes_are_drawn_equally_often(source: str) -> None:
    data: dict[str, Any] = {"train": {"store": "sessions.stoker"}, "loader": {"balance": "user"}}
    if source != "samples":
        data["windows"] = {"length": 10, "time_axis": 1}
    if source == "windows of files":
        data["train"] = {"files": "files"}
    with opened_parts(settings(data).data) as parts:
        part = parts["train"]
        users = _users(part.source)
        weights = part.weights
    assert weights is not None
    assert weights[users == "anna"].sum() == pytest.approx(weights[users == "bert"].sum())


def _users(source: Any) -> Any:
    if not isinstance(source, Windows):
        return np.array([sample["user"] for sample in source])
    return np.array([source.attributes(source.session(number)[0])["user"] for number in range(len(source))])


@pytest.mark.usefixtures("folder")
def test_samples_are_drawn_by_a_field_and_validation_data_are_not() -> None:
    data = {**STORED, "train": STORED["val"], "fields": ["x", "weight"], "loader": {"weights": "weight"}}
    with assembled(settings(data, task={"name": "regression", "arguments": {"targets": "weight"}})) as run:
        assert run.val is not None
        drawn = [float(weight) for batch in run.train for weight in batch["weight"]]
        seen = [float(weight) for batch in run.val for weight in batch["weight"]]
    assert drawn == [1.0] * 8  # those of weight 0 never
    assert sorted(seen) == [0.0] * 6 + [1.0] * 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("loader: {balance: users}", "data.loader.balance: .*'users' is none such; did you mean 'user'"),
        (
            "loader: {balance: x}",
            "data.loader.balance: a field must have one value a sample, 'x' is none such",
        ),
        ("loader: {weights: user}", "data.loader.weights: weights must be numbers, 'user' is"),
        ("windows: {length: 5000}", "data.windows: no window fits"),
        ("windows: {length: 5, skip: 'all_zero:z'}", "data.windows: there is no field 'z'"),
        ("windows: {length: 5, skip: zero}", "data.windows: "),
        (
            "{windows: {length: 5}, loader: {balance: x}}",
            "data.loader.balance, session '000000000': a field must have",
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_setting_that_does_not_fit_the_data_is_named(data: str, message: str) -> None:
    given = {"train": {"store": "sessions.stoker"}, **yaml.safe_load(data)}
    with pytest.raises(ConfigError, match=message), opened_parts(settings(given).data):
        pass


@pytest.mark.usefixtures("folder")
def test_what_windows_do_without_is_said() -> None:
    data = {**STORED, "windows": {"length": 5}, "loader": {"preload": True, "cache": "auto"}}
    with (
        pytest.warns(UserWarning, match="data.loader.cache and preload are for whole samples") as said,
        assembled(settings(data), progress=False),
    ):
        pass
    assert len(said) == 1


@pytest.mark.usefixtures("folder")
def test_without_either_every_sample_comes_once() -> None:
    given = settings({"train": {"store": "sessions.stoker"}})
    assert draw_weights(stoker.open("sessions.stoker"), given.data.loader) is None
