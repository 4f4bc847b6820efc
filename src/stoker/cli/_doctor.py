"""``stoker doctor``, ``fix`` and ``check``: why a script trains slowly, what cures it, whether it lasts.

What stands after SCRIPT is the script's own. Where the script's output would mix with a result that
another program reads (``--json -``, ``--patch -``), it goes to standard error.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from typer.core import TyperCommand

from stoker.errors import UsageError
from stoker.store.sources._nearest import nearest_sibling

if TYPE_CHECKING:
    from stoker.doctor import Comparison, Diagnosis, Record
    from stoker.doctor.mending._fix import Fixed

_SCRIPT_COMES_LAST = {"allow_interspersed_args": False}
RUN_SCRIPTS = {"doctor", "fix", "check"}  # the commands whose last arguments are not ours
PROBLEM = 1
_NO_SCRIPTS = {".txt", ".md", ".yaml", ".yml", ".json", ".toml", ".csv", ".sh", ".ipynb"}

Target = Annotated[
    list[str] | None, typer.Argument(metavar="SCRIPT [ARGS]...", help="A training script and its arguments.")
]
Module = Annotated[
    str | None, typer.Option("-m", metavar="MODULE", help="Run a module, as python -m does, not a script.")
]
Steps = Annotated[int, typer.Option(min=1, help="Optimizer steps that are measured.")]
Warmup = Annotated[int, typer.Option(min=0, help="Steps before them that are not.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for report.html, report.json, trace.json.")]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the diagnosis here too; - prints it, and only it."),
]
_OUT = Path("stoker-report")
_CHECK_OUT = Path("stoker-check")  # another: a check must not replace the baseline that it is given next time


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for command in (doctor, fix, check):
        app.command(command.__name__, cls=_ScriptCommand, context_settings=_SCRIPT_COMES_LAST)(command)


class _ScriptCommand(TyperCommand):
    """A command whose options end with the script's name, or with the module's, as Python's do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with_values = {
            name for option in self.params if not getattr(option, "is_flag", False) for name in option.opts
        }
        index = 0
        while index < len(args) and args[index].startswith("-") and args[index] != "--":
            name = args[index]
            index += 2 if name in with_values else 1
            if name.startswith("-m"):
                args = [*args[:index], "--", *args[index:]]
                break
        return super().parse_args(ctx, args)


def doctor(
    target: Target = None,
    module: Module = None,
    steps: Steps = 60,
    warmup: Warmup = 10,
    full: Annotated[bool, typer.Option("--full", help="Watch only, and let the script finish.")] = False,
    out: Out = _OUT,
    as_json: JsonFile = None,
) -> None:
    """Say why a training script is slow, and what to change.

    Runs the script unchanged for some steps, replays some batches to find the ceiling, then stops it.
    Exit code 1: nothing was observed, or the script crashed; with --full the script's own.

    [bold]Examples[/]

      stoker doctor train.py --config base.yaml

      stoker doctor --steps 200 --out reports/base -m mypackage.train --epochs 3
    """
    words = _words(target, module)
    places = _Places.prepared(out, as_json)
    record, diagnosis = _examine(words, module, steps, warmup, full=full, quiet=places.prints_json)
    _tell(record, diagnosis, places)
    raise typer.Exit(record.exit_code if full else _verdict_code(record, diagnosis))


def fix(
    target: Target = None,
    module: Module = None,
    steps: Steps = 60,
    warmup: Warmup = 10,
    trials: Annotated[int, typer.Option(min=1, help="Settings that are tried at most.")] = 3,
    reorder: Annotated[
        bool, typer.Option("--reorder", help="Also try what changes the order of samples, and nothing else.")
    ] = False,
    patch: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the changes as a diff for git apply; - prints it."),
    ] = None,
    out: Out = _OUT,
    as_json: JsonFile = None,
) -> None:
    """Apply the safe part of the advice without touching a file, and measure again.

    Each run has a process of its own; what the script prints goes to standard error. Safe are
    DataLoader settings, thread counts and a cache of deterministic samples; with --reorder also workers
    for a stream that divides itself among them, and batches in the order in which they are made. What
    does not help is taken back. Exit code 1: nothing was observed, or the script crashed.

    [bold]Examples[/]

      stoker fix train.py --config base.yaml

      stoker fix --patch faster.patch train.py
    """
    patch, target = _taken_out("--patch", patch, target)
    words = _words(target, module)
    places = _Places.prepared(out, as_json)
    from stoker.cli import _render
    from stoker.cli._measured import Request, measure
    from stoker.doctor.mending._fix import fix as fix_by_measuring
    from stoker.doctor.report import print_diagnosis, write_report

    fixed = fix_by_measuring(
        lambda edits, filling: measure(Request(words, module is not None, steps, warmup + filling, edits)),
        folder=Path.cwd(),
        max_trials=trials,
        may_reorder=reorder,
    )
    paths = write_report(places.folder, fixed.record, fixed.diagnosis, comparison=fixed.comparison)
    if patch is not None and patch != "-" and fixed.patch.text:
        Path(patch).write_bytes(fixed.patch.text.encode())
    places.write_json(_fixed_data(fixed))
    if patch == "-":
        typer.echo(fixed.patch.text, nl=False)
    elif not places.prints_json:
        print_diagnosis(_render.console(), fixed.diagnosis, fixed.record, comparison=fixed.comparison)
        typer.echo(_what_was_done(fixed, patch))
        typer.echo(f"report: {paths.html}")
    raise typer.Exit(_verdict_code(fixed.record, fixed.diagnosis))


