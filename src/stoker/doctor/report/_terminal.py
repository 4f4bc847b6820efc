"""The diagnosis on a terminal: as clear as the page, in 80 columns, without colour where there is none."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stoker.doctor._diagnosis import Advice, Cause, Comparison, Diagnosis, Interval
from stoker.doctor._record import STAGES, Place, Record
from stoker.doctor._words import count, duration, error_line, percent, size, times, times_range
from stoker.doctor.report._words import (
    MINUS,
    OVERLAP,
    VERDICT_MEANINGS,
    in_order,
    place_name,
    plain,
    stage_name,
    training_words,
)

if TYPE_CHECKING:
    from stoker.doctor._check import CheckResult

_MAX_WIDTH = 100
_MAX_ADVICE = 5
_MAX_CAUSES = 4
_VERDICT_STYLES = {
    "input-bound": "bold white on red",
    "copy-bound": "bold black on yellow",
    "compute-bound": "bold black on green",
    "python-bound": "bold white on magenta",
    "mixed": "bold white on blue",
    "nothing observed": "bold reverse",
}
# colour, and the letter that draws the bar where there are no colours
_STAGE_LOOKS = {
    "wait": ("red", "W"),
    "copy": ("yellow", "C"),
    "augment": ("magenta", "A"),
    "forward": ("blue", "F"),
    "backward": ("cyan", "B"),
    "optimizer": ("green", "O"),
    "other": ("bright_black", "-"),
}


def print_diagnosis(
    console: Console, diagnosis: Diagnosis, record: Record, *, comparison: Comparison | None = None
) -> None:
    """Print the verdict, where a step's time goes, the ceiling, the culprit, the advice and the notes."""
    width = min(console.width, _MAX_WIDTH)
    coloured = console.is_terminal and console.color_system is not None and not console.no_color
    parts: list[RenderableType | None] = [
        _headline(diagnosis, coloured=coloured),
        _crash(record),
        _comparison(comparison, width=width, coloured=coloured) if comparison else None,
        _stages(diagnosis, record, width=width, coloured=coloured) if diagnosis.stages else None,
        _facts(diagnosis, record),
        _causes(diagnosis.causes, record),
        _advice(diagnosis, record),
        _notes(diagnosis),
        _overhead(diagnosis),
    ]
    _show(console, [part for part in parts if part is not None], between="\n")


def print_check(console: Console, result: "CheckResult") -> None:
    """Print whether a run got slower than its baseline, beyond noise, and which stages changed."""
    word, style = ("OK", "bold green") if result.ok else ("SLOWER", "bold red")
    table = Table.grid(padding=(0, 2))
    table.add_column()
    for _ in range(3):
        table.add_column(justify="right")
    for name in in_order(result.stages):
        change = result.stages[name]
        worse = change.change_s.value > 0
        look = ("red" if worse else "green") if change.is_significant else "dim"
        sign = "+" if worse else MINUS
        table.add_row(
            Text(f"  {plain(stage_name(name))}"),
            Text(duration(change.before_s)),
            Text(duration(change.after_s)),
            Text(f"{sign}{duration(abs(change.change_s.value))}", style=look),
            Text("" if change.is_significant else "within noise", style="dim"),
        )
    took = f"a step takes {percent(1 + result.slowdown.value)} of the baseline's, ± {percent(result.noise)}"
    sentence = Text.assemble((word, style), "  ", plain(result.sentence))
    _show(console, [sentence, Text(f"  {took}", style="dim"), table], between="")


def split_cells(shares: Mapping[str, float], *, width: int) -> dict[str, int]:
    """Cells of a bar for each share: they sum up to the width, and nothing that took time vanishes."""
    seen = {name: share for name, share in shares.items() if share > 0}
    whole = sum(seen.values())
    if not seen:
        return {}
    kept = dict(sorted(seen.items(), key=lambda item: -item[1])[:width])
    cells = dict.fromkeys(kept, 1)
    for _ in range(width - len(cells)):
        # to the one that is furthest from its due
        name = max(kept, key=lambda each: kept[each] / whole * width - cells[each])
        cells[name] += 1
    return {name: cells[name] for name in seen if name in cells}


def _show(console: Console, parts: list[RenderableType], *, between: str) -> None:
    for part in parts:
        # a console that wraps softly would not lay out columns
        console.print(part, width=min(console.width, _MAX_WIDTH), soft_wrap=False, highlight=False)
        console.print(between, end="")


