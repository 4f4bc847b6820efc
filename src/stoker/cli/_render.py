"""How results look on a terminal, and the same as plain data for ``--json``."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stoker.store import Report, Store
from stoker.store._store import describe_field

if TYPE_CHECKING:
    from stoker.augment import Transform
    from stoker.store._manifest import FieldSpec

_MAX_ROWS = 20


def size(num_bytes: int) -> str:
    """Bytes as a person reads them."""
    amount = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def console() -> Console:
    """Where results are printed: never so narrow that a number would be cut."""
    plain = Console(soft_wrap=True)
    return plain if plain.is_terminal else Console(soft_wrap=True, width=max(120, plain.width))


def packed(console: Console, store: Store, report: dict[str, Any]) -> None:
    """What a packing run did."""
    console.print(
        f"[bold]{escape(str(store.path))}[/]: {report['num_samples']} samples, {size(report['num_bytes'])} "
        f"({report['num_packed']} packed, {report['num_kept']} kept, "
        f"{report['num_dropped']} dropped) in {report['seconds']:.1f} s{_splits_line(store)}",
        highlight=False,
    )
    for field in store.fields.values():
        if field.channel_axis is not None and field.shape[field.channel_axis] is None:
            console.print(_differing_channels(field), markup=False, highlight=False)
    if report["skipped"]:
        table = _table("skipped sample", "why")
        for bad in report["skipped"][:_MAX_ROWS]:
            table.add_row(escape(bad["key"]), escape(bad["why"]))
        console.print(table)
        _rest(console, len(report["skipped"]), "statistics.json")


def verified(console: Console, path: str, report: Report) -> None:
    """What verifying found."""
    speed = f"{size(report.num_bytes)} in {report.seconds:.2f} s, {report.gb_per_s:.2f} GB/s"
    if report.ok:
        console.print(
            f"[bold green]ok[/] {escape(str(path))}: {report.num_samples} samples, "
            f"every byte as published ({speed})",
            highlight=False,
        )
        return
    num_samples = len({key for key, _, _ in report.bad})
    console.print(
        f"[bold red]damaged[/] {escape(str(path))}: {num_samples} bad samples "
        f"in {len(report.files)} bad files ({speed})",
        highlight=False,
    )
    for name, why in report.files[:_MAX_ROWS]:
        console.print(f"  {name}: {why}", markup=False, highlight=False)
    if report.bad:
        table = _table("sample", "field", "why")
        for row in report.bad[:_MAX_ROWS]:
            table.add_row(*map(escape, row))
        console.print(table)
        _rest(console, len(report.bad), "--json")
    if report.num_samples:  # else the manifest itself is damaged, and says what to do
        console.print(
            f"mend it: stoker repair {path} --from SOURCE (with labels, options and transform of its pack)",
            markup=False,
            highlight=False,
        )


def report_data(report: Report) -> dict[str, Any]:
    """A verification as plain data."""
    return {
        "schema_version": 1,
        "ok": report.ok,
        "num_samples": report.num_samples,
        "num_bytes": report.num_bytes,
        "seconds": report.seconds,
        "gb_per_s": report.gb_per_s,
        "bad": [{"key": key, "field": field, "why": why} for key, field, why in report.bad],
        "files": [{"file": name, "why": why} for name, why in report.files],
    }


def info(console: Console, store: Store) -> None:
    """What a store holds."""
    data = info_data(store)
    table = Table(show_header=False, box=None, pad_edge=False)
    rows = {
        "samples": f"{data['num_samples']:,}",
        "size": f"{size(data['num_bytes'])} in {data['num_shards']} shards",
        "compression": data["compression"],
        "transform": data["transform"],
        "splits": ", ".join(f"{name} {count:,}" for name, count in data["splits"].items()) or "none",
        "packed": f"{data['created']} by Stoker {data['stoker_version']}",
        "digest": data["content_digest"],
    }
    for name, value in rows.items():
        table.add_row(f"[bold]{name}[/]", escape(value))
    console.print(f"[bold]{escape(store.location)}[/]", highlight=False)
    console.print(table, highlight=False)
    fields = _table("field", "type", "classes")
    for name, kind in data["fields"].items():
        fields.add_row(escape(name), escape(kind), escape(", ".join(store.classes.get(name, ()))))
    console.print(fields)


def info_data(store: Store) -> dict[str, Any]:
    """What a store holds, as plain data."""
    manifest = store.manifest
    return {
        "schema_version": 1,
        "path": store.location,
        "num_samples": manifest.num_samples,
        "num_bytes": manifest.num_bytes,
        "num_shards": len(manifest.shards),
        "compression": manifest.compression,
        "transform": manifest.transform.name,
        "splits": store.splits,
        "created": manifest.created,
        "stoker_version": manifest.stoker_version,
        "content_digest": manifest.content_digest,
        "fields": {name: describe_field(field) for name, field in store.fields.items()},
        "classes": {name: list(names) for name, names in store.classes.items()},
    }


def stats(console: Console, store: Store) -> None:
    """Statistics of every field and channel."""
    table = _table("field", "channel", "count", "mean", "std", "min", "max", "not finite")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, entry in store.stats.items():
        num_channels = len(entry.count)
        for c in range(num_channels):
            numbers = (entry.mean[c], entry.std[c], entry.min[c], entry.max[c])
            table.add_row(
                escape(name),
                str(c) if num_channels > 1 else "",
                f"{entry.count[c]:,}",
                *(f"{number:.6g}" for number in numbers),
                f"{entry.num_nonfinite[c]:,}",
            )
    console.print(table)
    for field, counts in _class_counts(store).items():
        classes = _table(f"class of {escape(field)}", "samples")
        classes.columns[1].justify = "right"
        for name, count in counts.items():
            classes.add_row(escape(name), f"{count:,}")
        console.print(classes)


def stats_data(store: Store) -> dict[str, Any]:
    """Statistics as plain data."""
    return {
        "schema_version": 1,
        "num_samples": len(store),
        "fields": {name: entry.model_dump(mode="json") for name, entry in store.stats.items()},
        "classes": _class_counts(store),
    }


def transforms(console: Console, known: Mapping[str, type["Transform"]]) -> None:
    """Every transform, with its arguments and what it does."""
    table = _table("transform", "changes", "arguments", "what it does")
    for entry in transforms_data(known)["transforms"]:
        arguments = [
            name if default is None else f"{name}={default}" for name, default in entry["arguments"].items()
        ]
        row = (entry["name"], ", ".join(entry["roles"]), ", ".join(arguments), entry["summary"])
        table.add_row(*map(escape, row))
    console.print(table)


def transforms_data(known: Mapping[str, type["Transform"]]) -> dict[str, Any]:
    """The same as plain data; an argument without a default has null."""
    return {
        "schema_version": 1,
        "transforms": [
            {
                "name": name,
                "family": name.partition(".")[0],
                "roles": list(transform.roles),
                "arguments": {
                    each.name: None if each.default is inspect.Parameter.empty else repr(each.default)
                    for each in inspect.signature(transform).parameters.values()
                },
                "summary": (inspect.getdoc(transform) or "").partition("\n")[0],
            }
            for name, transform in known.items()
        ],
    }


def _table(*headers: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for header in headers:
        table.add_column(header, overflow="fold")  # nothing is ever cut off
    return table


def _splits_line(store: Store) -> str:
    if not store.splits:
        return ""
    empty = [name for name, count in store.splits.items() if count == 0]
    warning = f" (empty: {', '.join(empty)}!)" if empty else ""
    num_left = len(store) - sum(store.splits.values())
    left = f", in none of them {num_left:,}" if num_left else ""
    named = ", ".join(f"{name} {count:,}" for name, count in store.splits.items())
    return f"; {named}{left}{escape(warning)}"


def _differing_channels(field: "FieldSpec") -> str:
    said = f"{field.name}: {describe_field(field)}, samples differ in their number of channels"
    if field.dtype == "uint8" and len(field.shape) == 3:  # as images are
        said += " (--option channels=3 makes all images RGB, channels=1 grey)"
    return said


def _class_counts(store: Store) -> dict[str, dict[str, int]]:
    counts = {}
    for field, names in store.classes.items():
        found = np.bincount(np.asarray(store.column(field), np.int64), minlength=len(names))
        counts[field] = dict(zip(names, found.tolist(), strict=False))
    return counts


def _rest(console: Console, count: int, where: str) -> None:
    if count > _MAX_ROWS:
        console.print(f"… and {count - _MAX_ROWS} more: see {where}", highlight=False)
