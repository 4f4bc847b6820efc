import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, computed_field

from stoker.config import Settings, dump, load


class Precision(StrEnum):
    FULL = "float32"
    HALF = "bfloat16"


class Adam(Settings):
    kind: Literal["adam"] = "adam"
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)


class Sgd(Settings):
    kind: Literal["sgd"] = "sgd"
    momentum: float = 0.0


class Run(Settings):
    name: str = ""
    num_steps: int | Literal["all"] = "all"
    precision: Precision = Precision.FULL
    folder: Path | None = None
    optimizer: Annotated[Adam | Sgd, Field(discriminator="kind")] = Field(default_factory=Adam)
    roles: dict[str, str] = Field(default_factory=dict)
    weights: dict[int, float] = Field(default_factory=dict)
    stages: tuple[Sgd, ...] = ()
    step_factor: float = Field(default=1.0, alias="lambda")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def title(self) -> str:
        return self.name.upper()


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.floats(allow_nan=False)
SGD = st.builds(Sgd, momentum=NUMBERS)
RUNS = st.builds(
    Run,
    name=TEXT | st.sampled_from(["no", "1e-3", "null", "2024-01-01", "10"]),
    num_steps=st.integers() | st.just("all"),
    precision=st.sampled_from(Precision),
    folder=st.none() | st.sampled_from([Path("a/b"), Path("/1"), Path("10")]),
    optimizer=SGD | st.builds(Adam, learning_rate=NUMBERS, betas=st.tuples(NUMBERS, NUMBERS)),
    roles=st.dictionaries(TEXT, TEXT, max_size=2),
    weights=st.dictionaries(st.integers(), NUMBERS, max_size=2),
    stages=st.lists(SGD, max_size=2).map(tuple),
    **{"lambda": NUMBERS},
)


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
@settings(deadline=None, max_examples=40)
@given(run=RUNS)
def test_what_is_dumped_loads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, name: str, run: Run
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    text = dump(run, path)
    assert load(Run, path) == run
    assert path.read_bytes().decode() == text


def test_the_defaults_are_written_too_and_in_order() -> None:
    assert list(yaml.safe_load(dump(Run()))) == [
        "name",
        "num_steps",
        "precision",
        "folder",
        "optimizer",
        "roles",
        "weights",
        "stages",
        "lambda",
    ]


def test_without_a_path_the_text_is_yaml_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dump(Sgd(momentum=1e-5)) == "kind: sgd\nmomentum: 1.0e-05\n"
    assert list(tmp_path.iterdir()) == []


def test_json_is_json(tmp_path: Path) -> None:
    text = dump(Sgd(momentum=0.5), tmp_path / "a.json")
    assert json.loads(text) == {"kind": "sgd", "momentum": 0.5}
