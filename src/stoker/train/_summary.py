"""What is said of an epoch and of a run: a line to read, and metrics.json for programs."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stoker.train._files import replaced
from stoker.train._timing import StepTimes

SCHEMA_VERSION = 1

_SKIPPED = {"kind", "epoch", "step", "num_updates", "learning_rate", "peak_memory_bytes"}
_SKIPPED_ENDS = ("_fraction", "_per_s")


def epoch_line(row: Mapping[str, Any], epochs: int) -> str:
    """An epoch in one line: what was reached, and where its time went."""
    values = [
        f"{name} {value:.4g}"
        for name, value in row.items()
        if name not in _SKIPPED and not name.endswith(_SKIPPED_ENDS) and isinstance(value, float)
    ]
    return (
        f"epoch {row['epoch'] + 1}/{epochs}: {', '.join(values)} | {row['samples_per_s']:,.0f} samples/s; "
        f"time: data {row['data_wait_fraction']:.0%}, copy {row['copy_fraction']:.0%}, "
        f"compute {row['compute_fraction']:.0%}; peak {row['peak_memory_bytes'] / 1e9:.2f} GB"
    )


def write_metrics(
    path: Path,
    *,
    best: Mapping[str, Any],
    best_epoch: int | None,
    monitor: str,
    history: Sequence[Mapping[str, Any]],
    times: StepTimes,
    peak_memory_bytes: int,
) -> None:
    """The run so far, for other programs; replaced whole after every epoch."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "best": dict(best),
        "best_epoch": best_epoch,
        "monitor": monitor,
        "epochs": len(history),
        "samples_per_s": times.samples_per_s,
        "data_wait_fraction": times.data_wait_fraction,
        "copy_fraction": times.copy_fraction,
        "peak_memory_bytes": peak_memory_bytes,
        "last": {name: value for name, value in history[-1].items() if name != "kind"},
    }
    with replaced(path) as file:
        file.write(json.dumps(without_nan(content), indent=1, allow_nan=False).encode())


def without_nan(value: Any) -> Any:
    """The same for JSON, which has no numbers that are none: null in their place."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: without_nan(part) for name, part in value.items()}
    return [without_nan(part) for part in value] if isinstance(value, list | tuple) else value
