"""The report's files. Each is whole or absent: it gets its name only when all of it is written."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

from stoker.doctor._diagnosis import Comparison, Diagnosis
from stoker.doctor._json import to_json
from stoker.doctor._record import Record
from stoker.doctor.report._html import render_page
from stoker.doctor.report._trace import trace_chunks


class Paths(NamedTuple):
    """Where the report lies."""

    html: Path
    json: Path
    trace: Path


def write_report(
    folder: Path, record: Record, diagnosis: Diagnosis, *, comparison: Comparison | None = None
) -> Paths:
    """Write report.html, report.json and trace.json into a folder, which is made where it is missing.

    Files of an earlier report are replaced one by one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = Paths(folder / "report.html", folder / "report.json", folder / "trace.json")
    _replace(paths.html, [render_page(record, diagnosis, comparison=comparison)])
    _replace(paths.json, [json.dumps(to_json(diagnosis, record), indent=2, allow_nan=False), "\n"])
    _replace(paths.trace, trace_chunks(record))
    return paths


def _replace(path: Path, chunks: Iterable[str]) -> None:
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False
    ) as file:
        temporary = Path(file.name)
        try:
            file.writelines(chunks)
            file.close()
            # a temporary file is private to its owner; a report is a file like others
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
            temporary.replace(path)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(path)  # a full disk does not say whose write it was
            raise
