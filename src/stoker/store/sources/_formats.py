"""Which reader reads which file: one registry, by suffix."""

import dataclasses
import importlib.util
from collections.abc import Iterable, Mapping

from stoker.errors import MissingExtraError, SourceError, UsageError
from stoker.store.sources._arrays import NpyReader, NpzReader
from stoker.store.sources._audio import AudioReader
from stoker.store.sources._hdf5_file import Hdf5Reader
from stoker.store.sources._images import ImageReader
from stoker.store.sources._matlab import MatlabReader
from stoker.store.sources._nearest import did_you_mean
from stoker.store.sources._reader import Reader
from stoker.store.sources._volumes import NiftiReader

READERS: tuple[type[Reader], ...] = (
    NpyReader,
    NpzReader,
    AudioReader,
    ImageReader,
    NiftiReader,
    Hdf5Reader,
    MatlabReader,
)
READER_OF = {suffix: reader for reader in READERS for suffix in reader.suffixes}
KNOWN_SUFFIXES = ", ".join(sorted(READER_OF))


def describe_counts(counts: Mapping[str, int]) -> str:
    """``"12 .wav, 3 .txt, 1 without suffix"``, the most frequent first."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in ranked)


def checked_suffixes(suffixes: str | Iterable[str]) -> frozenset[str]:
    """The option ``suffixes`` as the registry spells it: ``"WAV"`` becomes ``".wav"``."""
    given = [suffixes] if isinstance(suffixes, str) else list(suffixes)
    spelled = frozenset("." + suffix.lower().lstrip(".") for suffix in given)
    for suffix in sorted(spelled):
        if suffix not in READER_OF:
            raise UsageError(f"suffixes must be among {KNOWN_SUFFIXES}, got {suffix!r}")
    if not spelled:
        raise UsageError(f"suffixes must name at least one of {KNOWN_SUFFIXES}, got none")
    return spelled


def one_reader(counts: Mapping[str, int], *, where: str, remedy: str) -> type[Reader]:
    """The reader that knows all these suffixes.

    Raises:
        SourceError: They are of several kinds, or one is of none; lists how many there are of each.
    """
    unknown = {suffix: count for suffix, count in counts.items() if suffix not in READER_OF}
    if unknown:
        raise SourceError(
            f"{where} must name files of a known format ({KNOWN_SUFFIXES}), found {describe_counts(unknown)}"
        )
    kinds = {READER_OF[suffix] for suffix in counts}
    if len(kinds) > 1:
        raise SourceError(f"{where} must hold files of one kind, found {describe_counts(counts)}; {remedy}")
    return kinds.pop()


def make_reader(kind: type[Reader], options: Mapping[str, object], *, other_options: Iterable[str]) -> Reader:
    """The reader with these options; ``other_options`` are the source's own, for the spelling hint.

    Raises:
        UsageError: The format has no such option, or not with that value.
        MissingExtraError: Its library is not installed.
    """
    known = [field.name for field in dataclasses.fields(kind)]
    both = [*known, *other_options]
    for option in options:
        if option not in known:
            raise UsageError(
                f"there is no option {option!r} for {kind.kind} files"
                f"{did_you_mean(option, both)} (there are {', '.join(both) or 'none'})"
            )
    if kind.library is not None and importlib.util.find_spec(kind.library) is None:
        raise MissingExtraError(f"reading {kind.kind} files", extra=kind.extra, library=kind.library)
    return kind(**options)
