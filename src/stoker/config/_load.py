"""Settings from a file or a dict, with overrides, and back to a file.

What reads and writes files is imported when it is called: most programs that import settings
classes never load a file, and PyYAML alone takes 20 ms.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from stoker.config._settings import Settings
from stoker.errors import ConfigError

SettingsT = TypeVar("SettingsT", bound=Settings)


def load(model: type[SettingsT], path: str | PathLike[str], *, overrides: Sequence[str] = ()) -> SettingsT:
    """Read settings from a YAML or JSON file.

    An empty file, or one with comments only, gives the defaults. See `resolve` for overrides.

    Args:
        model: the settings class.
        path: a file that ends in .yaml, .yml or .json.
        overrides: such as ``loader.batch_size=64``.

    Raises:
        ConfigError: lists every unknown key and wrong value with its dotted path, and says whether
            the file or an override is to blame.
    """
    from stoker.config import _files

    file = Path(path)
    return validated(model, _files.read(file), overrides, origin=str(file))


def resolve(
    model: type[SettingsT], data: Mapping[str, object], *, overrides: Sequence[str] = ()
) -> SettingsT:
    """Make settings from a dict; `data` is not changed.

    Args:
        model: the settings class.
        data: what a settings file would hold.
        overrides: ``a.b=c`` sets key b of section a, ``a.0=c`` the first item of a list that is in
            `data`. The value is read as YAML: numbers, true, false, null, [1, 2], {k: v}, else
            text; quotes keep a number text. Applied in order, so the last one wins.

    Raises:
        ConfigError: as for `load`.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"settings must be a mapping of keys to values, got a {type(data).__name__}; "
            f"use load() for a file"
        )
    return validated(model, dict(data), overrides, origin="settings")


def dump(settings: Settings, path: str | PathLike[str] | None = None) -> str:
    """Give settings as text that loads back equal, and write it to `path` if there is one.

    All values are written, the defaults too, so that the file keeps its meaning when a default
    changes. YAML without a path, else by the suffix. JSON holds infinities and NaN as Python
    writes them (``Infinity``), which not every other reader takes.

    Raises:
        ConfigError: the path cannot be written or has another suffix.
    """
    from stoker.config import _files

    data = settings.model_dump(mode="json", by_alias=True, round_trip=True)
    return _files.write(data, None if path is None else Path(path))


def validated(
    model: type[SettingsT], data: dict[Any, object], overrides: Sequence[str], *, origin: str
) -> SettingsT:
    """The settings of plain data with overrides; `origin` is to blame for what no override changed."""
    from stoker.config import _overrides

    parsed = [_overrides.parse(text) for text in overrides]
    changed = data
    for override in parsed:
        changed = _overrides.apply(changed, override)
    try:
        return model.model_validate(changed)
    except ValidationError as error:
        from stoker.config._problems import explain

        blame = partial(_overrides.blame, parsed, data, origin)
        raise ConfigError(explain(error, model, blame)) from None
