"""A settings file's text to plain data and back, by the file's suffix."""

import json
from pathlib import Path
from typing import Any

import yaml

from stoker.config import _yaml
from stoker.errors import ConfigError

_RULE = "a settings file must be valid {} with each key once"
_SUFFIXES = (".yaml", ".yml", ".json")


def read(path: Path) -> dict[Any, object]:
    """Give the top-level mapping of a settings file; an empty file gives an empty one.

    Raises:
        ConfigError: the file cannot be read, or does not hold one mapping without repeated keys.
    """
    is_json = _is_json(path)
    text = _read_text(path)
    data = _parse_json(text, path) if is_json else _parse_yaml(text, path)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path}: the top level of a settings file must be a mapping of keys to values, "
            f"got a {type(data).__name__}; write lines such as 'key: value'"
        )
    return data


def write(data: dict[str, object], path: Path | None) -> str:
    """Give `data` as text, YAML without a path, and write it to the path if there is one."""
    if path is None:
        return _yaml.write(data)
    json_text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    text = json_text if _is_json(path) else _yaml.write(data)
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(
            f"{path}: settings must go to a writable file in a folder that exists, "
            f"got {error.strerror}; choose another path"
        ) from error
    return text


def _is_json(path: Path) -> bool:
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ConfigError(
            f"{path}: a settings file must end in {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}, "
            f"got {path.suffix or 'no suffix'!r}; rename it or convert it"
        )
    return suffix == ".json"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: the settings file must exist, got no file at {path.absolute()}; "
            f"check the path and the working directory"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: settings must be a file, got a directory; name the file in it") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: a settings file must be UTF-8 text, got byte "
            f"{error.object[error.start]:#04x} at {error.start}; save it as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path}: the settings file must be readable, got {error.strerror}; check its permissions"
        ) from error


def _parse_yaml(text: str, path: Path) -> object:
    try:
        return _yaml.parse(text)
    except yaml.YAMLError as error:
        line, why = _yaml.describe(error, text)
        place = f"{path}, line {line}" if line else f"{path}"
        raise ConfigError(f"{place}: {_RULE.format('YAML')}, got: {why}; correct it there") from None


def _parse_json(text: str, path: Path) -> object:
    if not text.strip():
        return None
    try:
        return json.loads(text, object_pairs_hook=_object_without_repeats)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}, line {error.lineno}: {_RULE.format('JSON')}, "
            f"got: {error.msg} (column {error.colno}); correct it there"
        ) from None
    except ValueError as error:  # repeated keys, or a number with thousands of digits
        raise ConfigError(f"{path}: {_RULE.format('JSON')}, got: {error}; correct it") from None
    except RecursionError:
        raise ConfigError(
            f"{path}: {_RULE.format('JSON')}, got: nesting that is too deep; flatten it"
        ) from None


def _object_without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} twice in one object")
    return data
