"""The command that writes a store to a URL."""

import dataclasses
import json
from typing import Annotated

import typer

from stoker.cli._store import Json, StorePath


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("push")(push)


def push(
    store: StorePath,
    url: Annotated[str, typer.Argument(help="Where to, such as s3://bucket/train.stoker.")],
    as_json: Json = False,
) -> None:
    """Write a store to an object store; send only what is not there; readers see the old one or the new one.

    [bold]Example[/]

      stoker push train.stoker s3://bucket/train.stoker
    """
    from stoker.cli import _render
    from stoker.errors import UsageError
    from stoker.store import push as run

    if url.lower().startswith("memory:"):
        raise UsageError(f"{url} would be gone with this command; push to a bucket (s3://…) or file://…")
    done = run(store, url, progress=not as_json)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(done)))
    else:
        typer.echo(
            f"{done.url}: sent {done.num_files} files of {_render.size(done.num_bytes)}, "
            f"{done.num_kept} were there"
        )
