"""From what a user names to its sessions: a store, files, a pattern or a folder."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from stoker.errors import SourceError, UsageError
from stoker.loader._file_sessions import FileSessions
from stoker.loader._sessions import Sessions, TimeAxis
from stoker.loader._store_sessions import StoreSessions
from stoker.store import Store
from stoker.store._manifest import MANIFEST_NAME
from stoker.store.sources._hdf5_file import Hdf5Reader
from stoker.store.sources._listing import has_magic, list_files, split_pattern
from stoker.store.sources._reader import suffix_of

File: TypeAlias = str | os.PathLike[str]


def open_sessions(
    data: Store | File | Sequence[File],
    names: Sequence[str] | None,
    group: str | None,
    dataset: str | None,
    time_axis: TimeAxis,
    cache_bytes: int,
) -> Sessions:
    """The sessions, with the fields that are named (all, if None)."""
    if isinstance(data, str | os.PathLike) and (Path(data) / MANIFEST_NAME).is_file():
        data = Store(data)
    if isinstance(data, Store):
        if group is not None or dataset is not None:
            raise UsageError("group and dataset are for HDF5 files, a store has neither; leave them out")
        return StoreSessions(data, names, time_axis=time_axis, cache_bytes=cache_bytes)
    paths, keys = session_files(data)
    return FileSessions(
        paths, keys, names, group=group, dataset=dataset, time_axis=time_axis, cache_bytes=cache_bytes
    )


def session_files(data: File | Sequence[File]) -> tuple[list[str], list[str]]:
    """Absolute paths, and keys: as given, or below the folder that was given."""
    if not isinstance(data, str | os.PathLike):
        if not isinstance(data, Sequence) or not all(isinstance(path, str | os.PathLike) for path in data):
            raise UsageError(f"windows are cut from a store or from HDF5 files, got {data!r}")
        keys = [os.fspath(path) for path in data]
        return [str(Path(key).absolute()) for key in keys], keys
    text = os.fspath(data)
    root, keys = Path(text).parent, [Path(text).name]
    if Path(text).is_dir():
        root = Path(text)
        keys = [key for key in list_files(text, "**/*") if suffix_of(key) in Hdf5Reader.suffixes]
    elif has_magic(text) and not Path(text).exists():
        folder, pattern = split_pattern(text)
        root, keys = Path(folder), list_files(folder, pattern)
    if not keys:
        raise SourceError(f"there must be at least one HDF5 file, {text!r} has none (.h5 or .hdf5)")
    return [str((root / key).absolute()) for key in keys], keys
