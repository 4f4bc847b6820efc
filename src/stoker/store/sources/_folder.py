"""One sample per file: all files below a folder, or all that a pattern means."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from posixpath import join, normpath
from typing import Literal

from stoker.errors import SourceError, UsageError
from stoker.store._url import is_url
from stoker.store.sources._columns import Column, class_column
from stoker.store.sources._file_source import FileSource
from stoker.store.sources._files import FingerprintOf, files_at, list_url
from stoker.store.sources._formats import (
    KNOWN_SUFFIXES,
    READER_OF,
    checked_suffixes,
    describe_counts,
    make_reader,
    one_reader,
)
from stoker.store.sources._listing import choose, list_files, split_pattern, to_strings
from stoker.store.sources._nearest import nearest_sibling
from stoker.store.sources._reader import suffix_of

OWN_OPTIONS = ("pattern", "suffixes", "labels", "masks", "fingerprint")


class _ListedSource(FileSource):
    def __init__(
        self,
        *,
        title: str,
        folder: str,
        pattern: str,
        suffixes: str | Iterable[str] | None,
        labels: Literal["folder"] | None,
        masks: str | None,
        fingerprint: FingerprintOf,
        reader_options: Mapping[str, object],
    ) -> None:
        if labels not in (None, "folder"):
            raise UsageError(f"labels must be 'folder' or None, got {labels!r}")
        if is_url(folder):
            listing = list_url(folder)
            files, found = files_at(folder, fingerprint, listing), choose(listing, pattern)
        else:
            root = _checked_folder(folder)
            files, found = files_at(root, fingerprint), list_files(root, pattern)
        names, counts = _readable(found, suffixes, title)
        kind = one_reader(
            counts, where=repr(title), remedy="choose with suffixes= (e.g. --option suffixes=.wav)"
        )
        columns, classes = _folder_labels(names, title) if labels else ({}, {})
        super().__init__(
            title=title,
            files=files,
            keys=to_strings(names),
            suffix="",
            reader=make_reader(kind, reader_options, other_options=OWN_OPTIONS),
            masks=None if masks is None else to_strings(_mask_paths(names, masks)),
            columns=columns,
            classes=classes,
            fingerprint=fingerprint,
        )


class FolderSource(_ListedSource):
    """Every file below a folder that a reader knows, sorted by its path below it, which is its key.

    Args:
        root: The folder, or the URL of one. Hidden files and folders in it are skipped.
        pattern: Which files, relative to ``root``; ``**`` is any number of folders.
        suffixes: Which formats (".wav", or several of one kind); needed where kinds are mixed.
        labels: "folder" makes the file's parent folder its class: field ``y``, int64, the class's
            number among the sorted names, which are in ``classes["y"]``.
        masks: Where an image's mask is, relative to the image's folder, e.g. "../masks/{stem}.png"
            ({stem} and {name}: the file's name without and with suffix). It becomes the field
            ``mask``, uint8 [H, W].
        fingerprint: "stat" notices a changed file by size and time, "content" by reading all of it.
        reader_options: Options of the format's reader, e.g. ``dtype="int16"`` for audio.

    Raises:
        SourceError: The folder is not there, holds no readable file, or files of several kinds.
        UsageError: An option that cannot be.
        MissingExtraError: The format's library is not installed.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        pattern: str = "**/*",
        suffixes: str | Iterable[str] | None = None,
        labels: Literal["folder"] | None = None,
        masks: str | None = None,
        fingerprint: FingerprintOf = "stat",
        **reader_options: object,
    ) -> None:
        if pattern.startswith("/"):
            raise UsageError(f"pattern must be relative to the folder, got {pattern!r}")
        super().__init__(
            title=os.fspath(root),
            folder=os.fspath(root),
            pattern=pattern,
            suffixes=suffixes,
            labels=labels,
            masks=masks,
            fingerprint=fingerprint,
            reader_options=reader_options,
        )


class GlobSource(_ListedSource):
    """Every file that a pattern means and a reader knows, sorted by its key.

    A file's key is its path below the longest folder without wildcards: below "runs" for
    "runs/data_*/layer*.mat". The pattern is absolute or relative to the working directory. The
    options and errors are those of :class:`FolderSource`.
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        suffixes: str | Iterable[str] | None = None,
        labels: Literal["folder"] | None = None,
        masks: str | None = None,
        fingerprint: FingerprintOf = "stat",
        **reader_options: object,
    ) -> None:
        folder, below = split_pattern(os.fspath(pattern))
        super().__init__(
            title=os.fspath(pattern),
            folder=folder,
            pattern=below,
            suffixes=suffixes,
            labels=labels,
            masks=masks,
            fingerprint=fingerprint,
            reader_options=reader_options,
        )


def _checked_folder(folder: str) -> str:
    path = Path(folder)
    if path.is_dir():
        return str(path.absolute())
    if path.exists():
        raise SourceError(f"a folder is needed, {folder!r} is a file; give the folder that it is in")
    raise SourceError(f"there is no folder {folder!r}{nearest_sibling(path)}")


def _readable(
    names: list[str], suffixes: str | Iterable[str] | None, title: str
) -> tuple[list[str], dict[str, int]]:
    wanted = frozenset(READER_OF) if suffixes is None else checked_suffixes(suffixes)
    suffix_by_name = list(map(suffix_of, names))
    counts = Counter(suffix_by_name)
    readable = {suffix: count for suffix, count in counts.items() if suffix in wanted}
    if not readable:
        sought = KNOWN_SUFFIXES if suffixes is None else ", ".join(sorted(wanted))
        found = describe_counts(counts) if names else "no file at all"
        raise SourceError(f"{title!r} must hold files with a suffix of {sought}; found {found}")
    if len(readable) == len(counts):
        return names, readable
    pairs = zip(names, suffix_by_name, strict=True)
    return [name for name, suffix in pairs if suffix in wanted], readable


def _folder_labels(names: list[str], title: str) -> tuple[Mapping[str, Column], Mapping[str, list[str]]]:
    folders = []
    for name in names:
        parents = name.split("/")[:-1]
        if not parents:
            raise SourceError(
                f"labels='folder' needs every file in a class folder below {title!r}, "
                f"{name!r} is in none; move it, or start one folder higher"
            )
        folders.append(parents[-1])
    numbers, classes = class_column(folders)
    return {"y": numbers}, {"y": classes}


def _mask_paths(names: list[str], template: str) -> list[str]:
    if "{stem}" not in template and "{name}" not in template:
        raise UsageError(f"masks must contain {{stem}} or {{name}}, got {template!r}")
    masks = []
    for path in names:
        folder, _, name = path.rpartition("/")
        stem = name[: len(name) - len(suffix_of(name))]
        mask = template.replace("{name}", name).replace("{stem}", stem)
        masks.append(normpath(join(folder, mask)))
    if images := set(masks) & set(names):
        raise SourceError(
            f"masks must lie apart from the images, {min(images)!r} is both; choose the images with pattern="
        )
    return masks
