"""Pipelines from files, and what is said of a wrong one."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stoker.augment import LogUniform, Pipeline, register, registered
from stoker.augment._registry import find, full_name
from stoker.augment.signal import AmplitudeScale, TimeShift
from stoker.errors import ConfigError, UsageError


def test_a_file_makes_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(
        "roles: {x: signal}\nseed: 3\ntransforms:\n"
        "  - TimeShift: {shift: 0.1, p: 0.8}\n"
        "  - signal.AmplitudeScale: {factor: {log_uniform: [0.5, 2]}}\n"
        "  - Polarity\n"
        "  - Standardize:\n"
    )
    aug = Pipeline.from_config(tmp_path / "policy.yaml")
    assert [type(transform).__name__ for transform in aug.transforms] == [
        "TimeShift",
        "AmplitudeScale",
        "Polarity",
        "Standardize",
    ]
    scale = aug.transforms[1]
    assert isinstance(scale, AmplitudeScale)
    assert scale.factor == LogUniform(0.5, 2)
    assert aug.seed == 3
    for name, text in (("a.yaml", yaml.safe_dump(aug.to_config())), ("a.json", json.dumps(aug.to_config()))):
        (tmp_path / name).write_text(text)
        assert Pipeline.from_config(str(tmp_path / name)).to_config() == aug.to_config()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transfroms": []}, "unknown key 'transfroms'; did you mean 'transforms'"),
        ({"roles": {"x": "sound"}}, "'roles.x' must be"),
        ({"transforms": ["TimeShfit"]}, "transforms.0: .* got 'TimeShfit'; did you mean 'signal.TimeShift'"),
        ({"transforms": [{"TimeShift": {"shfit": 1}}]}, "transforms.0: .* got 'shfit'; did you mean 'shift'"),
        ({"transforms": [{"TimeShift": {"shift": "far"}}]}, "transforms.0: shift must be a number"),
        ({"transforms": ["Polarity", {"signal.Crop": None}]}, "transforms.1: Crop needs 'length'"),
        ({"transforms": [{"TimeShift": {}, "Polarity": {}}]}, "one name with its arguments"),
        (
            {"transforms": [{"signal.Crop": {"length": "long"}}]},
            "transforms.0: signal.Crop must have arguments of the right",
        ),
        ({"transforms": ["nothing.like.it"]}, "known are .*signal.AmplitudeScale"),
    ],
)
def test_a_wrong_config_is_refused_with_the_place_and_the_nearest(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Pipeline.from_config({"roles": {"x": "signal"}} | changes)


def test_names_are_found_in_full_and_in_short() -> None:
    assert find("TimeShift") is find("signal.TimeShift") is TimeShift
    assert full_name(TimeShift) == "signal.TimeShift"
    assert "signal.TimeShift" in registered()


def test_a_name_of_two_families_must_say_which(monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker.augment import _registry

    monkeypatch.setattr(_registry, "_TRANSFORMS", registered() | {"image.TimeShift": AmplitudeScale})
    with pytest.raises(UsageError, match=r"write signal.TimeShift or image.TimeShift"):
        find("TimeShift")


def test_a_name_of_several_families_is_that_of_the_fields_roles() -> None:
    for role in ("signal", "image", "volume"):
        written = Pipeline.from_config({"roles": {"x": role}, "transforms": ["GaussianNoise"]}).to_config()
        assert list(written["transforms"][0]) == [f"{role}.GaussianNoise"]
    both = {"roles": {"x": "signal", "y": "image"}, "transforms": ["GaussianNoise"]}
    with pytest.raises(ConfigError, match="must say which is meant"):
        Pipeline.from_config(both)


def test_what_is_not_registered_has_no_config() -> None:
    class Louder(AmplitudeScale):
        pass

    with pytest.raises(UsageError, match=r"only a registered transform .* got Louder"):
        Pipeline(Louder(), roles={"x": "signal"}).to_config()


def test_a_name_is_registered_once() -> None:
    stranger = type("TimeShift", (AmplitudeScale,), {"__module__": "elsewhere"})
    with pytest.raises(UsageError, match=r"'signal\.TimeShift' again"):
        register("signal")(stranger)
    with pytest.raises(UsageError, match="must declare neutral"):
        register("signal")(type("Blunt", (AmplitudeScale,), {"neutral": {}}))
    assert "signal.Blunt" not in registered()
