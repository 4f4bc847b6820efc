"""``stoker demo``: the main job on built-in data."""

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stoker.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("demo")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the data and the store.")] = Path("stoker-demo"),
) -> None:
    """Make a small set of synthetic heart sounds, pack it, verify it, show its statistics."""
    import stoker
    from stoker.cli import _render
    from stoker.recipes.heart_sounds import write_recordings

    console = _render.console()
    recordings, target = out / "recordings", out / "recordings.stoker"
    _clear(out)

    count = write_recordings(recordings, num_per_class=100)
    console.print(f"wrote {count} synthetic heart sounds to {recordings}\n", highlight=False)

    _say(
        console,
        f"stoker pack {recordings} {target} --labels folder --split train=0.8,val=0.2 --stratify y",
    )
    from stoker.store.sources import FolderSource

    store = stoker.pack(
        FolderSource(recordings, labels="folder"),
        target,
        splits={"train": 0.8, "val": 0.2},
        stratify="y",
    )
    _render.info(console, store)

    _say(console, f"stoker verify {target}")
    report = store.verify()
    _render.verified(console, target, report)

    _say(console, f"stoker stats {target}")
    _render.stats(console, store)
    raise typer.Exit(0 if report.ok else 1)


def _clear(out: Path) -> None:
    """Make the folder ready; whatever a demo did not put there is left alone."""
    marker = out / ".stoker-demo"
    if out.exists() and not marker.exists():
        raise UsageError(f"{out} exists already and is not of a demo; choose another folder with --out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    marker.touch()


def _say(console: Console, command: str) -> None:
    console.print(f"\n[bold]$ {command}[/]", highlight=False)
