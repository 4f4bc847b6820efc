"""The known name that a mistyped one probably meant."""

import difflib
from collections.abc import Iterable
from pathlib import Path

MAX_LISTED = 20


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'emg'?"``, or nothing where no known name is near."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def nearest_sibling(path: Path) -> str:
    """The same for a path that does not exist, or that its folder does not exist either."""
    parent = path.parent
    if not parent.is_dir():
        return f"; there is no folder {str(parent)!r} either"
    try:
        return did_you_mean(path.name, [entry.name for entry in parent.iterdir()])
    except OSError:
        return ""


def listed(names: Iterable[str]) -> str:
    """The names in a row, cut where nobody reads on."""
    names = list(names)
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return (", ".join(names[:MAX_LISTED]) or "none") + more
