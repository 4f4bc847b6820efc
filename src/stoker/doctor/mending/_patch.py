"""New settings for DataLoader calls in somebody's source, as a diff that ``git apply`` takes.

Only the call changes: comments, line breaks, quotes and trailing commas stay as they are. Whatever
cannot be changed surely (settings behind ``**options``, two calls on a line) is refused with a reason.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.doctor.mending._rewrite import (
    RefusedError,
    expressions_at,
    rewrite_call,
    with_import,
    with_statement,
)

_CACHE = "stoker.cache"


@dataclass(frozen=True)
class Edit:
    """What one DataLoader call, or one file, shall say."""

    file: str
    line: int  # of the call
    keywords: Mapping[str, Any] = field(default_factory=dict)
    is_cached: bool = False  # wrap the data set: stoker.cache(dataset)
    torch_threads: int | None = None  # torch.set_num_threads(...) after the file's imports


@dataclass(frozen=True)
class Patch:
    """A diff, and what it leaves to a person."""

    text: str  # "" where nothing could be written
    refused: tuple[str, ...]
    replaced: tuple[str, ...] = ()  # options of the script's that it overrides


def make_patch(edits: Iterable[Edit], *, folder: Path) -> Patch:
    """The diff of these edits: its paths begin at the git repository's root, or else at `folder`."""
    by_file: dict[Path, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault((folder / edit.file).resolve(), []).append(edit)
    parts, refused, replaced = [], [], []
    for path, of_file in by_file.items():
        try:
            before = _read(path)
        except RefusedError as error:
            refused.append(f"{path.name}: {error}")
            continue
        after = before
        for edit in sorted(of_file, key=lambda edit: edit.line, reverse=True):  # lines above stay in place
            try:
                given = expressions_at(after, edit.line, edit.keywords)
                after = rewrite_call(
                    after, edit.line, edit.keywords, wrap_data=_CACHE if edit.is_cached else None
                )
                replaced += [f"{path.name}:{edit.line}: {each}" for each in _overridden(edit, given)]
            except RefusedError as error:
                refused.append(f"{path.name}:{edit.line}: {error}{_together(edit)}")
        after = _with_threads(after, of_file)
        if f"{_CACHE}(" in after and f"{_CACHE}(" not in before:
            after = with_import(after, "stoker")
        parts.append(diff(before, after, _name_in_diff(path, folder.resolve())))
    return Patch("".join(parts), tuple(refused), tuple(replaced))


def _overridden(edit: Edit, given: Mapping[str, str]) -> list[str]:
    """What the script's user could set until now, and had better go on to set."""
    return [
        f"{name} was {text}, which the patch replaces by {edit.keywords[name]!r}; "
        f"to keep it, leave that part out and make {text} give {edit.keywords[name]!r}"
        for name, text in given.items()
    ]


def _together(edit: Edit) -> str:
    """All that the edit would change, if that is more than one thing: what is refused is left out whole."""
    parts = [f"{name}={value!r}" for name, value in edit.keywords.items()]
    parts += [f"{_CACHE}(...) around the data set"] if edit.is_cached else []
    return f" (what was measured: {', '.join(parts)})" if len(parts) > 1 else ""


def diff(before: str, after: str, name: str) -> str:
    """A unified diff of two versions of the file `name`; "" where they are the same."""
    if before == after:
        return ""
    lines = difflib.unified_diff(
        _lines(before), _lines(after), _quoted(f"a/{name}"), _quoted(f"b/{name}"), lineterm="\n"
    )
    return "".join(
        line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines
    )


def _with_threads(source: str, edits: list[Edit]) -> str:
    threads = {edit.torch_threads for edit in edits} - {None}
    for number in threads:
        source = with_statement(with_import(source, "torch"), f"torch.set_num_threads({number})")
    return source


def _read(path: Path) -> str:
    try:
        source = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise RefusedError("is not a file") from None
    except UnicodeDecodeError:
        raise RefusedError("is not in UTF-8") from None
    except OSError as error:
        raise RefusedError(error.strerror or str(error)) from None
    if "\r" in source.replace("\r\n", ""):
        raise RefusedError("has carriage returns as line ends")
    return source


def _lines(text: str) -> list[str]:
    """Lines as git sees them: ended by a line feed and by nothing else."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _name_in_diff(path: Path, folder: Path) -> str:
    for root in path.parents:
        if (root / ".git").exists():  # a file in a worktree or submodule
            return path.relative_to(root).as_posix()
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _quoted(name: str) -> str:
    """A name as git writes it: in quotes and escaped if it has such characters, ended by a tab if blanks."""
    if any(character < " " or character in '"\\\x7f' for character in name):
        escapes = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
        characters = (escapes.get(each) or (each if each >= " " else f"\\{ord(each):03o}") for each in name)
        return f'"{"".join(characters)}"'
    return f"{name}\t" if " " in name else name
