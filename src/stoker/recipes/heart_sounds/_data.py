"""The data of a run: a store, raw files that are packed first, or synthetic recordings."""

from pathlib import Path

import stoker
from stoker.errors import UsageError
from stoker.recipes._raw import is_store
from stoker.recipes.heart_sounds._prepare import prepare
from stoker.recipes.heart_sounds._settings import HeartSoundSettings
from stoker.recipes.heart_sounds._synthetic_sets import (
    write_cinc,
    write_circor,
    write_pascal,
    write_recordings,
)
from stoker.recipes.heart_sounds._tasks import TASKS


def write_synthetic(folder: Path, settings: HeartSoundSettings) -> None:
    """Synthetic recordings in the layout that the task's collection has."""
    layout, ask, seed = TASKS[settings.task].layout, settings.synthetic, settings.synthetic.seed
    if layout == "circor":
        write_circor(folder, num_patients=ask.num_patients, seconds=ask.seconds, seed=seed)
    elif layout == "cinc":
        write_cinc(folder, num_recordings=2 * ask.num_patients, seconds=ask.seconds, seed=seed)
    elif layout == "pascal":
        write_pascal(folder, num_per_class=max(1, ask.num_patients // 3), seed=seed)
    else:
        write_recordings(folder, num_per_class=ask.num_patients, seed=seed)


def store_path(settings: HeartSoundSettings) -> Path:
    """Where the run's store is, or will be."""
    if settings.data is None:
        ask = settings.synthetic
        size = f"{ask.num_patients}-{ask.seconds:g}s-{ask.seed}"  # other sizes are other data
        return settings.out / f"synthetic-{TASKS[settings.task].layout}-{size}.stoker"
    if is_store(settings.data):
        return settings.data
    return settings.out / f"{settings.data.resolve().name}.stoker"


def make_store(settings: HeartSoundSettings) -> tuple[str, ...]:
    """Have the run's store ready; one process of a run does this. Gives what should be said about it."""
    path = store_path(settings)
    if settings.data is not None and path == settings.data:
        return ()
    data = settings.data
    if data is None:
        data = path.with_name(path.name.removesuffix(".stoker"))
        if not data.exists():
            beginning = data.with_name(f".writing-{data.name}")
            write_synthetic(beginning, settings)
            beginning.rename(data)
    prepared = prepare(data, path, settings)
    return (f"{prepared.num_samples} cycles packed into {path}", *prepared.problems[:5])


def open_data(settings: HeartSoundSettings, *, with_label: bool) -> stoker.Store:
    """Open the run's store.

    Raises:
        UsageError: it is not one of cycles, has other cycles than the settings say, or no such label.
    """
    store = stoker.open(store_path(settings))
    missing = {"x", "bounds", "patient", "recording"} - set(store.fields)
    if missing:
        raise UsageError(
            f"{store.path} must be a store of cycles, and has no {', '.join(sorted(missing))}; "
            f"make one with `stoker pack --recipe heart-sounds DATA STORE`"
        )
    length, wanted = store.fields["x"].shape[-1], settings.cycles.length
    if length != wanted:
        raise UsageError(
            f"{store.path} has cycles of {length} points, the settings say cycles.length={wanted}; "
            f"take the settings (--profile, --set cycles.…) that it was packed with"
        )
    field = TASKS[settings.task].field
    if with_label and field not in store.classes:
        known = [name for name, each in TASKS.items() if each.field in store.classes]
        raise UsageError(
            f"{store.path} has no labels {field!r} for the task {settings.task}; "
            f"it has those of {', '.join(known) or 'no task'}"
        )
    return store
