"""Every Python block of the README and the docs runs; every link leads somewhere; every command exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_blocks_run_in_order(path: Path, tmp_path: Path) -> None:
    """As scripts of their own, which share a folder and, since torch takes seconds to import, a process."""
    names = []
    for number, code in enumerate(blocks(path, "python")):
        names.append(f"block{number}.py")
        (tmp_path / names[-1]).write_text(code)
    if not names:
        return
    run = "import runpy, sys\nfor name in sys.argv[1:]: runpy.run_path(name, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", run, *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_option_that_is_named_exists(path: Path) -> None:
    from typer.main import get_command

    from stoker.cli._main import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    for line in re.findall(
        r"^\s*\$?\s*stoker ((?:[a-z]+) .*?[^\\])$", path.read_text(), re.MULTILINE | re.DOTALL
    ):
        name, *words = line.split()
        assert name in commands, line
        command = commands[name]
        if hasattr(command, "commands"):  # such as `stoker augment preview`
            assert words[0] in command.commands, line
            command = command.commands[words[0]]
        known = {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert {word.split("=")[0] for word in words if word.startswith("--")} <= known, line


def test_settings_in_the_docs_are_valid() -> None:
    import yaml

    from stoker.config import resolve
    from stoker.store._settings import PackSettings

    for text in blocks(ROOT / "docs" / "packing.md", "yaml"):
        resolve(PackSettings, yaml.safe_load(text))


def test_pipelines_in_the_docs_are_valid() -> None:
    import yaml

    from stoker.augment import Pipeline

    found = blocks(ROOT / "docs" / "augmenting.md", "yaml")
    assert found
    for text in found:
        Pipeline.from_config(yaml.safe_load(text))


def test_the_table_of_transforms_is_that_of_the_registry() -> None:
    from stoker.augment import registered
    from stoker.cli._render import transforms_data

    lines = ["| transform | arguments | what it does |", "|---|---|---|"]
    for entry in transforms_data(registered())["transforms"]:
        arguments = ", ".join(
            name if default is None else f"{name}={default}" for name, default in entry["arguments"].items()
        )
        lines.append(f"| `{entry['name']}` | `{arguments}` | {entry['summary']} |")
    text = (ROOT / "docs" / "augmenting.md").read_text()
    found = re.search(r"<!-- transforms -->\n(.*?)\n?<!-- /transforms -->", text, re.DOTALL)
    assert found is not None
    expected = "\n".join(lines)
    assert found[1] == expected, f"docs/augmenting.md must have this table:\n{expected}"


@pytest.mark.parametrize("target", ["setup", "demo", "test", "lint", "bench"])
def test_the_makefile_has_what_the_documents_promise(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
