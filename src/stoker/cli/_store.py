"""Commands on stores: pack, verify, repair, compact, info, stats."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="The store's folder.")]
StoreUrl = Annotated[str, typer.Argument(metavar="STORE", help="The store's folder, or its URL.")]
Transform = Annotated[
    str | None,
    typer.Option(metavar="MODULE:NAME", help="A function or class applied to every sample."),
]
TransformVersion = Annotated[
    str | None,
    typer.Option(help="Stands for the transform when runs are compared."),
]
Labels = Annotated[str | None, typer.Option(help="'folder': the name of a file's folder is its class.")]
Option = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="An option of the source: suffixes, masks, path_column, label_column, base_path, …",
    ),
]


_MISSING = {
    "source": "the source is missing: stoker pack SOURCE OUT, stoker repair STORE --from SOURCE",
    "out": "OUT, the store, is missing: stoker pack SOURCE OUT",
}


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("pack")(pack)
    app.command("verify")(verify)
    app.command("repair")(repair)
    app.command("compact")(compact)
    app.command("info")(info)
    app.command("stats")(stats)


def pack(
    source: Annotated[
        str | None,
        typer.Argument(help="A folder, a glob, a .csv, an .h5 file, or module:dataset."),
    ] = None,
    out: Annotated[Path | None, typer.Argument(help="The store, by custom NAME.stoker.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings, as YAML or JSON.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Override one setting.")
    ] = None,
    labels: Labels = None,
    option: Option = None,
    transform: Transform = None,
    transform_version: TransformVersion = None,
    split: Annotated[
        str | None, typer.Option(metavar="NAME=FRACTION,…", help="Such as train=0.8,val=0.2.")
    ] = None,
    stratify: Annotated[
        str | None, typer.Option(help="A label field that every split gets in proportion.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="A field (patient, session) that is never in two splits.")
    ] = None,
    num_workers: Annotated[
        int | None, typer.Option(help="Processes, 0 for this one (default: one a core).")
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Pack on this Dask cluster; local:4 starts one of 4 processes."),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Samples a worker takes at a time (default: by their cost).")
    ] = None,
    compression: Annotated[str | None, typer.Option(help="none (default), lz4, zstd or gzip.")] = None,
    on_error: Annotated[
        str | None,
        typer.Option(help="raise (default), or skip bad samples, list them and exit 1."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Pack everything again, whatever the store holds.")
    ] = False,
    recipe: Annotated[
        str | None, typer.Option(help="SOURCE is laid out as this recipe's system has it.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option(help="With --recipe, instead of OUT: the folder that gets the store.")
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="With --recipe: judge the raw data, pack nothing.")
    ] = False,
    show_statistics: Annotated[
        bool, typer.Option("--stats", help="With --recipe: show the store's statistics too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Pack raw data into a store; run again, pack only what changed.

    [bold]Examples[/]

      stoker pack recordings/ train.stoker --labels folder --split train=0.8,val=0.2 --stratify y

      stoker pack studies.csv ct.stoker --option path_column=file --option label_column=lvef

      stoker pack 'runs/*/layer*.mat' runs.stoker --compression lz4 --on-error skip

      stoker pack --config pack.yaml --set compression=zstd

      stoker pack studies.csv ct.stoker --scheduler tcp://login-node:8786

      stoker pack --recipe heart-sounds circor/ circor.stoker --stats

      stoker pack --recipe cardiac-ct --config config.json --output-dir runs/ct --num-workers 8
    """
    from stoker.cli import _recipes, _render
    from stoker.errors import BadSampleError, UsageError
    from stoker.store._settings import pack_by_settings

    if recipe is not None:
        if scheduler is not None:
            raise UsageError("--scheduler does not go with --recipe: a recipe packs on this machine")
        _recipes.pack(
            recipe,
            source,
            out,
            config=config,
            overrides=set_ or [],
            force=force,
            workers=num_workers,
            batch_size=batch_size,
            output_dir=output_dir,
            validate_only=validate_only,
            show_statistics=show_statistics,
            as_json=as_json,
        )
    if output_dir is not None:
        raise UsageError("--output-dir goes with --recipe; without one, say where the store goes: SOURCE OUT")
    if out is not None and (url := re.match(r"([a-z][a-z0-9+.-]+):/(.*)", str(out))):
        raise UsageError(f"a store is packed into a folder: then `stoker push FOLDER {url[1]}://{url[2]}`")
    flags = {
        "source": source,
        "out": None if out is None else str(out),
        "options": _source_options(labels, option),
        "transform": _named_transform(transform, transform_version),
        "splits": _splits(split, stratify, group),
        "num_workers": num_workers,
        "scheduler": scheduler,
        "batch_size": batch_size,
        "compression": compression,
        "on_error": on_error,
        "force": force or None,
    }
    settings = _settings(config, set_ or [], flags)
    try:
        store = pack_by_settings(settings)
    except BadSampleError as error:
        error.add_hint("--on-error skip leaves such samples out and lists them")
        raise
    report = json.loads((store.path / "statistics.json").read_text())
    if as_json:
        typer.echo(json.dumps({"path": str(store.path), **report}))
    else:
        _render.packed(_render.console(), store, report)
    raise typer.Exit(1 if report["num_skipped"] else 0)


