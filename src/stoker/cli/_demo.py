"""``stoker demo``: a typical training script on built-in data, diagnosed, cured, and measured again."""

import importlib.util
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from stoker.errors import MissingExtraError, StokerError, UsageError

_SCRIPTS = Path(__file__).with_name("demo")
_LOSSES = re.compile(r"first ten steps ([\d.]+), of the last ten ([\d.]+)")
_WARMUP = 10  # steps that are run but not measured


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("demo")(demo)


@dataclass(frozen=True)
class Measured:
    """What one way of training came to."""

    samples_per_s: float
    waiting: float  # share of a step
    cores: float
    peak_bytes: int
    first_loss: float
    last_loss: float

    @property
    def learns(self) -> bool:
        """True where the loss fell clearly: speed that breaks training is no cure."""
        return self.last_loss < 0.8 * self.first_loss


def demo(
    out: Annotated[Path, typer.Option(help="Folder for data, store, scripts and report.")] = Path(
        "stoker-demo"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer recordings and steps: two thirds of the time.")
    ] = False,
) -> None:
    """Find out why a typical training script starves, feed it, and show what that brings.

    Writes heart sounds as wav files and the scripts, short enough to be read. Without a GPU the steps run
    on an emulated accelerator: a network that learns, and waits as long as a larger one would compute.
    """
    from stoker.cli import _render
    from stoker.recipes.heart_sounds import write_recordings

    for library in ("scipy", "soundfile"):
        if importlib.util.find_spec(library) is None:
            raise MissingExtraError("the demo", extra="audio", library=library)
    console = _render.console()
    _clear(out)
    for script in ("network.py", "starving.py", "pack.py", "fed.py"):
        shutil.copy(_SCRIPTS / script, out)
    count = write_recordings(out / "recordings", num_per_class=60 if quick else 200)
    console.print(f"wrote {count} synthetic heart sounds to {out / 'recordings'}", highlight=False)

    steps = 40 if quick else 64
    examined = ["--steps", "20", "--warmup", "4"] if quick else ["--steps", "40", "--warmup", "6"]
    starving = [str(out / "starving.py"), str(out / "recordings")]
    fed = [str(out / "fed.py"), str(out / "recordings.stoker")]
    _run(console, ["stoker", "doctor", *examined, "--out", str(out / "report"), *starving])
    _run(console, ["python", str(out / "pack.py"), str(out / "recordings"), fed[1]])
    console.print(f"\nMeasuring {steps} steps of each, in a process of its own …", highlight=False)
    ways = {
        "starving.py": starving,
        "with 2 workers": [*starving, "--num-workers", "2"],
        "fed.py": fed,
    }
    found = {name: _measure([*way, "--steps", str(steps)]) for name, way in ways.items()}
    _compare(console, found, is_emulated=not _has_gpu())
    _point_on(console, out)
    raise typer.Exit(0 if all(each.learns for each in found.values()) else 1)


def _run(console: Console, command: list[str]) -> None:
    """Show a command and run it, by this very Python."""
    console.print(f"\n[bold]$ {' '.join(command)}[/]", highlight=False)
    console.file.flush()
    program = [sys.executable, *(["-m", "stoker"] if command[0] == "stoker" else [])]
    done = subprocess.run([*program, *command[1:]], check=False)  # noqa: S603 - our own interpreter
    if done.returncode:
        raise StokerError(f"{' '.join(command)} ended with exit code {done.returncode}")


def _measure(target: list[str]) -> Measured:
    from stoker.cli._measured import Request, measure
    from stoker.doctor import diagnose

    with tempfile.TemporaryFile("w+") as printed:
        record = measure(Request(target, False, 1, _WARMUP, full=True), printed=printed)
        printed.seek(0)
        losses = _LOSSES.search(printed.read())
    found = diagnose(record)
    if losses is None or not found.samples_per_s:
        raise StokerError(f"{target[0]} did not train: {record.error or found.sentence}")
    steps = record.in_phase("normal")
    moments = [m for m in record.moments if steps[0].begin_s <= m.time_s <= steps[-1].end_s] or record.moments
    return Measured(
        samples_per_s=found.samples_per_s,
        waiting=found.starved_fraction or 0.0,
        cores=statistics.fmean(moment.process_cpu for moment in moments),
        peak_bytes=max(moment.memory_bytes for moment in moments),
        first_loss=float(losses[1]),
        last_loss=float(losses[2]),
    )


def _compare(console: Console, found: dict[str, Measured], *, is_emulated: bool) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("on an EMULATED accelerator" if is_emulated else "on the GPU")
    for name in found:
        table.add_column(name, justify="right")
    ways = list(found.values())
    table.add_row("samples a second", *(f"{way.samples_per_s:,.0f}" for way in ways))
    table.add_row("accelerator waits", *(f"{way.waiting:.0%}" for way in ways))
    table.add_row("cores in use", *(f"{way.cores:.1f}" for way in ways))
    table.add_row("peak memory", *(f"{way.peak_bytes / 1e6:,.0f} MB" for way in ways))
    table.add_row("loss", *(f"{way.first_loss:.2f} → {way.last_loss:.2f}" for way in ways))
    console.print()
    console.print(table)
    first, workers, fed = ways
    console.print(
        f"\nfed.py trains {fed.samples_per_s / first.samples_per_s:.1f} times as fast as starving.py, "
        f"{fed.samples_per_s / workers.samples_per_s:.1f} times as fast as with workers on every core.",
        highlight=False,
    )
    for name, way in found.items():
        if not way.learns:
            console.print(f"[bold red]{name} did not learn: its loss did not fall by a fifth[/]")


def _point_on(console: Console, out: Path) -> None:
    console.print(
        f"\nreport     {out / 'report' / 'report.html'}\n"
        f"before     {out / 'starving.py'}\n"
        f"after      {out / 'pack.py'}, {out / 'fed.py'}\n"
        f"try        {_called('python')} {out / 'fed.py'} {out / 'recordings.stoker'}\n"
        f"then       {_called('stoker')} doctor YOUR_SCRIPT.py\n",
        highlight=False,
    )


def _called(program: str) -> str:
    """How a shell that stands here calls a program of this environment."""
    ours, found = Path(sys.executable).with_name(program), shutil.which(program)
    if not ours.exists() or (found is not None and Path(found).parent == ours.parent):
        return program
    return str(ours.relative_to(Path.cwd()) if ours.is_relative_to(Path.cwd()) else ours)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _clear(out: Path) -> None:
    """Make the folder ready; whatever a demo did not put there is left alone."""
    marker = out / ".stoker-demo"
    if out.exists() and not marker.exists():
        raise UsageError(f"{out} exists already and is not of a demo; choose another folder with --out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    marker.touch()
