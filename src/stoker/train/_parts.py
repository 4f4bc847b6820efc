"""The parts of the data that settings name: stores, splits of them, windows over sessions, and weights."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoker.config._training import DataSettings, LoaderSettings, PartSettings, WindowSettings
from stoker.errors import ConfigError, SourceError, UsageError
from stoker.loader import Windows, balanced_weights, windows
from stoker.loader._open_sessions import session_files
from stoker.store import Store, open_store
from stoker.store._settings import find_object

Weights: TypeAlias = NDArray[np.float64]

_ALL_ZERO = "all_zero:"


@dataclass(frozen=True)
class Part:
    """One part of the data, ready for a loader."""

    source: Store | Windows
    classes: Mapping[str, tuple[str, ...]]  # names behind label numbers, by field
    weights: Weights | None  # by which samples are drawn; None for every sample once


@contextmanager
def opened_parts(data: DataSettings) -> Iterator[dict[str, Part]]:
    """Training and validation data by name, "train" and "val"; files are closed afterwards.

    Raises:
        ConfigError: names the setting that does not fit the data.
        StoreError: a store cannot be opened.
    """
    parts: dict[str, Part] = {}
    if data.windows is not None and (data.loader.cache is not None or data.loader.preload):
        warnings.warn(
            "data.loader.cache and preload are for whole samples and do nothing for windows, which keep "
            "data.windows.chunk_cache_bytes of decoded chunks; set them to null and false",
            stacklevel=3,
        )
    try:
        parts["train"] = _open(data, "train", data.train)
        parts["train"] = replace(parts["train"], weights=draw_weights(parts["train"].source, data.loader))
        if data.val is not None:
            parts["val"] = _open(data, "val", data.val)
        yield parts
    finally:
        for part in parts.values():
            if isinstance(part.source, Windows):
                part.source.close()


def data_size(data: DataSettings) -> tuple[int, bool]:
    """Bytes of all stores and files that are named, each once, and whether a store is compressed."""
    paths: set[Path] = set()
    stores: set[Path] = set()
    for part in (data.train, data.val):
        if part is not None and part.store is not None:
            stores.add(part.store.resolve())
        elif part is not None and part.files is not None:
            paths.update(Path(path).resolve() for path in session_files(part.files)[0])
    manifests = [open_store(path).manifest for path in stores]
    num_bytes = sum(path.stat().st_size for path in paths) + sum(each.num_bytes for each in manifests)
    return num_bytes, any(each.compression != "none" for each in manifests)


def draw_weights(source: Store | Windows, loader: LoaderSettings) -> Weights | None:
    """A weight for each sample, or None where each comes once an epoch.

    The field is one of the store's; of a window, what is known of its session: a text or single number
    of the store's sample, or an attribute of the file. A window counts as its session does, so that
    classes are balanced over windows, however long the sessions are.
    """
    name, how = (loader.balance, "balance") if loader.balance else (loader.weights, "weights")
    if name is None:
        return None
    values = _values(source, name, f"data.loader.{how}")
    if how == "balance":
        return balanced_weights(values)
    if values.dtype.kind not in "fiub":
        raise ConfigError(f"data.loader.weights: weights must be numbers, {name!r} is {values.dtype}")
    return values.astype(np.float64)


def _open(data: DataSettings, name: str, part: PartSettings) -> Part:
    store: Store | None = None
    if part.store is not None:
        store = open_store(part.store)
        try:
            store = store if part.split is None else store.split(part.split)
        except UsageError as error:
            raise ConfigError(f"data.{name}.split: {error}, in {part.store}") from None
    classes = {} if store is None else store.classes
    if data.windows is None:
        assert store is not None
        return Part(store, classes, None)
    session_data = store if part.files is None else part.files
    assert session_data is not None
    return Part(_windows(session_data, data.windows, data.fields, training=name == "train"), classes, None)


def _windows(
    data: Store | str | tuple[str, ...],
    settings: WindowSettings,
    fields: tuple[str, ...] | None,
    *,
    training: bool,
) -> Windows:
    try:
        return windows(
            data,
            length=settings.length,
            stride=settings.stride,
            padding=settings.padding,
            jitter=settings.jitter if training else 0,
            skip=_skip(settings.skip),
            fields=fields,
            time_axis=settings.time_axis,
            channels_first=settings.channels_first,
            group=settings.group,
            dataset=settings.dataset,
            chunk_cache_bytes=settings.chunk_cache_bytes,
        )
    except (UsageError, SourceError) as error:
        raise ConfigError(f"data.windows: {error}") from error


def _skip(named: str | None) -> Any:
    """The rule itself, or the function that ``module:callable`` names."""
    return named if named is None or named.startswith(_ALL_ZERO) else find_object(named)


def _values(source: Store | Windows, name: str, setting: str) -> NDArray[Any]:
    """The field's value for each sample, [samples]."""
    if isinstance(source, Store):
        known = [field.name for field in source.fields.values() if field.kind == "string" or not field.shape]
        _check_known(name, known, setting)
        return np.asarray(source.column(name))
    by_session = [source.attributes(session) for session in range(source.num_sessions)]
    for session, attributes in enumerate(by_session):
        _check_known(name, attributes, f"{setting}, session {source.session_key(session)!r}")
    return np.array([attributes[name] for attributes in by_session])[source.sessions()]


def _check_known(name: str, known: Any, setting: str) -> None:
    if name not in known:
        near = get_close_matches(name, list(known), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}"
        raise ConfigError(f"{setting}: a field must have one value a sample, {name!r} is none such; {hint}")
