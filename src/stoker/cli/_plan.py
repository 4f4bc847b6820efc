"""``stoker plan``: what feeding so many accelerators takes, and what will be the limit."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli._store import Json
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.loader._capacity import Demand, Feeding, Needs, Supply

_LIMITS = {
    "accelerators": "the accelerators themselves: they are fed",
    "gathering": "gathering batches: more cores a node, or fewer GPUs on it",
    "storage": "storage: more bandwidth, more memory for the page cache, or a copy on local disks",
}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("plan")(plan)


def plan(
    store: Annotated[Path, typer.Argument(help="The store that shall be trained on, here on this machine.")],
    gpus: Annotated[int, typer.Option(min=1, help="How many accelerators.")],
    step_ms: Annotated[float, typer.Option(min=0.001, help="Of a training step that never waits for data.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Of one accelerator.")] = 64,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="In one machine.")] = 8,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Of a node, that may read. By default those of this machine.")
    ] = None,
    memory_gb: Annotated[
        float | None, typer.Option(min=0, help="Of a node, for its page cache. By default what is free here.")
    ] = None,
    storage_gb_s: Annotated[
        float | None, typer.Option(min=0.000001, help="GB/s of the storage. By default measured here.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared/--local", help="Is that storage one for all nodes, or each node's own?")
    ] = True,
    as_json: Json = False,
) -> None:
    """Say what feeding so many accelerators from a store takes, and what will be the limit.

    Measures how fast this machine gathers batches and, unless it is given, how fast its storage reads.
    Exit code 1: they would wait for data in later epochs.

    [bold]Examples[/]

      stoker plan train.stoker --gpus 64 --step-ms 120 --batch-size 32

      stoker plan train.stoker --gpus 8 --step-ms 40 --cores 48 --memory-gb 400 --storage-gb-s 5 --local
    """
    import stoker
    from stoker.config import available_memory_bytes, usable_cores
    from stoker.loader._capacity import Demand, Needs, Supply, plan_feeding
    from stoker.loader._rates import gathered_per_s, storage_bytes_per_s
    from stoker.store._manifest import shard_path

    opened = stoker.open(store)
    if len(opened) == 0:
        raise UsageError(f"{store} has no samples")
    manifest = opened.manifest
    files = [shard_path(opened.path, shard.digest) for shard in manifest.shards]
    memory = available_memory_bytes() if memory_gb is None else memory_gb * 1e9
    storage = storage_gb_s * 1e9 if storage_gb_s is not None else storage_bytes_per_s(files)
    supply = Supply(
        data_bytes=manifest.num_bytes,
        sample_bytes=manifest.num_bytes / len(opened),
        num_shards=len(files),
        num_cores=cores or usable_cores(),
        gathered_per_s=gathered_per_s(opened, batch_size=min(batch_size, len(opened))),
        cache_bytes=memory,
        storage_bytes_per_s=storage,
        is_shared=shared,
    )
    demand = Demand(gpus, gpus_per_node, batch_size, step_ms / 1000)
    needs = plan_feeding(demand, supply)
    if as_json:
        parts: dict[str, Demand | Supply | Needs] = {"demand": demand, "supply": supply, "needs": needs}
        typer.echo(json.dumps({name: dataclasses.asdict(part) for name, part in parts.items()}))
    else:
        _tell(demand, supply, needs, is_measured=storage_gb_s is None)
    raise typer.Exit(0 if needs.later_epochs.limit == "accelerators" else 1)


def _tell(demand: "Demand", supply: "Supply", needs: "Needs", *, is_measured: bool) -> None:
    from rich.table import Table

    from stoker.cli import _render

    console = _render.console()
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    size = _render.size
    where = "measured here" if is_measured else "as given"
    of = "shared by all nodes" if supply.is_shared else "of each node"
    rows = {
        "wanted": f"{needs.samples_per_s:,.0f} samples/s by {demand.num_gpus} accelerators on "
        f"{needs.num_nodes} node(s), {size(int(needs.bytes_per_s))}/s a node",
        "readers": f"{needs.readers} thread(s) a node at {supply.gathered_per_s:,.0f} samples/s each, "
        f"of {supply.num_cores} core(s)",
        "page cache": f"{size(int(needs.cache_bytes))} a node to hold all data; "
        f"{size(int(supply.cache_bytes))} are there",
        "read ahead": f"{size(int(needs.read_ahead_bytes))} a node",
        "open files": f"{needs.mapped_files:,} mapped shards a node",
        "storage": f"{size(int(supply.storage_bytes_per_s))}/s, {where}, {of}",
        "first epoch": _said(needs.first_epoch),
        "later epochs": _said(needs.later_epochs),
    }
    for name, text in rows.items():
        table.add_row(f"[bold]{name}[/]", text)
    console.print(table)


def _said(feeding: "Feeding") -> str:
    from stoker.cli._render import size

    needed = f"needs {size(int(feeding.storage_bytes_per_s))}/s of storage in all"
    if feeding.limit == "accelerators":
        return f"fed; {needed}"
    return f"{feeding.waiting:.0%} of a step waits; {needed}. The limit is {_LIMITS[feeding.limit]}"
