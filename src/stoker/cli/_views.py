"""``stoker views``: a generation of augmented views, made before the training that uses it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from stoker.cli._store import Json, StorePath


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("views")(views)


def views(
    store: StorePath,
    out: Annotated[Path, typer.Argument(help="A folder for the generations: the ViewCache's path.")],
    augment: Annotated[
        str,
        typer.Option(
            metavar="CONFIG|PRESET|MODULE:NAME",
            help="A pipeline's .yaml or .json, a preset such as heart_sounds, or a function or class.",
        ),
    ],
    copies: Annotated[int, typer.Option(help="Views of each sample.")] = 2,
    refresh_epochs: Annotated[int, typer.Option(help="Epochs that a generation lasts.")] = 5,
    generation: Annotated[int | None, typer.Option(help="Which generation (default: 0).")] = None,
    epoch: Annotated[int | None, typer.Option(help="Or the one whose views this epoch shows.")] = None,
    split: Annotated[str | None, typer.Option(help="Only the samples of this split.")] = None,
    seed: Annotated[int, typer.Option(help="Of random numbers and of the choice of views.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Samples that are augmented at a time.")] = 64,
    per_sample: Annotated[
        bool, typer.Option("--per-sample", help="The function takes single samples, as dicts of arrays.")
    ] = False,
    version: Annotated[
        str | None, typer.Option(help="Stands for the function when runs are compared.")
    ] = None,
    num_workers: Annotated[int | None, typer.Option(help="Processes (default: one a core).")] = None,
    as_json: Json = False,
) -> None:
    """Make a generation of augmented views, so that a ViewCache with the same settings finds it ready.

    Killed or run again, it goes on where it stopped. A folder holds two generations at most.

    [bold]Examples[/]

      stoker views train.stoker views/ --augment augment.yaml --copies 4 --split train

      stoker views train.stoker views/ --augment mymodule:augment --epoch 20
    """
    from stoker.cli import _render
    from stoker.errors import UsageError
    from stoker.loader import ViewCache
    from stoker.store import open_store

    if generation is not None and epoch is not None:
        raise UsageError(f"--generation {generation} and --epoch {epoch} exclude each other; give one")
    opened = open_store(store)
    with ViewCache(
        opened if split is None else opened.split(split),
        _find_augment(augment),
        out,
        copies=copies,
        refresh_epochs=refresh_epochs,
        seed=seed,
        batch_size=batch_size,
        workers=num_workers,
        per_sample=per_sample,
        version=version,
    ) as cache:
        number = generation or 0 if epoch is None else cache.generation_of(epoch)
        was_ready = number >= 0 and cache.is_ready(number)
        made = cache.generation(number)
        report = {
            "schema_version": 1,
            "path": str(made.path),
            "generation": number,
            "first_epoch": number * refresh_epochs,
            "last_epoch": (number + 1) * refresh_epochs - 1,
            "num_samples": len(cache),
            "copies": copies,
            "num_bytes": made.manifest.num_bytes,
            "was_ready": was_ready,
            "content_digest": made.content_digest,
        }
    if as_json:
        typer.echo(json.dumps(report))
        return
    typer.echo(
        f"{made.path}: {copies} views of {len(cache)} samples for epochs {report['first_epoch']} to "
        f"{report['last_epoch']}, {_render.size(made.manifest.num_bytes)}"
        + (" (was there already)" if was_ready else "")
    )


def _find_augment(spec: str) -> Callable[..., Any]:
    """The pipeline of a settings file or a preset, or the object that ``module:name`` means."""
    if ":" not in spec:
        from stoker.cli._augment import find_pipeline
        from stoker.errors import UsageError

        try:
            return find_pipeline(spec, [], None)
        except UsageError as error:
            raise UsageError(f"{error}; a function or class is named module:attribute") from None
    from stoker.store._settings import TransformSettings, find_transform

    return find_transform(TransformSettings(name=spec))
