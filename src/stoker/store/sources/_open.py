"""From what a user names to the source that it means."""

import inspect
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from stoker.errors import SourceError, UsageError
from stoker.store._url import is_url
from stoker.store.sources._csv_source import CsvSource
from stoker.store.sources._folder import FolderSource, GlobSource
from stoker.store.sources._formats import READER_OF
from stoker.store.sources._hdf5_file import Hdf5Reader
from stoker.store.sources._hdf5_source import Hdf5Source
from stoker.store.sources._listing import has_magic
from stoker.store.sources._nearest import did_you_mean, nearest_sibling
from stoker.store.sources._reader import suffix_of
from stoker.store.sources._source import Samples


def open_source(spec: object, **options: Any) -> Samples:
    """The source that ``spec`` means.

    A folder is a FolderSource, a string with wildcards a GlobSource, a ``.csv`` file a CsvSource, an
    HDF5 file an Hdf5Source, each with the options of that class; all may be URLs. An object with
    ``__len__`` and ``__getitem__`` is a source already and is returned as it is.

    Raises:
        SourceError: There is no such path, or it holds a single sample.
        UsageError: The object is no source, or the options are not those of the class.
    """
    if not isinstance(spec, str | os.PathLike):
        return _checked_object(spec, options)
    text = os.fspath(spec)
    if not text:
        raise UsageError("a source is a path, got an empty one; '.' is the current folder")
    if is_url(text):
        return _at_url(text, options)
    path = Path(text)
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise SourceError(f"{text!r} cannot be looked at: {error.strerror}") from error
    if is_folder:
        return FolderSource(text, **options)
    if not path.exists():
        if has_magic(text):
            return GlobSource(text, **options)
        raise SourceError(f"there is no file or folder {text!r}{nearest_sibling(path)}")
    suffix = suffix_of(text)
    if suffix == ".csv":
        return _csv(text, options)
    if suffix in Hdf5Reader.suffixes:
        return _hdf5(text, options)
    if suffix in READER_OF:
        raise SourceError(
            f"a source has many samples, {text!r} is one; give its folder, or a pattern such as "
            f"'{path.parent}/*{suffix}'"
        )
    raise SourceError(f"a source is a folder, a pattern, a .csv or an .h5 file, {text!r} is none of these")


def _at_url(url: str, options: dict[str, Any]) -> Samples:
    """What a URL means can only be told by its looks: object stores have no folders."""
    if has_magic(url):
        return GlobSource(url, **options)
    suffix = suffix_of(url)
    if suffix == ".csv":
        return _csv(url, options)
    if suffix in Hdf5Reader.suffixes:
        return _hdf5(url, options)
    if suffix in READER_OF:
        raise SourceError(f"a source has many samples, {url!r} is one; give the folder that it is in")
    return FolderSource(url, **options)


def _hdf5(path: str, options: dict[str, Any]) -> Samples:
    _check_options(options, inspect.signature(Hdf5Source).parameters)
    return Hdf5Source(path, **options)


def _csv(path: str, options: dict[str, Any]) -> Samples:
    if "path_column" not in options:
        raise UsageError(f"path_column must name the column of {path!r} with the files' paths")
    return CsvSource(path, **options)


def _checked_object(spec: object, options: dict[str, Any]) -> Samples:
    lacking = [name for name in ("__len__", "__getitem__") if not hasattr(spec, name)]
    if lacking:
        raise UsageError(
            f"a source must be a path or have __len__ and __getitem__, {type(spec).__name__} lacks "
            f"{' and '.join(lacking)}"
        )
    if options:
        raise UsageError(
            f"options are for paths, {type(spec).__name__} is a source already; leave out "
            f"{', '.join(sorted(options))}"
        )
    return cast(Samples, spec)


def _check_options(options: Iterable[str], known: Iterable[str]) -> None:
    for option in options:
        if option not in known:
            raise UsageError(f"there is no option {option!r} for HDF5{did_you_mean(option, known)}")
