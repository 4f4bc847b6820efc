"""The files that a pattern means, found with one ``scandir`` per folder.

A pattern is split at its slashes. ``**`` stands for any number of folders; every other part is
matched against one name at a time, so folders that cannot lead to a match are never opened. The
walk carries the set of parts that may come next (``**`` allows itself and its successor), which
visits each folder once and finds each file once, however many ``**`` there are.
"""

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from stoker.errors import SourceError
from stoker.store._strings import Strings

MAGIC = frozenset("*?[")
ANY_DEPTH = "**"


def has_magic(text: str) -> bool:
    """Whether the text is a pattern and not the name of one file."""
    return not MAGIC.isdisjoint(text)


def split_pattern(pattern: str) -> tuple[str, str]:
    """The longest fixed folder and the pattern below it, both with forward slashes."""
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not has_magic(parts[fixed]):
        fixed += 1
    root = "/".join(parts[:fixed])
    return root or ("/" if pattern.startswith("/") else "."), "/".join(parts[fixed:])


def list_files(root: str, pattern: str) -> list[str]:
    """Posix paths below ``root`` of the files that match, sorted; hidden ones are left out, and stores.

    Linked folders are followed, but never into themselves. A link to nowhere is listed: it is a
    sample that cannot be read, and dropping it silently would hide that.

    Raises:
        SourceError: A folder on the way cannot be opened.
    """
    parts = _parts(pattern)
    found = list(_Walk(parts).below(root, "", frozenset({0}), frozenset())) if parts else []
    found.sort()
    return found


def choose(names: Iterable[str], pattern: str) -> list[str]:
    """Of posix paths those that match, sorted: as ``list_files`` would choose."""
    parts = _parts(pattern)
    walk = _Walk(parts)
    return sorted(name for name in names if parts and walk.leads_to(name))


def _parts(pattern: str) -> list[str]:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return [*parts, "*"] if parts and parts[-1] == ANY_DEPTH else parts


def to_strings(names: list[str]) -> Strings:
    """The names in compact form; one that is not UTF-8 cannot become a key."""
    try:
        return Strings.of(names)
    except UnicodeEncodeError as error:
        raise SourceError(f"file names must be UTF-8, got {error.object!r}; rename the file") from error


class _Walk:
    def __init__(self, parts: list[str]) -> None:
        self.parts = parts
        self.last = len(parts) - 1
        self.matches = [_matcher(part) for part in parts]

    def below(
        self, folder: str, prefix: str, active: frozenset[int], above: frozenset[tuple[int, int]]
    ) -> Iterator[str]:
        active = self._with_successors(active)
        is_wanted = self.matches[self.last] if self.last in active else None
        folders = []
        try:
            status = Path(folder).stat()
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir():
                        folders.append((entry.name, entry.is_symlink()))
                    elif (
                        is_wanted is not None
                        and is_wanted(entry.name)
                        and (entry.is_file() or entry.is_symlink())
                    ):
                        yield prefix + entry.name
        except OSError as error:
            raise SourceError(
                f"every folder must be readable, {error.filename!r} is not: {error.strerror}"
            ) from error
        above |= {(status.st_dev, status.st_ino)}
        for name, is_link in folders:
            after = self._after(name, active)
            child = f"{folder}/{name}"
            if after and not (is_link and _identity(child) in above):
                yield from self.below(child, f"{prefix}{name}/", after, above)

    def leads_to(self, path: str) -> bool:
        """Whether the walk would find this path."""
        *folders, name = path.split("/")
        active = frozenset({0})
        for folder in folders:
            active = self._after(folder, self._with_successors(active))
        return bool(self.last in self._with_successors(active) and name and self.matches[self.last](name))

    def _with_successors(self, active: frozenset[int]) -> frozenset[int]:
        parts = set(active)
        for k in sorted(active):
            successor = k
            while self.parts[successor] == ANY_DEPTH:
                successor += 1
                parts.add(successor)
        return frozenset(parts)

    def _after(self, folder_name: str, active: frozenset[int]) -> frozenset[int]:
        after = set()
        for k in active:
            if self.parts[k] == ANY_DEPTH:
                if not folder_name.startswith(".") and not folder_name.endswith(".stoker"):
                    after.add(k)
            elif k < self.last and self.matches[k](folder_name):
                after.add(k + 1)
        return frozenset(after)


def _matcher(part: str) -> Callable[[str], object]:
    if part == "*":
        return lambda name: name[0] != "."
    full = re.compile(fnmatch.translate(part)).match
    if part.startswith("."):
        return full
    return lambda name: not name.startswith(".") and full(name)


def _identity(folder: str) -> tuple[int, int]:
    status = Path(folder).stat()
    return status.st_dev, status.st_ino
