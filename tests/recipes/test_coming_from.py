"""What the "coming from" pages say is the equivalent of something really is there."""

import importlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from stoker.cli._main import app
from support.commands import call

ROOT = Path(__file__).parents[2]
LEAST = {  # rows of each page, and lines that are commands or settings of training
    "heart-sounds": (60, 20),
    "emg-pose": (40, 25),
    "cardiac-ct": (50, 40),
    "face-parsing": (40, 25),
    "printer-tcn": (40, 20),
}
CHECKED = re.compile(r"`(stoker[ .]|torchrun |--set |tests/|benchmarks/|make )|\]\(")


def rows_of(system: str) -> list[str]:
    """The right-hand sides of a page's tables."""
    text = (ROOT / "docs" / f"coming-from-{system}.md").read_text()
    return [
        line.split(" | ", 1)[1].rstrip(" |")
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith("| there")
    ]


def named(form: str, systems: Iterable[str] = LEAST) -> list[str]:
    """What stands between backticks on the right, if it has this form."""
    found = {each for one in systems for row in rows_of(one) for each in re.findall(r"`([^`]+)`", row)}
    return sorted(each for each in found if re.match(form, each))


def training_lines(system: str) -> list[str]:
    """The commands and settings of training, as commands."""
    commands = [
        re.sub(r"^torchrun .* -m ", "", each) for each in named(r"(stoker train|torchrun) ", [system])
    ]
    return commands + [f"stoker train {system} {each}" for each in named(r"--set ", [system])]


@pytest.mark.parametrize("system", LEAST)
def test_every_row_names_something_that_is_checked(system: str) -> None:
    rows = rows_of(system)
    least_rows, least_lines = LEAST[system]
    assert len(rows) > least_rows
    assert len(training_lines(system)) > least_lines
    assert not [row for row in rows if not CHECKED.search(row)]


@pytest.mark.parametrize("name", named(r"stoker\."))
def test_a_name_can_be_imported(name: str) -> None:
    found: Any = importlib.import_module("stoker")
    parts = name.split(".")
    for number, part in enumerate(parts[1:], 2):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(".".join(parts[:number]))


@pytest.mark.parametrize("path", named(r"(tests|benchmarks)/"))
def test_a_file_exists(path: str) -> None:
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("line", named(r"make "))
def test_a_target_exists(line: str) -> None:
    assert f"\n{line.split()[1]}: " in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("line", named(r"stoker (?!train)[a-z]+"))
def test_a_command_has_these_options(line: str) -> None:
    name, *words = line.split()[1:]
    own = words[: words.index("train.py")] if "train.py" in words else words
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in own if word.startswith("--")} <= known


@pytest.mark.parametrize("system", LEAST)
def test_training_commands_and_settings_are_valid(system: str, tmp_path: Path) -> None:
    for name in ("config.json", "custom.yaml", "pretrain.yaml", "run.yaml"):
        (tmp_path / name).write_text('{"seed": 1}')
    for line in training_lines(system):
        done = call(*line.split()[1:], "--dry-run", cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)


def test_the_configuration_on_the_page_of_cardiac_ct_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cardiac-ct.md").read_text()
    (found,) = re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "config.json").write_text(found)
    done = call("train", "cardiac-ct", "--config", "config.json", "--dry-run", "--json", cwd=tmp_path)
    settings = json.loads(done.stdout)
    assert settings["volume"]["size"] == [224, 224, 160]
    assert settings["training"]["lr"] == 1e-4