def _headline(diagnosis: Diagnosis, *, coloured: bool) -> RenderableType:
    label = f" {diagnosis.verdict.upper()} " if coloured else diagnosis.verdict.upper()
    sure = f", {percent(diagnosis.confidence)} sure" if diagnosis.verdict != "nothing observed" else ""
    first = Text.assemble(
        (label, _VERDICT_STYLES[diagnosis.verdict]), (f"  {VERDICT_MEANINGS[diagnosis.verdict]}{sure}", "dim")
    )
    return Group(first, Text(plain(diagnosis.sentence), style="bold"))


def _crash(record: Record) -> Text | None:
    if record.ended != "crashed":
        return None
    said = plain(error_line(record.error or ""))
    return Text.assemble(
        ("The script crashed", "bold red"), f" (exit code {record.exit_code}): {said}\n",
        ("What follows tells of the time before that.", "dim"),
    )  # fmt: skip


def _stages(diagnosis: Diagnosis, record: Record, *, width: int, coloured: bool) -> RenderableType:
    rate = f", {count(diagnosis.samples_per_s)} samples/s" if diagnosis.samples_per_s else ""
    title = Text.assemble(
        ("Where a step's time goes", "bold"), (f"  {duration(diagnosis.step_s.value)} a step{rate}", "dim")
    )
    legend = Table.grid(padding=(0, 2), expand=False)
    for _ in range(2):
        legend.add_column()
        legend.add_column(justify="right")
        legend.add_column(justify="right", min_width=6)
    entries = [
        [
            _entry(stage, coloured=coloured),
            Text(duration(seconds)),
            Text(percent(seconds / diagnosis.step_s.value)),
        ]
        for stage in in_order(diagnosis.stages)
        for seconds in [diagnosis.stages[stage]]
        if diagnosis.step_s.value > 0
    ]
    half = (len(entries) + 1) // 2
    for left, right in zip(entries[:half], [*entries[half:], []], strict=False):
        legend.add_row(*left, *right)
    missing = [_missing(stage, record) for stage in STAGES if stage not in diagnosis.stages]
    if diagnosis.pause_s_per_step > 0:
        starts = duration(diagnosis.pause_s_per_step)
        missing.append(
            Text(f"  beside the step: {starts} for starts of epochs, spread over steps", style="dim")
        )
    return Group(title, _bar(diagnosis, width=width, coloured=coloured), legend, *missing)


def _bar(diagnosis: Diagnosis, *, width: int, coloured: bool) -> Text:
    bar = Text()
    stages = {stage: diagnosis.stages[stage] for stage in in_order(diagnosis.stages)}
    for stage, cells in split_cells(stages, width=width).items():
        colour, letter = _STAGE_LOOKS.get(stage, _STAGE_LOOKS["other"])
        bar.append(("█" if coloured else letter) * cells, style=colour)
    return bar


def _entry(stage: str, *, coloured: bool) -> Text:
    colour, letter = _STAGE_LOOKS.get(stage, _STAGE_LOOKS["other"])
    return Text.assemble(("■" if coloured else letter, colour), " ", plain(stage_name(stage)))


def _missing(stage: str, record: Record) -> Text:
    why = record.not_observed.get(stage)
    return Text(plain(f"  {stage_name(stage)}: not observed{f' ({why})' if why else ''}"), style="dim")


def _facts(diagnosis: Diagnosis, record: Record) -> RenderableType | None:
    rows: list[tuple[str, Text]] = []
    if diagnosis.stages:
        rows.append(("Starved", Text(f"{percent(diagnosis.starved_fraction)} of a step waits for data")))
        rows.append(("Ceiling", _ceiling(diagnosis)))
    if diagnosis.culprit:
        rows.append(("To blame", Text(plain(diagnosis.culprit), style="bold")))
        if diagnosis.culprit_place:
            rows.append(("", _place(diagnosis.culprit_place, record)))
    return _grid(rows) if rows else None


def _ceiling(diagnosis: Diagnosis) -> Text:
    if diagnosis.ceiling_speedup is None:
        return Text("not measured", style="dim")
    said = Text.assemble(*_speedup(diagnosis.ceiling_speedup), " with batches always ready")
    if diagnosis.device_ceiling_speedup is not None:
        said.append_text(
            Text.assemble("\n", *_speedup(diagnosis.device_ceiling_speedup), " with batches on the device")
        )
    return said


