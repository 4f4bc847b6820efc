"""The settings of a packing run, as a file or the command line gives them."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field

from stoker.config import Settings
from stoker.errors import ConfigError, UsageError
from stoker.store._codec import Compression
from stoker.store._manifest import SHARD_BYTES
from stoker.store._pack import OnError, pack
from stoker.store._store import Store
from stoker.store.sources import open_source
from stoker.store.sources._nearest import did_you_mean


class TransformSettings(Settings):
    """A transform by name."""

    name: str  # "module:function" or "module:Class"
    parameters: dict[str, Any] = Field(default_factory=dict)  # makes it of the class or factory
    version: str | None = None


class SplitSettings(Settings):
    """Named splits."""

    fractions: dict[str, float]
    stratify: str | None = None
    group: str | None = None


class PackSettings(Settings):
    """What to pack, where to and how; see ``stoker.pack`` for the meaning of each."""

    source: str
    out: Path
    options: dict[str, Any] = Field(default_factory=dict)  # of the source: labels, path_column, …
    transform: TransformSettings | None = None
    splits: SplitSettings | None = None
    channel_axis: dict[str, int | None] = Field(default_factory=dict)
    compression: Compression = "none"
    on_error: OnError = "raise"
    num_workers: int | None = Field(default=None, ge=0)
    scheduler: str | None = None  # of a Dask cluster: its address, or local:4
    batch_size: int | None = Field(default=None, ge=1)
    shard_bytes: int = Field(default=SHARD_BYTES, ge=1)
    force: bool = False


def pack_by_settings(settings: PackSettings, *, progress: bool = True) -> Store:
    """``stoker.pack`` with everything named in the settings."""
    splits = settings.splits
    return pack(
        find_source(settings.source, settings.options),
        settings.out,
        transform=None if settings.transform is None else find_transform(settings.transform),
        transform_version=None if settings.transform is None else settings.transform.version,
        workers=settings.num_workers,
        scheduler=settings.scheduler,
        batch_size=settings.batch_size,
        compression=settings.compression,
        on_error=settings.on_error,
        splits=None if splits is None else splits.fractions,
        stratify=None if splits is None else splits.stratify,
        group=None if splits is None else splits.group,
        channel_axis=settings.channel_axis,
        shard_bytes=settings.shard_bytes,
        force=settings.force,
        progress=progress,
    )


def find_source(spec: str, options: dict[str, Any]) -> Any:
    """The source that a path, a glob or ``module:object`` means."""
    if ":" in spec and not os.path.lexists(spec) and "/" not in spec:
        found = find_object(spec)
        return _made(found, spec, options) if isinstance(found, type) or options else found
    return open_source(spec, **options)


def find_transform(settings: TransformSettings) -> Callable[[Any], Any]:
    """The transform of that name; a class, or a factory with parameters, is called with them."""
    found = find_object(settings.name)
    if isinstance(found, type) or settings.parameters:
        found = _made(found, settings.name, settings.parameters)
    if not callable(found):
        raise ConfigError(f"transform {settings.name!r} is not callable: {found!r}")
    made: Callable[[Any], Any] = found
    return made


def _made(maker: Any, name: str, options: dict[str, Any]) -> Any:
    try:
        return maker(**options)
    except Exception as error:  # whatever the user's class does when it is made
        raise UsageError(f"{name!r} cannot be made with {options}: {error!r}") from error


def find_object(name: str) -> Any:
    """The object ``module:attribute``; modules in the working directory are found too."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UsageError(f"an object is named 'module:attribute', got {name!r}")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module does when it is imported
        raise UsageError(f"cannot import {module_name!r} of {name!r}: {error!r}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = did_you_mean(part, dir(found))
            raise UsageError(f"module {module_name!r} has no {attribute!r}{near}")
        found = getattr(found, part)
    return found