def verify(
    store: StoreUrl,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only each file's digest, not each value's checksum.")
    ] = False,
    num_workers: Annotated[int | None, typer.Option(min=1, help="Threads.")] = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a store; name each bad sample and field; exit 1 if there is any.

    [bold]Example[/]

      stoker verify train.stoker && python train.py
    """
    from stoker.cli import _render
    from stoker.errors import DamagedStoreError
    from stoker.store import Report
    from stoker.store import verify as run

    try:
        report = run(store, quick=quick, workers=num_workers, progress=not as_json)
    except DamagedStoreError as error:  # the manifest itself
        report = Report(0, 0, 0.0, files=[("manifest.json", str(error))])
    if as_json:
        typer.echo(json.dumps(_render.report_data(report)))
    else:
        _render.verified(_render.console(), store, report)
    raise typer.Exit(0 if report.ok else 1)


def repair(
    store: StorePath,
    source: Annotated[str | None, typer.Option("--from", help="The source it was packed from.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Or the settings that it was packed with, as YAML or JSON.")
    ] = None,
    labels: Labels = None,
    option: Option = None,
    transform: Transform = None,
    transform_version: TransformVersion = None,
) -> None:
    """Pack the damaged samples of a store again, and only those.

    [bold]Example[/]

      stoker repair train.stoker --from recordings/ --labels folder
    """
    from stoker.store import repair as run
    from stoker.store._settings import find_source, find_transform

    flags = {
        "source": source,
        "out": str(store),
        "options": _source_options(labels, option),
        "transform": _named_transform(transform, transform_version),
    }
    settings = _settings(config, [], flags)
    named = settings.transform
    done = run(
        store,
        find_source(settings.source, settings.options),
        transform=None if named is None else find_transform(named),
        transform_version=None if named is None else named.version,
    )
    if done.num_files == 0:
        typer.echo(f"{store}: nothing to repair")
    else:
        typer.echo(f"{store}: replaced {done.num_files} damaged files, packed {len(done.keys)} samples again")


def compact(store: StorePath) -> None:
    """Drop rows that no sample uses any more, and join small shards.

    [bold]Example[/]

      stoker compact train.stoker
    """
    from stoker.cli import _render
    from stoker.store import compact as run

    done = run(store)
    typer.echo(
        f"{store}: {done.num_shards_before} shards of {_render.size(done.num_bytes_before)} became "
        f"{done.num_shards} of {_render.size(done.num_bytes)}"
    )


def info(store: StoreUrl, as_json: Json = False) -> None:
    """What a store holds: samples, fields, splits, transform, size.

    [bold]Example[/]

      stoker info train.stoker --json
    """
    from stoker.cli import _render
    from stoker.store import open_store

    opened = open_store(store)
    if as_json:
        typer.echo(json.dumps(_render.info_data(opened)))
    else:
        _render.info(_render.console(), opened)


def stats(store: StoreUrl, as_json: Json = False) -> None:
    """Exact statistics of every field and channel, and the number of samples of each class.

    [bold]Example[/]

      stoker stats train.stoker
    """
    from stoker.cli import _render
    from stoker.store import open_store

    opened = open_store(store)
    if as_json:
        typer.echo(json.dumps(_render.stats_data(opened)))
    else:
        _render.stats(_render.console(), opened)


def _settings(config: Path | None, overrides: list[str], flags: dict[str, Any]) -> Any:
    """Settings of the file, then of --set, then of the flags that were given."""
    from stoker.config import load, resolve
    from stoker.errors import UsageError
    from stoker.store._settings import PackSettings

    given = {name: value for name, value in flags.items() if value is not None}
    if config is None:
        for name in ("source", "out"):
            if name not in given and not any(o.startswith(f"{name}=") for o in overrides):
                raise UsageError(f"{_MISSING[name]}, or --config")
        weaker = [o for o in overrides if o.partition("=")[0].partition(".")[0] not in given]
        return resolve(PackSettings, given, overrides=weaker)
    base = load(PackSettings, config, overrides=overrides)
    if "options" in given:
        given["options"] = {**base.options, **given["options"]}
    return resolve(PackSettings, {**base.model_dump(exclude_unset=True), **given})


def _source_options(labels: str | None, options: list[str] | None) -> dict[str, Any] | None:
    import yaml

    from stoker.errors import UsageError

    found: dict[str, Any] = {} if labels is None else {"labels": labels}
    for text in options or []:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UsageError(f"a source option is KEY=VALUE, got {text!r}")
        found[name] = yaml.safe_load(value)
    return found or None


def _named_transform(name: str | None, version: str | None) -> dict[str, Any] | None:
    from stoker.errors import UsageError

    if name is None and version is not None:
        raise UsageError(f"--transform-version {version} needs --transform")
    return None if name is None else {"name": name, "version": version}


def _splits(split: str | None, stratify: str | None, group: str | None) -> dict[str, Any] | None:
    from stoker.errors import UsageError

    if split is None:
        if stratify or group:
            raise UsageError("--stratify and --group need --split, such as train=0.8,val=0.2")
        return None
    fractions = {}
    for part in split.split(","):
        name, _, fraction = part.partition("=")
        if name.strip() in fractions:
            raise UsageError(f"--split names {name.strip()!r} twice")
        try:
            fractions[name.strip()] = float(fraction)
        except ValueError as error:
            raise UsageError(f"--split is NAME=FRACTION,…, got {split!r}") from error
    return {"fractions": fractions, "stratify": stratify, "group": group}
