"""What a reader is: a path in, one sample's fields out, every failure told in the same words.

A reader is a frozen dataclass whose fields are the format's options, so that a wrong option fails
when the source is built, the reader pickles, and its ``repr`` says all that its output depends on.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from stoker.errors import BadSampleError, MissingExtraError, SourceError, UsageError

Sample = dict[str, Any]

MAX_REASON_LENGTH = 200


@dataclass(frozen=True, kw_only=True)
class Reader(ABC):
    """Reads one file of one format."""

    kind: ClassVar[str]
    """The format as a user would say it, e.g. "audio"."""
    suffixes: ClassVar[tuple[str, ...]]
    """Lower case, with the dot."""
    gives: ClassVar[tuple[str, ...]] = ()
    """The fields that every file gives; empty where the file decides."""
    channel_axis: ClassVar[Mapping[str, int | None]] = {}
    """The axis over which statistics are kept apart; fields of unknown layout are absent."""
    library: ClassVar[str | None] = None
    """The optional library that it needs, and below the extra that brings it."""
    extra: ClassVar[str] = ""
    version: ClassVar[int] = 1
    """Raised when the same file would give other arrays than before: it enters the fingerprints."""

    @abstractmethod
    def read(self, path: str) -> Sample:
        """The file's fields.

        May raise anything: callers wrap it in :func:`reading`, which passes on the text of a
        SourceError as it is and takes every other error for a file that is not of this format.
        """

    @property
    def identity(self) -> str:
        """All that the output depends on besides the file."""
        return f"{self.version} {self!r}"


@contextmanager
def reading(key: str, path: str, what: str = "file") -> Iterator[None]:
    """Turns whatever goes wrong while the file is read into a BadSampleError for the sample."""
    try:
        yield
    except MissingExtraError:
        raise
    except SourceError as error:
        raise BadSampleError(key, str(error)) from error
    except Exception as error:
        raise BadSampleError(key, _why(path, what, error)) from error


def suffix_of(name: str) -> str:
    """The file name's suffix in lower case, ``.nii.gz`` as one; empty where there is none."""
    dot = name.rfind(".")
    if dot <= name.rfind("/") + 1:
        return ""
    suffix = name[dot:].lower()
    return ".nii.gz" if suffix == ".gz" and name[:dot].lower().endswith(".nii") else suffix


def checked_names(option: str, names: Sequence[str] | None) -> tuple[str, ...] | None:
    """An option that lists names, as a tuple; a single string would be taken for its letters."""
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{option} must be a list of names, got {names!r}; write {option}=[...]")
    if not names:
        raise UsageError(f"{option} must name at least one, got an empty list; leave it out for all")
    return tuple(names)


def _why(path: str, what: str, error: Exception) -> str:
    # Each library words a missing, forbidden or empty file in its own way: look again, plainly.
    try:
        with Path(path).open("rb") as file:
            is_empty = not file.read(1)
    except FileNotFoundError:
        return f"no such file: {path}"
    except IsADirectoryError:
        return f"a folder, not a file: {path}"
    except PermissionError:
        return f"no permission to read {path}"
    except (OSError, ValueError) as plain:
        return f"cannot open {path}: {plain}"
    if is_empty:
        return f"the file is empty (0 bytes): {path}"
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    return f"not a readable {suffix_of(path)[1:]} {what}: {reason[:MAX_REASON_LENGTH]}"
