"""One sample per row of a CSV file, which names the sample's file and says more about it."""

import csv
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from stoker.errors import SourceError, UsageError
from stoker.store._strings import Strings
from stoker.store.sources._columns import Column, class_column, number_column
from stoker.store.sources._file_source import FileSource, FingerprintOf
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
        csv: UTF-8, comma-separated, with a header.
        path_column: Paths relative to ``base_path``, or absolute; each file once.
        base_path: The CSV file's own folder, if not given.
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
        path = Path(csv)
        named = [path_column, label_column, group_column, mask_column, *columns]
        table = read_columns(path, [name for name in named if name is not None])
        keys = table[path_column]
        _check_keys(keys, path_column, str(path))
        kind = one_reader(
            Counter(suffix_of(key + suffix) for key in keys),
            where=f"column {path_column!r} of {str(path)!r}",
            remedy="write one CSV per kind (or append the suffix= that its paths lack)",
        )
        fields: dict[str, Column] = {}
        classes = {}
        if label_column is not None:
            if not any(table[label_column]):
                raise SourceError(f"column {label_column!r} of {str(path)!r} must hold labels, it is empty")
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
            title=os.fspath(csv),
            base=str((path.parent if base_path is None else Path(base_path)).absolute()),
            keys=Strings.of(keys),
            suffix=suffix,
            reader=make_reader(kind, reader_options, other_options=OWN_OPTIONS),
            masks=None if mask_column is None else Strings.of(table[mask_column]),
            columns=fields,
            classes=classes,
            fingerprint=fingerprint,
        )


def read_columns(path: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """The wanted columns of a CSV file, as text.

    Raises:
        SourceError: It cannot be read, a row has more or fewer cells than the header, or a column
            is missing (names the nearest).
    """
    wanted: dict[str, list[str]] = {name: [] for name in names}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file, strict=True)
            header = next(rows, [])
            places = [(_place(name, header, path), cells) for name, cells in wanted.items()]
            for row in rows:
                if not row:
                    continue
                if len(row) != len(header):
                    raise SourceError(
                        f"every row must have the header's {len(header)} cells, "
                        f"line {rows.line_num} of {str(path)!r} has {len(row)}"
                    )
                for place, cells in places:
                    cells.append(row[place])
    except FileNotFoundError:
        raise SourceError(f"there is no file {str(path)!r}{nearest_sibling(path)}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{str(path)!r} is not a readable UTF-8 CSV file: {error}") from error
    if not next(iter(wanted.values())):
        raise SourceError(f"{str(path)!r} has a header but no row")
    return wanted


def _place(name: str, header: list[str], path: Path) -> int:
    if header.count(name) == 1:
        return header.index(name)
    if name in header:
        raise SourceError(f"columns must have different names, {str(path)!r} has two {name!r}")
    raise SourceError(
        f"there is no column {name!r} in {str(path)!r}{did_you_mean(name, header)} "
        f"(columns: {listed(header)})"
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
