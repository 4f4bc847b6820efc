"""Pipelines as plain data, for YAML and JSON, and back."""

import inspect
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from os import PathLike
from typing import Any

from pydantic import Field

from stoker.augment._distributions import Distribution
from stoker.augment._registry import find, full_name
from stoker.augment._transform import Role, Transform
from stoker.config import Settings, load, resolve
from stoker.errors import ConfigError, UsageError


class PipelineSettings(Settings):
    """What a pipeline's file may hold."""

    roles: dict[str, Role]
    seed: int = 0
    static: bool = False
    transforms: tuple[str | dict[str, dict[str, Any] | None], ...] = Field(default=())


def read_config(
    config: Mapping[str, Any] | str | PathLike[str],
) -> tuple[PipelineSettings, list[Transform]]:
    """The settings and the transforms that a mapping or a file describes."""
    if isinstance(config, Mapping):
        settings = resolve(PipelineSettings, config)
    else:
        settings = load(PipelineSettings, config)
    families = set(settings.roles.values())  # of the fields' roles: "GaussianNoise" alone is enough then
    return settings, [_made(item, number, families) for number, item in enumerate(settings.transforms)]


def write_config(
    transforms: Sequence[Transform], *, roles: Mapping[str, Role], seed: int, static: bool
) -> dict[str, Any]:
    """The mapping that `read_config` makes the same of; all arguments are written, defaults too."""
    return {
        "roles": dict(roles),
        "seed": seed,
        "static": static,
        "transforms": [
            {
                full_name(type(transform)): {
                    name: _plain(value) for name, value in transform.arguments().items()
                }
            }
            for transform in transforms
        ],
    }


def _made(item: str | dict[str, dict[str, Any] | None], number: int, families: Collection[str]) -> Transform:
    place = f"transforms.{number}"
    if isinstance(item, dict) and len(item) != 1:
        raise ConfigError(
            f"{place} must be one name with its arguments, got {', '.join(map(repr, item)) or 'nothing'}; "
            f"write each transform as an item of its own"
        )
    name, arguments = (item, None) if isinstance(item, str) else next(iter(item.items()))
    try:
        kind = find(name, families)
        _check_arguments(kind, arguments or {})
        return kind(**(arguments or {}))
    except UsageError as error:
        raise ConfigError(f"{place}: {error}") from None
    except TypeError as error:  # text where a number must be, and such
        raise ConfigError(f"{place}: {name} must have arguments of the right types, got: {error}") from error


def _check_arguments(kind: type[Transform], arguments: Mapping[str, Any]) -> None:
    known = {
        name: each for name, each in inspect.signature(kind.__init__).parameters.items() if name != "self"
    }
    for name in arguments:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise UsageError(f"{kind.__name__} must be given its own arguments, got {name!r}; {hint}")
    for name, each in known.items():
        if each.default is inspect.Parameter.empty and name not in arguments:
            raise UsageError(f"{kind.__name__} needs {name!r}, got nothing; add it")


def _plain(value: Any) -> Any:
    if isinstance(value, Distribution):
        return value.to_config()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
