"""Logs of a run: rows of numbers to a file or to TensorBoard.

A row has `kind` ("interval" or "epoch"), `epoch`, `step`, and numbers. A run that goes on drops the rows that
were written after the checkpoint it goes on from: every step is in the log once.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stoker.errors import MissingExtraError, UsageError
from stoker.train._files import replaced
from stoker.train._summary import without_nan

Row = Mapping[str, Any]


class Log(Protocol):
    """Where rows go to. Only the first rank has any."""

    def begin(self, step: int, epoch: int) -> None:
        """A run starts (at 0, 0), or goes on after that step, in that epoch."""

    def write(self, row: Row) -> None:
        """One row."""

    def close(self) -> None:
        """The run ends; another may begin."""


class JsonLog:
    """One JSON object a line, for every log interval and every epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: io.TextIOWrapper | None = None

    def begin(self, step: int, epoch: int) -> None:
        """Keep the rows up to there."""
        kept = [row for row in _rows(self.path) if _is_before(row, step, epoch)] if step else []
        with replaced(self.path) as file:
            file.writelines(f"{json.dumps(row)}\n".encode() for row in kept)
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, row: Row) -> None:
        """Append it; a reader sees it at once."""
        assert self._file is not None
        self._file.write(f"{json.dumps(without_nan(row), allow_nan=False)}\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class CsvLog:
    """A table with one row an epoch, whole at any moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: list[Row] = []

    def begin(self, step: int, epoch: int) -> None:
        """Keep the rows up to there."""
        self._rows = []
        if step and self.path.exists():
            with self.path.open(newline="", encoding="utf-8") as file:
                self._rows = [row for row in csv.DictReader(file) if int(row["epoch"]) < epoch]

    def write(self, row: Row) -> None:
        """Add an epoch."""
        if row["kind"] != "epoch":
            return
        self._rows.append({name: value for name, value in row.items() if name != "kind"})
        columns = dict.fromkeys(name for each in self._rows for name in each)
        text = io.StringIO()
        table = csv.DictWriter(text, list(columns), lineterminator="\n")
        table.writeheader()
        table.writerows(self._rows)
        with replaced(self.path) as file:
            file.write(text.getvalue().encode())

    def close(self) -> None:
        """Nothing is open."""


class TensorBoardLog:
    """Scalars for TensorBoard; needs the extra ``tensorboard``."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError(
                "logging to TensorBoard", extra="tensorboard", library="tensorboard"
            ) from error
        self._make = SummaryWriter
        self.folder = folder
        self._writer: Any = None

    def begin(self, step: int, epoch: int) -> None:  # noqa: ARG002 - as the others
        """Hide what an earlier process wrote after that step."""
        self._writer = self._make(str(self.folder), purge_step=step + 1 if step else None)

    def write(self, row: Row) -> None:
        """Every number under its name."""
        for name, value in row.items():
            if name not in {"kind", "step"} and isinstance(value, int | float):
                self._writer.add_scalar(f"{row['kind']}/{name}", value, row["step"])

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def make_logs(log: Any, folder: Path | None) -> list[Log]:
    """The logs that a user asked for: names, logs, or several; "auto" is JSON lines if there is a folder."""
    if log is None:
        return []
    if log == "auto":
        return [] if folder is None else [JsonLog(folder / "log.jsonl")]
    wanted = log if isinstance(log, Sequence) and not isinstance(log, str) else [log]
    return [_make(each, folder) if isinstance(each, str) else each for each in wanted]


def _make(name: str, folder: Path | None) -> Log:
    kinds: dict[str, Any] = {
        "jsonl": lambda root: JsonLog(root / "log.jsonl"),
        "csv": lambda root: CsvLog(root / "log.csv"),
        "tensorboard": lambda root: TensorBoardLog(root / "tensorboard"),
    }
    if name not in kinds:
        raise UsageError(f"log must be one of auto, {', '.join(kinds)}, or an object like them, got {name!r}")
    if folder is None:
        raise UsageError(f"log={name!r} needs a folder to write to; pass checkpoint_dir")
    made: Log = kinds[name](folder)
    return made


def _rows(path: Path) -> list[Any]:
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break  # a process was killed while it wrote this one
    return rows


def _is_before(row: Row, step: int, epoch: int) -> bool:
    return bool(row["epoch"] < epoch if row["kind"] == "epoch" else row["step"] <= step)
