"""Raw files: judged, packed where they can be used, made up where there are none."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import stoker
from stoker.config import usable_cores
from stoker.errors import BadSampleError, SourceError, StoreNotFoundError, UsageError

Thing = TypeVar("Thing")
Answer = TypeVar("Answer")


def is_store(path: Path) -> bool:
    """Whether there is a store; a damaged one raises what is wrong with it."""
    try:
        stoker.open(path)
    except (StoreNotFoundError, NotADirectoryError):
        return False
    return True


def in_processes(
    look: Callable[[Thing], Answer], things: Sequence[Thing], *, workers: int | None
) -> list[Answer]:
    """What `look` says of each, in as many processes as packing would take."""
    num_workers = min(usable_cores() if workers is None else workers, len(things))
    if num_workers < 2:
        return [look(thing) for thing in things]
    with ProcessPoolExecutor(num_workers) as pool:
        return list(pool.map(look, things, chunksize=max(1, len(things) // (16 * num_workers))))


def pack_usable(
    source: Any,
    store: Path | None,
    *,
    what: str,
    fields: Sequence[str] = (),
    workers: int | None,
    **options: Any,
) -> tuple[dict[str, tuple[Any, ...]], tuple[str, ...]]:
    """Pack the samples that can be read; without a store, only read them.

    The small `fields` of each sample that can be used, by its key; and a line for each that cannot.

    Raises:
        SourceError: none can be used.
    """
    if store is not None:
        packed = stoker.pack(source, store, on_error="skip", workers=workers, **options)
        columns = [packed.column(name) for name in fields]
        found = {packed.key(i): tuple(column[i] for column in columns) for i in range(len(packed))}
        skipped = json.loads((store / "statistics.json").read_text())["skipped"]
        return found, tuple(str(BadSampleError(each["key"], each["why"])) for each in skipped)
    num_parts = max(1, min(usable_cores() if workers is None else workers, len(source)))
    parts = [range(start, len(source), num_parts) for start in range(num_parts)]
    answers = in_processes(partial(_read, source, fields), parts, workers=workers)
    judged = sorted(chain.from_iterable(answers), key=itemgetter(0))
    found = {source.key(i): values for i, values in judged if not isinstance(values, str)}
    bad = tuple(why for _, why in judged if isinstance(why, str))
    if not found:
        raise SourceError(f"none of the {len(source)} {what} can be used; {bad[0]}")
    return found, bad


def _read(source: Any, fields: Sequence[str], numbers: range) -> list[tuple[int, tuple[Any, ...] | str]]:
    """The fields of each of these samples, or why it cannot be used."""
    answers: list[tuple[int, tuple[Any, ...] | str]] = []
    for i in numbers:
        try:
            sample = source[i]
        except BadSampleError as error:
            answers.append((i, str(error)))
        else:
            answers.append((i, tuple(sample[name] for name in fields)))
    return answers


def make_up(folder: Path, facts: Mapping[str, Any], *, what: str, write: Callable[[Path], object]) -> None:
    """Write synthetic data, unless the folder has just those of these facts already.

    Raises:
        UsageError: the folder holds something else.
    """
    note, wanted = folder / "synthetic.json", json.dumps(facts)
    if note.is_file() and note.read_text() == wanted:
        return
    if folder.is_dir() and any(folder.iterdir()):
        if not note.is_file():
            raise UsageError(f"{folder} holds something else than synthetic {what}; choose another folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    note.write_text("unfinished")  # so that what was interrupted is known to be ours
    write(folder)
    note.write_text(wanted)
