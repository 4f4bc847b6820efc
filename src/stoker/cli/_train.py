"""``stoker train``: a run out of a configuration, a profile and ``--set``."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker.cli._store import Json

if TYPE_CHECKING:
    from stoker.config import Resolved
    from stoker.train import FitResult


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("train")(train)


def train(
    what: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG|RECIPE", help="The run's settings, as YAML or JSON, or a recipe's name."
        ),
    ],
    stage: Annotated[str | None, typer.Option(help="A recipe's stage; see `stoker recipes`.")] = None,
    task: Annotated[str | None, typer.Option(help="A recipe's task.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="A recipe's raw files, or their store; without it, synthetic data."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where a recipe's stores and checkpoints go.")] = None,
    pretrained: Annotated[
        Path | None, typer.Option(metavar="CHECKPOINT", help="A recipe's weights to start from.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A recipe's own settings, as YAML or JSON.")] = None,
    profile: Annotated[
        str,
        typer.Option(
            help="What CONFIG leaves open: default, low_memory, high_performance, quick_demo, auto, or a "
            ".yaml file, such as `stoker tune` writes."
        ),
    ] = "default",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Override one setting.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show all settings and where each comes from; train nothing.")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH",
            help="auto (go on if there is something to go on from), last, previous, best, a path, or fresh.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a model as a configuration says; the profile fills in what it leaves open.

    [bold]Examples[/]

      stoker train run.yaml --set optimizer.lr=3e-4 --set epochs=30

      stoker train run.yaml --profile auto --dry-run

      torchrun --nproc-per-node=2 -m stoker train run.yaml --resume auto

      stoker train heart-sounds --stage supervised --task folders --data recordings/
    """
    from stoker.cli import _recipes
    from stoker.config import resolve_training
    from stoker.errors import UsageError

    if _recipes.is_recipe(what):
        flags = {"task": task, "data": data, "out": out, "pretrained": pretrained, "resume": resume}
        choice = {"config": config, "overrides": set_ or [], "flags": flags}
        _recipes.train(what, stage, choice, profile=profile, dry_run=dry_run, as_json=as_json)
        return
    for name, value in {"--stage": stage, "--task": task, "--data": data, "--out": out}.items():
        if value is not None:
            raise UsageError(f"{name} goes with a recipe, and {what!r} is none; see `stoker recipes`")
    if not Path(what).suffix and not Path(what).exists():
        raise UsageError(f"{what!r} is neither a recipe nor a settings file; `stoker recipes` lists those")
    resolved = resolve_training(what, profile=profile, overrides=set_ or [], find_facts=_find_facts)
    if dry_run:
        if as_json:
            typer.echo(json.dumps(_resolved_data(resolved)))
        else:
            _tell_decisions(resolved, err=True)
            typer.echo(resolved.to_yaml(), nl=False)
        return
    from stoker.train import is_first
    from stoker.train._assembly import assembled

    if is_first():
        _tell_decisions(resolved, err=True)
    with assembled(resolved.settings, progress=not as_json) as run:
        result = run.fit(resume=resume)
    if is_first():
        folder = resolved.settings.checkpoint_dir
        typer.echo(json.dumps(_result_data(result, folder)) if as_json else _summary(result, folder))


def _find_facts(settings: Any) -> Any:
    from stoker.train._assembly import find_facts

    return find_facts(settings)


def _tell_decisions(resolved: "Resolved", *, err: bool) -> None:
    for decision in resolved.decisions:
        value = json.dumps(decision.value)
        typer.echo(f"profile auto: {'.'.join(decision.path)} = {value} ({decision.reason})", err=err)


def _summary(result: "FitResult", folder: Path) -> str:
    values = ", ".join(
        f"{name} {value:.4g}" for name, value in result.best.items() if isinstance(value, float)
    )
    when = "" if result.best_epoch is None else f", the best in epoch {result.best_epoch + 1}: {values}"
    return f"{folder}: {result.num_epochs} epochs{when}"


def _resolved_data(resolved: "Resolved") -> dict[str, Any]:
    return {
        "schema_version": 1,
        "settings": resolved.settings.model_dump(mode="json"),
        "origins": resolved.origins,
        "decisions": [
            {"setting": ".".join(each.path), "value": each.value, "reason": each.reason}
            for each in resolved.decisions
        ],
    }


def _result_data(result: "FitResult", folder: Path) -> Any:
    from stoker.train._summary import without_nan

    data = {
        "schema_version": 1,
        "checkpoint_dir": str(folder),
        "best": result.best,
        "best_epoch": result.best_epoch,
        "epochs": result.num_epochs,
        "stopped_early": result.stopped_early,
        "history": result.history,
    }
    return without_nan(data)  # a value may be undefined, such as the F1 of a class that is not there
