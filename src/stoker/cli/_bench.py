"""``stoker bench``: rerun the benchmarks that the documentation's figures come from."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import stoker
from stoker.errors import UsageError

_SCRIPTS = {
    "packing": ("packing.py",),
    "loading": ("loading.py",),
    "copying": ("copying.py",),
    "augmenting": ("augmenting.py",),
    "training": ("training.py",),
    "doctor": ("doctor_overhead.py", "doctor_prediction.py"),
    "systems": ("systems.py",),
    "remote": ("remote.py",),
    "planning": ("planning.py",),
}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("bench", context_settings={"ignore_unknown_options": True})(bench)


def bench(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help=f"{', '.join(_SCRIPTS)}, or all.")],
    options: Annotated[
        list[str] | None, typer.Argument(help="The benchmark's own: --quick, --only …")
    ] = None,
) -> None:
    """Measure again, beside the peers: a table, and JSON, Markdown and a picture in benchmarks/results.

    The benchmarks are in the repository, not in the installed package. Peers that are not installed are
    said to be missing; `stoker bench loading --install` makes their environments.

    [bold]Examples[/]

      stoker bench packing --quick

      stoker bench systems heart_sounds
    """
    if subject != "all" and subject not in _SCRIPTS:
        raise UsageError(f"no benchmark is called {subject!r}; there are {', '.join(_SCRIPTS)}, and all")
    folder = _folder()
    codes = [
        subprocess.run([sys.executable, folder / script, *(options or [])], check=False).returncode  # noqa: S603
        for script in _chosen(subject)
    ]
    raise typer.Exit(max(codes))


def _chosen(subject: str) -> list[str]:
    subjects = _SCRIPTS if subject == "all" else [subject]
    return [script for name in subjects for script in _SCRIPTS[name]]


def _folder() -> Path:
    """Where the benchmarks are: beside the sources, or in the present folder."""
    for root in (Path(stoker.__file__).parents[2], Path.cwd()):
        if (root / "benchmarks" / "measuring.py").exists():
            return root / "benchmarks"
    raise UsageError("the benchmarks are in Stoker's repository: run this from a clone of it")
