"""A picture of a benchmark: its ratios, each beside the budget it has to keep."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LABEL_WIDTH = 90  # letters of a line


def draw_ratios(rows: Sequence[Any], path: Path, *, title: str) -> bool:
    """A bar a ratio on a log scale, with its range; a tick marks the budget. False if nothing was drawn."""
    ratios = [row for row in rows if row.unit == "ratio" and row.repetitions and row.value > 0]
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    if not ratios:
        return False
    labels = [textwrap.fill(_label(row), _LABEL_WIDTH) for row in ratios]
    num_lines = sum(max(2, label.count("\n") + 1) for label in labels)
    figure = Figure((11, 0.13 * num_lines + 1.4), layout="constrained")
    axes = figure.add_subplot()
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    for place, row in enumerate(reversed(ratios)):
        _draw_bar(axes, place, row)
    axes.set_yticks(range(len(ratios)), labels[::-1], fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1, color="#999999", linewidth=0.8)
    axes.margins(y=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    return True


def _draw_bar(axes: Any, place: int, row: Any) -> None:
    budget = _budget(row.system)
    kept = budget is None or row.value >= budget
    axes.barh(place, row.value, color="#8fa9bf" if kept else "#d1495b", height=0.7)
    axes.plot([max(row.low, 1e-9), row.high], [place, place], color="#222222", linewidth=1)
    if budget is not None:
        axes.plot([budget, budget], [place - 0.45, place + 0.45], color="#222222", linewidth=1.6)
    axes.text(max(row.high, row.value) * 1.04, place, f"{row.value:.3g}", va="center", fontsize=7)


def _label(row: Any) -> str:
    return f"{row.workload}: {row.system.partition(' (budget')[0]}"


def _budget(system: str) -> float | None:
    _, found, rest = system.rpartition("(budget ")
    return float(rest.rstrip(")")) if found else None