def check(
    target: Target = None,
    module: Module = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="REPORT", help="report.json of an earlier run.")
    ] = None,
    max_regress: Annotated[
        str | None, typer.Option(metavar="SHARE", help="How much slower is too slow: 5% (the default), 0.05.")
    ] = None,
    steps: Steps = 60,
    warmup: Warmup = 10,
    out: Out = _CHECK_OUT,
    as_json: JsonFile = None,
) -> None:
    """Compare a run with an earlier one: exit code 1 if it got slower beyond noise, and which stage did it.

    The report of this run goes to its own folder; the baseline stays as it is.

    [bold]Examples[/]

      stoker check --baseline base/report.json --max-regress 5% train.py --config base.yaml
    """
    given, target = _taken_out("--baseline", None if baseline is None else str(baseline), target)
    share, target = _taken_out("--max-regress", max_regress, target)
    words = _words(target, module)
    limit, earlier = _share(share or "5%"), _read_report(given)
    if given is not None and (out / "report.json").resolve() == Path(given).resolve():
        raise UsageError(f"--out {out} would replace the baseline {given}; name another folder")
    from stoker.cli import _render
    from stoker.doctor._check import check as compare_runs
    from stoker.doctor._json import from_json
    from stoker.doctor.report import print_check, write_report

    before = from_json(earlier)
    places = _Places.prepared(out, as_json)
    record, diagnosis = _examine(words, module, steps, warmup, full=False, quiet=places.prints_json)
    if _verdict_code(record, diagnosis):
        _tell(record, diagnosis, places)
        raise typer.Exit(PROBLEM)
    result = compare_runs(diagnosis, before, max_regress=limit)
    write_report(places.folder, record, diagnosis)
    places.write_json({"schema_version": 1, **asdict(result)})
    if not places.prints_json:
        print_check(_render.console(), result)
    raise typer.Exit(0 if result.ok else PROBLEM)


@dataclass(frozen=True)
class _Places:
    """Where results go: absolute, for the script may change its folder, and made before it runs."""

    folder: Path
    json: Path | None
    prints_json: bool

    @classmethod
    def prepared(cls, out: Path, as_json: str | None) -> Self:
        out.mkdir(parents=True, exist_ok=True)
        file = None if as_json in {None, "-"} else Path(str(as_json)).absolute()
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
        return cls(out.absolute(), file, as_json == "-")

    def write_json(self, data: dict[str, Any]) -> None:
        if self.prints_json:
            typer.echo(json.dumps(data, allow_nan=False))
        if self.json is not None:
            self.json.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n")


def _examine(
    words: list[str], module: str | None, steps: int, warmup: int, *, full: bool, quiet: bool
) -> tuple["Record", "Diagnosis"]:
    """Run the script in this process; what was observed, and what it means."""
    folder = Path.cwd()
    from stoker.doctor import examine
    from stoker.doctor.analysis._analysis import diagnose
    from stoker.doctor.mending._fix import with_patches

    with _as_without_us(stdout_to_stderr=quiet):
        record = examine(words, module=module is not None, steps=steps, warmup=warmup, full=full)
    return record, with_patches(diagnose(record), record, folder=folder)


def _tell(record: "Record", diagnosis: "Diagnosis", places: _Places) -> None:
    from stoker.cli import _render
    from stoker.doctor._json import to_json
    from stoker.doctor.report import print_diagnosis, write_report

    paths = write_report(places.folder, record, diagnosis)
    places.write_json(to_json(diagnosis, record))
    if not places.prints_json:
        print_diagnosis(_render.console(), diagnosis, record)
        typer.echo(f"\nreport: {paths.html}")