def _speedup(interval: Interval) -> tuple[tuple[str, str], str]:
    return (times(interval.value), "bold"), f" ({times_range(interval)})"


def _causes(causes: tuple[Cause, ...], record: Record) -> RenderableType | None:
    if not causes:
        return None
    rows = []
    for cause in sorted(causes, key=lambda cause: -cause.share)[:_MAX_CAUSES]:
        rest = cause.text.removeprefix(cause.kind)  # many begin with their kind
        said = Text.assemble((plain(cause.kind), "bold"), plain(rest if rest != cause.text else f": {rest}"))
        if cause.place:
            said.append_text(Text.assemble("  ", _where(cause.place, record)))
        rows.append((percent(cause.share), said))
    parts: list[RenderableType] = [Text("Causes", style="bold"), _grid(rows, justify="right")]
    if sum(cause.share for cause in causes) > 1:
        parts.append(Text(f"  {OVERLAP}", style="dim"))
    return Group(*parts)


def _advice(diagnosis: Diagnosis, record: Record) -> RenderableType | None:
    title = Text("What to do", style="bold")
    if not diagnosis.advice:
        return Group(title, Text("  Leave the loader alone.")) if diagnosis.has_nothing_to_gain else None
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(justify="right", style="dim")
    table.add_column(ratio=1, overflow="fold")
    table.add_column(justify="right")
    for number, item in enumerate(diagnosis.advice[:_MAX_ADVICE], 1):
        gain = Text.assemble(
            (times(item.speedup.value), "bold green"), (f"\n{times_range(item.speedup)}", "dim")
        )
        table.add_row(f"{number}.", _one_advice(item, record), gain)
    rest = len(diagnosis.advice) - _MAX_ADVICE
    more = [Text(f"    and {rest} more in the report", style="dim")] if rest > 0 else []
    return Group(title, table, *more)


def _one_advice(item: Advice, record: Record) -> Text:
    facts: list[Text] = []
    if item.place:
        facts.append(Text.assemble(_where(item.place, record)))
    if item.ram_bytes:
        more = "more" if item.ram_bytes > 0 else "less"
        facts.append(Text(f"{size(abs(item.ram_bytes))} {more} memory", style="dim"))
    if item.changes_training:
        facts.append(Text(training_words(item), style="yellow"))
    said = Text.assemble((plain(item.action), "bold"), "\n", plain(item.reason))
    return said.append("\n").append_text(Text(", ").join(facts)) if facts else said


def _comparison(done: Comparison, *, width: int, coloured: bool) -> RenderableType:
    before, after = done.before, done.after
    longest = max(before.step_s.value, after.step_s.value)
    rows = []
    for name, found in (("before", before), ("after", after)):
        cells = round((width - 26) * found.step_s.value / longest) if longest else 0
        rows.append((name, duration(found.step_s.value), _bar(found, width=max(1, cells), coloured=coloured)))
    table = Table.grid(padding=(0, 2))
    for name, figure, bar in rows:
        table.add_row(Text(f"  {name}", style="dim"), Text(figure, justify="right"), bar)
    speedups = Text.assemble(
        "  achieved ", *_speedup(done.achieved), ", predicted ", *_speedup(done.predicted)
    )  # fmt: skip
    return Group(Text("Before and after", style="bold"), speedups, table)


def _notes(diagnosis: Diagnosis) -> RenderableType | None:
    if not diagnosis.notes:
        return None
    return Group(Text("Notes", style="bold"), _grid([("-", Text(plain(note))) for note in diagnosis.notes]))


def _overhead(diagnosis: Diagnosis) -> Text | None:
    step_s = diagnosis.step_s.value
    if step_s <= 0:
        return None
    cost = diagnosis.overhead_s_per_step
    return Text(f"The doctor's own cost: {duration(cost)} a step, {percent(cost / step_s)}.", style="dim")


def _grid(rows: list[tuple[str, Text]], *, justify: str = "left") -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right" if justify == "right" else "left", style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, said in rows:
        table.add_row(f"  {label}", said)
    return table


def _place(place: Place, record: Record) -> Text:
    text = plain(place.text).replace("\n", " ")
    shown = text if len(text) <= _MAX_WIDTH else f"{text[: _MAX_WIDTH - 1]}…"
    return Text.assemble(_where(place, record), "  ", (shown, "italic"))


def _where(place: Place, record: Record) -> tuple[str, str]:
    return plain(place_name(place, record)), "cyan"
