"""Overrides such as ``loader.batch_size=64``, as given with ``--set``, applied to plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from stoker.config import _yaml
from stoker.errors import ConfigError


@dataclass(frozen=True)
class Override:
    """One override: its text as given, the keys and positions it goes through, and its value."""

    text: str
    path: tuple[str, ...]
    value: object


def parse(text: str) -> Override:
    """Read ``a.b=c``: everything before the first ``=`` is the path, the rest a YAML value.

    A key that itself contains a dot cannot be reached. Nothing after ``=`` means null.
    """
    dotted, equals, value = text.partition("=")
    path = tuple(part.strip() for part in dotted.split("."))
    if not equals or "" in path:
        raise ConfigError(
            f"--set {text}: an override must be of the form key.key=value without empty keys, "
            f"got {text!r}; write for example --set loader.batch_size=64"
        )
    try:
        return Override(text, path, _yaml.parse_inline(value))
    except yaml.YAMLError as error:
        _, why = _yaml.describe(error, value)
        raise ConfigError(
            f"--set {text}: the value must be a YAML scalar, [list] or {{mapping}}, got {value!r} "
            f"({why}); to give it as text write --set '{dotted}=\"...\"'"
        ) from None


def apply(data: Mapping[Any, object], override: Override) -> dict[Any, object]:
    """Give a copy of `data` with the override's value in its place.

    Only what lies on the path is copied: two places that share one object (a YAML anchor) do not
    both change. Missing mappings and nulls on the way become mappings; lists never grow.
    """
    changed = _put(data, override, depth=0)
    assert isinstance(changed, dict)
    return changed


def blame(
    overrides: Sequence[Override], data: Mapping[Any, object], origin: str, path: tuple[str, ...]
) -> str:
    """Name where the value at `path` came from: `origin`, which held `data`, or the overrides."""
    for override in reversed(overrides):
        if path[: len(override.path)] == override.path:
            return f"--set {override.text}"
    inside = [o.text for o in overrides if o.path[: len(path)] == path]
    if not inside:
        return origin
    options = " ".join(f"--set {text}" for text in inside)
    return f"{origin} with {options}" if _holds(data, path) else options


def _holds(data: object, path: tuple[str, ...]) -> bool:
    if not path:
        return True
    if isinstance(data, Mapping):
        return any(_holds(value, path[1:]) for key, value in data.items() if str(key) == path[0])
    if isinstance(data, list | tuple):
        return any(_holds(item, path[1:]) for place, item in enumerate(data) if str(place) == path[0])
    return False


def _put(node: object, override: Override, depth: int) -> object:
    if depth == len(override.path):
        return override.value
    part = override.path[depth]
    if node is None:
        node = {}
    if isinstance(node, Mapping):
        # A file may hold numbers as keys; a path is text.
        key = next((key for key in node if str(key) == part), part)
        return {**node, key: _put(node.get(key), override, depth + 1)}
    place = ".".join(override.path[:depth])
    if isinstance(node, list | tuple):
        positions = [str(position) for position in range(len(node))]
        if part not in positions:
            raise ConfigError(
                f"--set {override.text}: an item of the list '{place}' must be one of its "
                f"{len(node)} positions, counted from 0, got {part!r}; to change its length set "
                f"the whole list: --set '{place}=[...]'"
            )
        items = list(node)
        items[int(part)] = _put(items[int(part)], override, depth + 1)
        return items
    raise ConfigError(
        f"--set {override.text}: a path must go through mappings and lists, but '{place}' is "
        f"{node!r}; set '{place}' itself or correct the path"
    )