def _verdict_code(record: "Record", diagnosis: "Diagnosis") -> int:
    failed = record.ended == "crashed" or diagnosis.verdict == "nothing observed"
    return PROBLEM if failed else 0


@contextmanager
def _as_without_us(*, stdout_to_stderr: bool) -> Iterator[None]:
    """Take back what the command set up for itself: the script brings its own logging and signals."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    on_terminate = signal.getsignal(signal.SIGTERM)
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.stdout.flush()
    stdout, descriptor = sys.stdout, os.dup(1)
    if stdout_to_stderr:  # for Python and for its child processes
        sys.stdout = sys.stderr
        os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = stdout
        os.dup2(descriptor, 1)
        os.close(descriptor)
        signal.signal(signal.SIGTERM, on_terminate)
        root.handlers[:] = handlers
        root.setLevel(level)


def _words(target: list[str] | None, module: str | None) -> list[str]:
    """The command line that Python would be given."""
    if module is not None:
        return [module, *(target or [])]
    if not target:
        raise UsageError("name a training script, or a module with -m: stoker doctor train.py")
    script = Path(target[0])
    if not script.exists():
        hint = nearest_sibling(script) if script.suffix else f"; for a module say -m {target[0]}"
        raise UsageError(f"there is no script {target[0]}{hint}")
    if script.is_dir() and not (script / "__main__.py").exists():
        raise UsageError(f"{target[0]} is a folder without __main__.py; name a script in it")
    if script.suffix in _NO_SCRIPTS:
        raise UsageError(f"{target[0]} is not Python; name the training script itself")
    return target


def _taken_out(
    option: str, value: str | None, target: list[str] | None
) -> tuple[str | None, list[str] | None]:
    """Our option may also stand after the script, unless it was given before it: then all is the script's."""
    if value is not None or not target:
        return value, target
    rest, words = [], iter(target)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif value is None and word == option:
            value = next(words, None)
            if value is None:
                raise UsageError(f"{option} needs a value")
        elif value is None and word.startswith(f"{option}="):
            value = word.partition("=")[2]
        else:
            rest.append(word)
    return value, rest


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 10:
        raise UsageError(f"--max-regress must be a share such as 5% or 0.05, got {text!r}")
    return share


def _read_report(path: str | None) -> dict[str, Any]:
    if path is None:
        raise UsageError("--baseline is missing: the report.json of an earlier `stoker doctor`")
    try:
        report = json.loads(Path(path).read_text())
    except ValueError as error:
        raise UsageError(f"{path} is not a report of `stoker doctor`: {error}") from None
    if not isinstance(report, dict):
        raise UsageError(f"{path} is not a report of `stoker doctor`: it holds no object")
    return report


def _what_was_done(fixed: "Fixed", patch: str | None) -> str:
    lines = [""]
    for attempt in fixed.attempts:
        settings = ", ".join(f"{name}={value}" for name, value in _settings(attempt.comparison).items())
        lines.append(f"tried {settings}: {attempt.why}{'' if attempt.is_kept else '; taken back'}")
    lines.append(fixed.sentence)
    if fixed.reordering is not None:
        more = fixed.reordering
        lines.append(
            "not tried, as it changes the order of samples (--reorder allows it): "
            f"{more.action.rstrip('.')}; {more.speedup.value:.2f} times as fast is predicted"
        )
    lines += [f"not in the patch: {reason}" for reason in fixed.patch.refused]
    lines += [f"mind: {what}" for what in fixed.patch.replaced]
    if patch is not None:
        lines.append(f"patch: {patch}" if fixed.patch.text else f"no patch: {patch} was not written")
    elif fixed.patch.text:
        lines.append(f"\n{fixed.patch.text}")
    return "\n".join(lines)


def _settings(comparison: "Comparison") -> dict[str, Any]:
    return {name: value for settings in comparison.settings.values() for name, value in settings.items()}


def _fixed_data(fixed: "Fixed") -> dict[str, Any]:
    from stoker.doctor._json import to_json

    return {
        **to_json(fixed.diagnosis, fixed.record),
        "fix": {
            "sentence": fixed.sentence,
            "patch": fixed.patch.text,
            "not_in_patch": fixed.patch.refused,
            "replaced_in_patch": fixed.patch.replaced,
            "attempts": [
                {
                    "settings": attempt.comparison.settings,
                    "predicted_speedup": asdict(attempt.comparison.predicted),
                    "achieved_speedup": asdict(attempt.comparison.achieved),
                    "is_kept": attempt.is_kept,
                    "why": attempt.why,
                }
                for attempt in fixed.attempts
            ],
            "after": to_json(fixed.best.comparison.after, fixed.best.record) if fixed.best else None,
        },
    }
