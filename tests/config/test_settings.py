import json
import subprocess
import sys

import pytest
from pydantic import Field, ValidationError

import stoker.config
from stoker.config import Settings, resolve


class Loader(Settings):
    batch_size: int = Field(default=8, ge=1)
    shuffle: bool = True


def test_settings_cannot_be_changed() -> None:
    settings = Loader()
    with pytest.raises(ValidationError, match="frozen"):
        settings.batch_size = 4  # type: ignore[misc]


def test_settings_refuse_unknown_names_in_python_too() -> None:
    with pytest.raises(ValidationError, match="batchsize"):
        Loader.model_validate({"batchsize": 4})


def test_a_default_that_breaks_its_own_rule_is_refused() -> None:
    class Wrong(Settings):
        num_workers: int = Field(default=-1, ge=0)

    with pytest.raises(ValidationError, match="num_workers"):
        Wrong()


def test_defining_settings_builds_no_validator_until_they_are_used() -> None:
    class Section(Settings):
        loader: Loader = Field(default_factory=Loader)

    assert not Section.__pydantic_complete__
    assert Section().loader == Loader()
    assert Section.__pydantic_complete__


def test_a_section_given_in_part_takes_the_rest_from_its_class() -> None:
    class Recipe(Settings):
        loader: Loader = Loader(batch_size=256)

    assert resolve(Recipe, {}).loader.batch_size == 256
    assert resolve(Recipe, {"loader": {"shuffle": False}}).loader.batch_size == 8


def test_every_exported_name_exists_and_the_list_is_sorted() -> None:
    names = stoker.config.__all__
    assert names == sorted(names)
    assert all(hasattr(stoker.config, name) for name in names)


def test_importing_the_package_imports_neither_yaml_nor_numerical_libraries() -> None:
    code = "import json, sys, stoker.config; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {"yaml", "numpy", "torch", "h5py"}.isdisjoint(json.loads(out.stdout))
