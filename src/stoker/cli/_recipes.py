"""Recipes: ``stoker recipes``, and what ``stoker pack --recipe`` and ``stoker train NAME`` do."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stoker.cli._store import Json

if TYPE_CHECKING:
    from stoker.recipes import Recipe, RecipeSettings


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("recipes")(recipes)


def recipes(as_json: Json = False) -> None:
    """List the complete training systems: what each trains, its stages and its tasks.

    [bold]Examples[/]

      stoker recipes

      stoker train heart-sounds --stage supervised --task folders --data recordings/
    """
    from rich import box
    from rich.table import Table

    from stoker.cli import _render
    from stoker.recipes import find, names

    found = [find(name) for name in names()]
    if as_json:
        rows = [
            {
                "name": each.name,
                "title": each.title,
                "stages": each.stages,
                "tasks": each.tasks,
                "profiles": list(each.profiles),
            }
            for each in found
        ]
        typer.echo(json.dumps({"schema_version": 1, "recipes": rows}))
        return
    table = Table("recipe", "what it trains", "stages", "tasks", box=box.SIMPLE)
    for each in found:
        table.add_row(each.name, each.title, ", ".join(each.stages), ", ".join(each.tasks))
    _render.console().print(table)


def is_recipe(name: str) -> bool:
    """Whether a word on the command line names a recipe; a file of that name goes first."""
    from stoker.recipes import names

    return name.replace("_", "-") in names() and not Path(name).is_file()


def settings_of(
    recipe: "Recipe",
    *,
    config: Path | None,
    profile: str,
    overrides: Sequence[str],
    flags: Mapping[str, Any],
) -> "RecipeSettings":
    """The profile's settings, over them the file's, --set and the flags that were given."""
    from stoker.config import resolve_layers
    from stoker.errors import UsageError

    profiles: dict[str, Mapping[str, Any]] = {"default": {}, **recipe.profiles}
    if profile not in profiles:
        raise UsageError(f"{recipe.name} has no profile {profile!r}; there are {', '.join(profiles)}")
    given = {name: value for name, value in flags.items() if value is not None}
    return resolve_layers(
        recipe.settings, base=profiles[profile], path=config, over=given, overrides=overrides
    )


def pack(
    name: str,
    data: str | None,
    out: Path | None,
    *,
    config: Path | None,
    overrides: Sequence[str],
    force: bool,
    workers: int | None,
    batch_size: int | None,
    output_dir: Path | None,
    validate_only: bool,
    show_statistics: bool,
    as_json: bool,
) -> None:
    """Pack raw files in a system's own layout; exit code 1 if some could not be used."""
    from stoker.cli import _render
    from stoker.errors import UsageError
    from stoker.recipes import find

    recipe = find(name)
    if batch_size is not None and "packing" not in recipe.settings.model_fields:
        raise UsageError(f"{recipe.name} finds its own --batch-size; leave it out")
    flags = {"out": output_dir, "packing": None if batch_size is None else {"batch_size": batch_size}}
    settings = settings_of(recipe, config=config, profile="default", overrides=overrides, flags=flags)
    source = Path(data) if data is not None else settings.data
    if source is None:
        raise UsageError(f"the raw data is missing: stoker pack --recipe {recipe.name} DATA STORE")
    named = None if output_dir is not None else getattr(settings, "store", None)
    store = out or named or settings.out / f"{recipe.name}.stoker"
    prepared = recipe.prepare(
        source, store, settings, force=force, workers=workers, validate_only=validate_only
    )
    if as_json:
        found = {
            "schema_version": 1,
            "recipe": recipe.name,
            "path": None if validate_only else str(prepared.store),
            "num_samples": prepared.num_samples,
            "counts": dict(prepared.counts),
            "problems": list(prepared.problems),
        }
        typer.echo(json.dumps(found))
    else:
        _tell(prepared, validate_only=validate_only)
        if show_statistics and not validate_only:
            import stoker

            _render.stats(_render.console(), stoker.open(prepared.store))
    raise typer.Exit(1 if prepared.problems else 0)


def train(
    name: str,
    stage: str | None,
    choice: Mapping[str, Any],
    *,
    profile: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run one stage of a recipe and say what came of it."""
    import math

    from stoker.errors import UsageError
    from stoker.recipes import find

    recipe = find(name)
    chosen = stage or recipe.stages[0]
    if chosen not in recipe.stages:
        raise UsageError(f"{recipe.name} has no stage {chosen!r}; there are {', '.join(recipe.stages)}")
    task = choice["flags"].get("task")
    if task is not None and task not in recipe.tasks:
        raise UsageError(f"{recipe.name} has no task {task!r}; there are {', '.join(recipe.tasks)}")
    settings = settings_of(recipe, profile=profile, **choice)
    if dry_run:
        from stoker.config import dump

        typer.echo(settings.model_dump_json() if as_json else dump(settings), nl=as_json)
        return
    from stoker.train import is_first

    outcome = recipe.run(chosen, settings)
    if not is_first():
        return
    values = {key: value if math.isfinite(value) else None for key, value in outcome.values.items()}
    if as_json:
        found = {
            "schema_version": 1,
            "recipe": recipe.name,
            "stage": chosen,
            "folder": str(outcome.folder),
            "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
            "values": values,
            "notes": list(outcome.notes),
        }
        typer.echo(json.dumps(found))
        return
    shown = ", ".join(f"{key} {value:.4g}" for key, value in values.items() if value is not None)
    typer.echo(f"{recipe.name}, {chosen}: {shown}")
    for note in outcome.notes:
        typer.echo(f"  {note}")
    typer.echo(f"  in {outcome.folder}")


def _tell(prepared: Any, *, validate_only: bool) -> None:
    target = "nothing was packed" if validate_only else str(prepared.store)
    typer.echo(f"{prepared.num_samples} samples: {target}")
    for key, value in prepared.counts.items():
        typer.echo(f"  {key}: {value}")
    for line in prepared.problems:
        typer.echo(f"  problem: {line}", err=True)
