"""``stoker bench`` finds the benchmarks and runs them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoker.cli import _bench
from stoker.cli._main import app
from stoker.errors import UsageError


def test_what_there_is_not_is_said_with_what_there_is() -> None:
    result = CliRunner().invoke(app, ["bench", "speed"])
    assert isinstance(result.exception, UsageError)
    assert "there are packing, loading" in str(result.exception)


def test_a_benchmark_gets_its_own_options_and_its_exit_code_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packing.py").write_text(
        "import pathlib, sys\n"
        "pathlib.Path(__file__).with_name('called').write_text(' '.join(sys.argv[1:]))\n"
        "sys.exit(3)\n"
    )
    monkeypatch.setattr(_bench, "_folder", lambda: tmp_path)
    result = CliRunner().invoke(app, ["bench", "packing", "--quick"])
    assert result.exit_code == 3
    assert (tmp_path / "called").read_text() == "--quick"


def test_every_benchmark_that_is_named_exists() -> None:
    folder = _bench._folder()
    assert all((folder / script).exists() for script in _bench._chosen("all"))


def test_without_the_repository_it_says_where_the_benchmarks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.__file__", str(tmp_path / "a" / "b" / "c.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="clone"):
        _bench._folder()
