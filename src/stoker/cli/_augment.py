"""``stoker augment``: what transforms there are, what a pipeline is, what it does to samples."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli._store import Json, Labels, Option, _source_options

if TYPE_CHECKING:
    from stoker.augment import Pipeline

Config = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A pipeline's .yaml or .json, or the name of a preset.")
]
_SETTINGS = (".yaml", ".yml", ".json")


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    augment = typer.Typer(no_args_is_help=True, help="Transforms, pipelines, and pictures of what they do.")
    augment.command("preview")(preview)
    augment.command("list")(list_)
    augment.command("show")(show)
    app.add_typer(augment, name="augment")


def preview(
    config: Config,
    source: Annotated[str, typer.Argument(help="A store, or whatever `stoker pack` takes for a source.")],
    out: Annotated[Path, typer.Option(help="The picture: .png, .pdf or .svg.")],
    num_samples: Annotated[
        int, typer.Option(min=1, max=64, help="How many, evenly spaced over the source.")
    ] = 4,
    num_views: Annotated[int, typer.Option(min=1, max=16, help="Of each sample.")] = 3,
    seed: Annotated[int | None, typer.Option(help="In place of the pipeline's own.")] = None,
    epoch: Annotated[int, typer.Option(min=0, help="Whose parameters are drawn.")] = 0,
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=ROLE", help="The fields' roles, in place of the pipeline's own."),
    ] = None,
    labels: Labels = None,
    option: Option = None,
) -> None:
    """Draw samples beside what a pipeline makes of them, with the parameters drawn for each.

    The first view of a sample is what a Loader with this pipeline gives in that epoch.

    [bold]Examples[/]

      stoker augment preview augment.yaml train.stoker --out grid.png --epoch 3

      stoker augment preview heart_sounds recordings/ --out grid.png --role x=signal
    """
    from stoker.augment.preview import preview as draw
    from stoker.cli import _pictures

    _pictures.check_out(out)
    pipeline = find_pipeline(config, role or [], seed)
    samples = _pictures.open_samples(source, _source_options(labels, option) or {})
    numbers = _pictures.spread(num_samples, len(samples))
    batch, names = _pictures.gather(samples, numbers, pipeline.roles)
    figure = draw(
        pipeline,
        batch,
        index=numbers,
        epoch=epoch,
        num_views=num_views,
        names=names,
        sample_rate=_pictures.sample_rate(batch),
        title=config,
    )
    _pictures.save(figure, out)
    typer.echo(f"{out}: {len(numbers)} samples, {num_views} views of each")


def list_(as_json: Json = False) -> None:
    """List every transform: its family, its arguments, what it does.

    [bold]Example[/]

      stoker augment list
    """
    from stoker.augment import registered
    from stoker.cli import _render

    if as_json:
        typer.echo(json.dumps(_render.transforms_data(registered())))
    else:
        _render.transforms(_render.console(), registered())


def show(config: Config) -> None:
    """Show a pipeline as YAML, with every argument as it was understood.

    [bold]Example[/]

      stoker augment show heart_sounds > augment.yaml
    """
    import yaml

    typer.echo(yaml.safe_dump(find_pipeline(config, [], None).to_config(), sort_keys=False), nl=False)


def find_pipeline(config: str, roles: list[str], seed: int | None) -> "Pipeline":
    """The pipeline of a settings file or a preset, with what was asked for in place of its own."""
    from stoker.augment import Pipeline, preset
    from stoker.errors import UsageError
    from stoker.store.sources._nearest import nearest_sibling

    if config.endswith(_SETTINGS):
        if not Path(config).exists():
            near = nearest_sibling(Path(config)) or "; check the path"
            raise UsageError(f"CONFIG must be a file that exists or a preset, got {config!r}{near}")
        found = Pipeline.from_config(config)
    else:
        try:
            found = preset(config)
        except UsageError as error:
            raise UsageError(f"CONFIG must be a .yaml or .json file or a preset: {error}") from None
    changes = {"roles": _roles(roles)} if roles else {}
    return Pipeline.from_config({**found.to_config(), **changes, **({} if seed is None else {"seed": seed})})


def _roles(given: list[str]) -> dict[str, str]:
    from stoker.errors import UsageError

    roles = {}
    for text in given:
        field, separator, role = text.rpartition("=")
        if not separator or not field:
            raise UsageError(f"--role must be FIELD=ROLE, such as x=signal, got {text!r}")
        roles[field] = role
    return roles
