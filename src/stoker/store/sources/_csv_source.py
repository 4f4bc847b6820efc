"""One sample per row of a CSV file, which names the sample's file and says more about it."""

import csv
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from stoker.errors import SourceError, UsageError
from stoker.store._strings import Strings
from stoker.store._url import is_url
from stoker.store.sources._columns import Column, class_column, number_column
from stoker.store.sources._file_source import FileSource
from stoker.store.sources._files import FingerprintOf, files_at
from stoker.store.sources._formats import make_reader, one_reader
from stoker.store.sources._nearest import did_you_mean, listed, nearest_sibling
from stoker.store.sources._reader import suffix_of

OWN_OPTIONS = (
    "path_column",
    "base_path",
    "label_column",
    "group_column",
    "columns",
    "mask_column",
    "suffix",
    "fingerprint",
)


class CsvSource(FileSource):
    """The files that a column names, in the order of the rows; the column's value is the key.

    Files are not looked for until they are read: a missing one is a bad sample, not a bad source.

    Args:
        csv: UTF-8, comma-separated, with a header; a path or a URL.
        path_column: Paths relative to ``base_path``, or absolute, or URLs; each file once.
        base_path: A folder or the URL of one; the CSV file's own, if not given.
        label_column: Becomes the field ``y``: int64 if all values are integers, float64 if all are
            numbers (nan where empty), else the value's number among the sorted values, which are in
            ``classes["y"]`` (a row without one is then a bad sample).
        group_column: Becomes the string field ``group``, e.g. the patient, to split by.
        columns: More columns that become fields of the same name: int64, float64 or strings.
        mask_column: Paths of the images' masks, like ``path_column``: field ``mask``, uint8 [H, W].
        suffix: Appended to the value of ``path_column`` to make the path, e.g. ".nii.gz".
        fingerprint: "stat" notices a changed file by size and time, "content" by reading all of it.
        reader_options: Options of the format's reader, e.g. ``dtype="int16"`` for audio.

    Raises:
        SourceError: The CSV file cannot be read, lacks a column, or names a file twice or of no
            known kind.
        UsageError: An option that cannot be.
        MissingExtraError: The format's library is not installed.
    """

    def __init__(
        self,
        csv: str | os.PathLike[str],
        *,
        path_column: str,
        base_path: str | os.PathLike[str] | None = None,
        label_column: str | None = None,
        group_column: str | None = None,
        columns: Sequence[str] = (),
        mask_column: str | None = None,
        suffix: str = "",
        fingerprint: FingerprintOf = "stat",
        **reader_options: object,
    ) -> None:
        if isinstance(columns, str):
            raise UsageError(f"columns must be a list of names, got the string {columns!r}")
        path = os.fspath(csv)
        named = [path_column, label_column, group_column, mask_column, *columns]
        table = _read_anywhere(path, [name for name in named if name is not None])
        keys = table[path_column]
        _check_keys(keys, path_column, path)
        kind = one_reader(
            Counter(suffix_of(key + suffix) for key in keys),
            where=f"column {path_column!r} of {path!r}",
            remedy="write one CSV per kind (or append the suffix= that its paths lack)",
        )
        fields: dict[str, Column] = {}
        classes = {}
        if label_column is not None:
            if not any(table[label_column]):
                raise SourceError(f"column {label_column!r} of {path!r} must hold labels, it is empty")
            numbers = number_column(table[label_column])
            if numbers is None:
                numbers, classes["y"] = class_column(table[label_column])
            fields["y"] = numbers
        if group_column is not None:
            fields["group"] = Strings.of(table[group_column])
        for name in columns:
            if name in (*fields, *kind.gives, "mask"):
                raise UsageError(f"columns must not repeat another field, {name!r} is one already; rename it")
            numbers = number_column(table[name])
            fields[name] = Strings.of(table[name]) if numbers is None else numbers
        super().__init__(
            title=path,
            files=files_at(_base(path, base_path, keys, path_column), fingerprint),
            keys=Strings.of(keys),
            suffix=suffix,
            reader=make_reader(kind, reader_options, other_options=OWN_OPTIONS),
            masks=None if mask_column is None else Strings.of(table[mask_column]),
            columns=fields,
            classes=classes,
            fingerprint=fingerprint,
        )


def _read_anywhere(path: str, names: Sequence[str]) -> dict[str, list[str]]:
    """As `read_columns`, of a file or of an object at a URL."""
    if not is_url(path):
        return read_columns(Path(path), names)
    folder, _, name = path.rpartition("/")
    with files_at(folder, "stat").local(name, name) as fetched:
        return read_columns(Path(fetched), names, title=path)


def _base(path: str, base_path: str | os.PathLike[str] | None, keys: Sequence[str], column: str) -> str:
    """Where the files' names begin: of full URLs, anywhere below one."""
    num_urls = sum(map(is_url, keys))
    if 0 < num_urls < len(keys):
        raise SourceError(f"column {column!r} of {path!r} must name URLs or paths, it has {num_urls} URLs")
    if base_path is not None:
        base = os.fspath(base_path)
    elif num_urls:
        base = keys[0].rpartition("/")[0]
    else:
        base = path.rpartition("/")[0] if is_url(path) else str(Path(path).parent)
    if num_urls and not is_url(base):
        raise UsageError(f"base_path must be left out where the paths are URLs, got {base!r}")
    return base if is_url(base) else str(Path(base).absolute())


def read_columns(path: Path, names: Sequence[str], *, title: str | None = None) -> dict[str, list[str]]:
    """The wanted columns of a CSV file, as text; `title` is what errors call it.

    Raises:
        SourceError: It cannot be read, a row has more or fewer cells than the header, or a column
            is missing (names the nearest).
    """
    title = str(path) if title is None else title
    wanted: dict[str, list[str]] = {name: [] for name in names}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file, strict=True)
            header = next(rows, [])
            places = [(_place(name, header, title), cells) for name, cells in wanted.items()]
            for row in rows:
                if not row:
                    continue
                if len(row) != len(header):
                    raise SourceError(
                        f"every row must have the header's {len(header)} cells, "
                        f"line {rows.line_num} of {title!r} has {len(row)}"
                    )
                for place, cells in places:
                    cells.append(row[place])
    except FileNotFoundError:
        raise SourceError(f"there is no file {title!r}{nearest_sibling(path)}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{title!r} is not a readable UTF-8 CSV file: {error}") from error
    if not next(iter(wanted.values())):
        raise SourceError(f"{title!r} has a header but no row")
    return wanted


def _place(name: str, header: list[str], title: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    if name in header:
        raise SourceError(f"columns must have different names, {title!r} has two {name!r}")
    raise SourceError(
        f"there is no column {name!r} in {title!r}{did_you_mean(name, header)} (columns: {listed(header)})"
    )


def _check_keys(keys: list[str], column: str, title: str) -> None:
    seen: dict[str, int] = {}
    for number, key in enumerate(keys, start=1):
        if not key:
            raise SourceError(
                f"every row must name a file, column {column!r} is empty in row {number} of "
                f"{title!r}; remove the row"
            )
        if seen.setdefault(key, number) != number:
            raise SourceError(
                f"every row must name another file, {key!r} is in rows {seen[key]} and {number} of "
                f"{title!r}; remove one"
            )
