"""Packing: volumes become samples of a store. Labels stay in their table and are joined when it is read."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import stoker
from stoker.config import usable_cores
from stoker.errors import BadSampleError, SourceError
from stoker.recipes._recipe import Prepared
from stoker.recipes.cardiac_ct._layout import (
    Study,
    find_studies,
    join_labels,
    read_table,
    studies_path,
)
from stoker.recipes.cardiac_ct._settings import CardiacSettings, VolumeSettings
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
    if validate_only:
        bad = _look_at_all(studies, settings.volume, workers)
    else:
        packed = stoker.pack(
            VolumeSource(studies, settings.volume),
            store,
            on_error="skip",
            force=force,
            workers=workers,
            batch_size=settings.packing.batch_size,
            compression=settings.packing.compression,
            progress=settings.progress,
        )
        there = {packed.key(i) for i in range(len(packed))}
        bad = _look_at_all([each for each in studies if each.key not in there], settings.volume, workers)
    used = [each for each in studies if each.key not in bad]
    if not used:
        raise SourceError(
            f"none of the {len(studies)} volumes in {data} can be used; {next(iter(bad.values()))}"
        )
    counts = {
        "studies in the table": len(table.rows),
        "studies": len(used),
        "patients": len({each.patient for each in used}),
    }
    known, label_problems = _label_counts(data, used, settings)
    return Prepared(store, len(used), {**counts, **known}, (*problems, *bad.values(), *label_problems))


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


def _look_at_all(
    studies: Sequence[Study], settings: VolumeSettings, workers: int | None
) -> Mapping[str, str]:
    """What is wrong with the volumes that cannot be used, by the study's key."""
    num_workers = min(usable_cores() if workers is None else workers, len(studies))
    look = partial(_look, settings=settings)
    if num_workers > 1:
        with ProcessPoolExecutor(num_workers) as pool:
            answers = list(pool.map(look, studies))
    else:
        answers = [look(each) for each in studies]
    return {study.key: why for study, why in zip(studies, answers, strict=True) if why is not None}


def _look(study: Study, *, settings: VolumeSettings) -> str | None:
    try:
        VolumeSource([study], settings)[0]
    except BadSampleError as error:
        return str(error)
    return None
