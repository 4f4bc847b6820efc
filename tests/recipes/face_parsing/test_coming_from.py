"""What the document says is the equivalent of something really is there."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from stoker.cli._main import app
from support.commands import call

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "coming-from-face-parsing.md").read_text()
ROWS = [
    line.split(" | ", 1)[1].rstrip(" |")
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| there")
]


def named(form: str) -> list[str]:
    """What stands between backticks on the right, if it has this form."""
    return sorted({each for row in ROWS for each in re.findall(r"`([^`]+)`", row) if re.match(form, each)})


def test_every_row_names_something_that_is_checked() -> None:
    checked = re.compile(r"`(stoker[ .]|torchrun |--set |tests/|benchmarks/)|\]\(")
    assert len(ROWS) > 40
    assert not [row for row in ROWS if not checked.search(row)]


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


@pytest.mark.parametrize("line", named(r"stoker (?!train)[a-z]+ "))
def test_a_command_has_these_options(line: str) -> None:
    name, *words = line.split()[1:]
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_training_commands_and_settings_are_valid(tmp_path: Path) -> None:
    (tmp_path / "custom.yaml").write_text("seed: 1\n")
    lines = [re.sub(r"^torchrun .* -m ", "", each) for each in named(r"(stoker train|torchrun) ")]
    lines += [f"stoker train face-parsing {each}" for each in named(r"--set ")]
    assert len(lines) > 25
    for line in lines:
        done = call(*line.split()[1:], "--dry-run", cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
