"""Packing: volumes become samples of a store. Labels stay in their table and are joined when it is read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stoker.errors import SourceError
from stoker.recipes._raw import pack_usable
from stoker.recipes._recipe import Prepared
from stoker.recipes.cardiac_ct._layout import (
    Study,
    find_studies,
    join_labels,
    read_table,
    studies_path,
)
from stoker.recipes.cardiac_ct._settings import CardiacSettings
from stoker.recipes.cardiac_ct._source import VolumeSource


def prepare(
    data: Path,
    store: Path,
    settings: CardiacSettings,
    *,
    force: bool = False,
    workers: int | None = None,
    validate_only: bool = False,
) -> Prepared:
    """Pack the volumes of a folder; run again, those that are new or changed.

    Rows without a file, files without a row, files that cannot be read, and labels that cannot be used
    are listed; none of them stops the others.

    Raises:
        UsageError: no such folder, or no table.
        SourceError: no study can be used.
    """
    table = read_table(studies_path(data, settings.studies), settings.studies.key)
    studies, problems = find_studies(data, table, settings.studies, split_column=settings.splits.column)
    found, bad = pack_usable(
        VolumeSource(studies, settings.volume),
        None if validate_only else store,
        what=f"volumes in {data}",
        force=force,
        workers=workers,
        batch_size=settings.packing.batch_size,
        compression=settings.packing.compression,
        progress=settings.progress,
    )
    used = [each for each in studies if each.key in found]
    counts = {
        "studies in the table": len(table.rows),
        "studies": len(used),
        "patients": len({each.patient for each in used}),
    }
    known, label_problems = _label_counts(data, used, settings)
    return Prepared(store, len(used), {**counts, **known}, (*problems, *bad, *label_problems))


def _label_counts(
    data: Path, studies: Sequence[Study], settings: CardiacSettings
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """How many studies lack which label, and what is wrong with labels; packing does not need any."""
    own = studies_path(data, settings.studies)
    path = settings.labels.csv or own
    try:
        table = read_table(path, settings.studies.key)
        labels = join_labels([each.key for each in studies], table, settings.labels)
    except SourceError as error:
        return {}, (str(error),)
    unmatched: list[str] = []
    if path != own:
        listed = read_table(own, settings.studies.key).rows
        unmatched = [f"{key} of {path.name} is not in {own.name}" for key in table.rows if key not in listed]
    return labels.counts(), (*labels.problems, *unmatched)
