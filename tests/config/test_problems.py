from pathlib import Path
from typing import Annotated, Literal, Self

import pytest
from pydantic import Field, field_validator, model_validator

from stoker.config import Settings, load, resolve
from stoker.errors import ConfigError


class Loader(Settings):
    batch_size: int = Field(default=8, ge=1)
    shuffle: bool = True


class Filter(Settings):
    kind: Literal["filter"] = "filter"
    low_hz: float = 20.0
    high_hz: float = 400.0

    @model_validator(mode="after")
    def check_band(self) -> Self:
        if self.low_hz >= self.high_hz:
            raise ValueError("low_hz must be below high_hz; swap them")
        return self


class Noise(Settings):
    kind: Literal["noise"] = "noise"
    decibels: float = -20.0


class Task(Settings):
    num_classes: int


class Run(Settings):
    name: str = "run"
    tag: str = Field(default="ab", min_length=2)
    num_steps: int | Literal["auto"] = "auto"
    even: int = 2
    sizes: list[int] = Field(default_factory=list)
    pair: tuple[int, Noise] | None = None
    roles: dict[Literal["x", "y"], str] = Field(default_factory=dict)
    loader: Loader = Field(default_factory=Loader)
    loaders: dict[str, Loader] = Field(default_factory=dict)
    stages: tuple[Loader, ...] = ()
    augment: tuple[Annotated[Filter | Noise, Field(discriminator="kind")], ...] = ()
    either: Filter | Noise | None = None
    task: Task | None = None

    @field_validator("even")
    @classmethod
    def check_even(cls, even: int) -> int:
        if even == 13:
            raise ValueError("even must not be unlucky")
        if even % 2:
            raise ValueError(f"even must be divisible by 2, got {even}")
        return even


def refusal(data: dict[str, object], *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(Run, data, overrides=overrides)
    message = str(caught.value)
    assert "pydantic" not in message
    return message


def test_an_unknown_key_in_a_file_names_the_file_the_path_and_the_nearest_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text("loader:\n  batchsize: 4\n")
    with pytest.raises(ConfigError) as caught:
        load(Run, "train.yaml")
    assert str(caught.value) == (
        "train.yaml: unknown key 'loader.batchsize'; did you mean 'loader.batch_size'? "
        "Known keys there: batch_size, shuffle"
    )


@pytest.mark.parametrize(
    ("data", "path", "known"),
    [
        ({"loader": {"zzz": 1}}, "loader.zzz", "batch_size, shuffle"),
        ({"loaders": {"val": {"zzz": 1}}}, "loaders.val.zzz", "batch_size, shuffle"),
        ({"stages": [{}, {"zzz": 1}]}, "stages.1.zzz", "batch_size, shuffle"),
        ({"pair": [1, {"zzz": 1}]}, "pair.1.zzz", "kind, decibels"),
        ({"task": {"num_classes": 1, "zzz": 1}}, "task.zzz", "num_classes"),
        ({"augment": [{"kind": "noise", "zzz": 1}]}, "augment.0.zzz", "kind, decibels"),
        ({"augment": [{"kind": "filter", "zzz": 1}]}, "augment.0.zzz", "kind, low_hz, high_hz"),
        ({"loader": {3: 1}}, "loader.3", "batch_size, shuffle"),
    ],
)
def test_an_unknown_key_is_found_at_any_depth(data: dict[str, object], path: str, known: str) -> None:
    message = f"settings: unknown key '{path}'; remove it. Known keys there: {known}"
    assert refusal(data) == message


def test_a_key_with_dots_in_a_file_is_told_from_a_path() -> None:
    message = refusal({"loader.batch_size": 4})
    assert message.startswith("settings: unknown key 'loader.batch_size'; dots are for --set only")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"loader": {"batch_size": 0}},
            "'loader.batch_size' must be greater than or equal to 1, got 0",
        ),
        (
            {"sizes": [1, "x"]},
            "'sizes.1' must be a valid integer, unable to parse string as an integer, got 'x'",
        ),
        ({"name": 5}, "'name' must be a valid string, got 5; put it in quotes to make it text"),
        ({"tag": "a"}, "'tag' is refused: String must have at least 2 characters, got 'a'"),
        (
            {"num_steps": "many"},
            (
                "'num_steps' must be a valid integer, unable to parse string as an integer "
                "or must be 'auto', got 'many'"
            ),
        ),
        ({"even": 3}, "'even' is refused: even must be divisible by 2, got 3"),
        ({"even": 13}, "'even' is refused: even must not be unlucky, got 13"),
        (
            {"loader": None},
            (
                "'loader' must be a section (a mapping of keys to values), got None; "
                "leave the key out, or write {}, for its defaults"
            ),
        ),
        ({"either": 5}, "'either' must be a section (a mapping of keys to values), got 5"),
        ({"roles": {"z": "signal"}}, "the key 'roles.z' must be 'x' or 'y'; rename it"),
        ({"task": {}}, "'task.num_classes' is required, got nothing; add it"),
        ({"augment": [{}]}, "'augment.0.kind' is required, got nothing; add it"),
        (
            {"augment": [{"kind": "mix"}]},
            "'augment.0.kind' must be one of 'filter', 'noise', got 'mix'",
        ),
        (
            {"augment": [{"kind": "filter", "low_hz": 500}]},
            "'augment.0' is refused: low_hz must be below high_hz; swap them",
        ),
    ],
)
def test_a_wrong_value_is_told_by_path_rule_and_value(data: dict[str, object], message: str) -> None:
    assert refusal(data) == f"settings: {message}"


def test_the_rule_of_the_settings_as_a_whole_stands_alone() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(Filter, {"low_hz": 500})
    assert str(caught.value) == "settings: low_hz must be below high_hz; swap them"


def test_a_long_value_is_cut() -> None:
    assert len(refusal({"sizes": "x" * 10_000})) < 200


def test_several_problems_are_all_listed_with_their_origin(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text("nam: a\nloader: {batch_size: 0}\n")
    with pytest.raises(ConfigError) as caught:
        load(Run, path, overrides=["loader.shuffle=7", "task.num_clases=3"])
    first, *lines = str(caught.value).splitlines()
    assert first == "5 settings must be corrected:"
    starts = sorted(line.split("; ")[0].split(", ")[0] for line in lines)
    assert starts == sorted(
        [
            f"  {path}: unknown key 'nam'",
            f"  {path}: 'loader.batch_size' must be greater than or equal to 1",
            "  --set loader.shuffle=7: 'loader.shuffle' must be a valid boolean",
            f"  {path}: 'task.num_classes' is required",
            "  --set task.num_clases=3: unknown key 'task.num_clases'",
        ]
    )


def test_an_unknown_section_made_by_an_override_is_not_blamed_on_the_file() -> None:
    message = refusal({}, "loder.batch_size=3")
    assert message.startswith("--set loder.batch_size=3: unknown key 'loder'; did you mean 'loader")


def test_a_rule_on_a_section_that_file_and_override_share_names_both() -> None:
    message = refusal({"either": {"kind": "filter", "high_hz": 10}}, "either.high_hz=5")
    assert message.splitlines()[1].startswith("  settings with --set either.high_hz=5: 'either'")


def test_the_last_override_of_a_value_is_blamed() -> None:
    assert refusal({}, "name=ok", "name=5", "tag=xx").startswith("--set name=5: ")


def test_the_error_can_be_caught_as_a_value_error_and_hides_the_inner_one() -> None:
    with pytest.raises(ValueError, match="even") as caught:
        resolve(Run, {"even": 3})
    assert caught.value.__suppress_context__
