"""Profiles, and a run's settings out of a profile, a file and overrides, with where each came from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.config._auto import Decision, Facts, as_data, decide
from stoker.config._load import SettingsT, validated
from stoker.config._training import TrainSettings
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.config._overrides import Override

_PROFILES = ("default", "low_memory", "high_performance", "quick_demo", "auto")
_FOLDER = Path(__file__).parent / "profiles"
_SUFFIXES = (".yaml", ".yml", ".json")  # of a profile that is a user's file

Layer = dict[Any, object]


@dataclass(frozen=True)
class Resolved:
    """A run's settings and where each value came from."""

    settings: TrainSettings
    origins: dict[str, str]  # by dotted path: "profile low_memory", "file", "--set", "default"
    decisions: tuple[Decision, ...]  # what the profile "auto" decided that nothing else overrode

    def to_yaml(self) -> str:
        """The settings as YAML that loads back equal, with the origin of each value as a comment."""
        lines = _lines(self.settings.model_dump(mode="json"), (), self.origins)
        width = min(60, max(len(text) for text, origin in lines if origin))
        return "".join(f"{text:<{width}}  # {origin}\n" if origin else f"{text}\n" for text, origin in lines)


def profile_names() -> tuple[str, ...]:
    """All profiles."""
    return _PROFILES


def profile_path(name: str) -> Path:
    """The YAML file of a profile, which says what it is for.

    Raises:
        UsageError: there is no such profile.
    """
    if name not in _PROFILES:
        near = get_close_matches(name.replace("-", "_"), _PROFILES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_PROFILES)}"
        raise UsageError(f"a profile must be a known one or a .yaml file, got {name!r}; {hint}")
    return _FOLDER / f"{name}.yaml"


def resolve_training(
    path: str | PathLike[str],
    *,
    profile: str = "default",
    overrides: Sequence[str] = (),
    find_facts: Callable[[TrainSettings], Facts] | None = None,
) -> Resolved:
    """Read a run's settings: the profile's, over them the file's, over them the overrides.

    Args:
        path: the run's .yaml or .json file.
        profile: where the file and overrides say nothing: a known one, or a .yaml or .json file of one's
            own, whose values stand over the profile "default".
        overrides: such as ``optimizer.lr=3e-4``.
        find_facts: called for the profile "auto" with the settings that are known without it.

    Raises:
        ConfigError: as for `load`.
    """
    from stoker.config import _files, _overrides

    file = Path(path)
    layers, own = _layers(profile), _files.read(file)
    base, decisions = layers[0].data, list[Decision]()
    settings = validated(TrainSettings, merged(base, own), overrides, origin=str(file))
    for layer in layers[1:]:
        base = merged(base, layer.data)
        settings = validated(TrainSettings, merged(base, own), overrides, origin=layer.name)
    if profile == "auto":
        if find_facts is None:
            raise UsageError("the profile 'auto' needs facts about the machine; pass find_facts")
        decisions = decide(find_facts(settings))
        layers = [_Named(profile, merged(base, as_data(decisions)))]
        settings = validated(TrainSettings, merged(layers[0].data, own), overrides, origin=str(file))
    parsed = [_overrides.parse(text) for text in overrides]
    dumped = settings.model_dump(mode="json")
    origins = {".".join(place): _origin(place, parsed, own, layers) for place in _leaves(dumped, ())}
    kept = tuple(each for each in decisions if origins.get(".".join(each.path)) == f"profile {profile}")
    return Resolved(settings, origins, kept)


def resolve_layers(
    model: type[SettingsT],
    *,
    base: Mapping[str, object],
    path: str | PathLike[str] | None,
    over: Mapping[str, object],
    overrides: Sequence[str] = (),
) -> SettingsT:
    """Make settings of what is weakest, `base`, then a file if there is one, then `over`, then overrides.

    Raises:
        ConfigError: as for `load`.
    """
    from stoker.config import _files

    own = {} if path is None else _files.read(Path(path))
    data = merged(merged(base, own), over)
    return validated(model, data, overrides, origin="settings" if path is None else str(path))


def merged(base: Mapping[Any, object], over: Mapping[Any, object]) -> Layer:
    """Both, the second where they differ; sections are merged, everything else is replaced."""
    result: Layer = dict(base)
    for key, value in over.items():
        mine = result.get(key)
        both = isinstance(mine, Mapping) and isinstance(value, Mapping)
        result[key] = merged(mine, value) if both else value  # type: ignore[arg-type]
    return result


@dataclass(frozen=True)
class _Named:
    """A layer, and whose it is."""

    name: str
    data: Layer


def _layers(profile: str) -> list[_Named]:
    """What a profile is made of, the weakest first."""
    from stoker.config import _files

    if not profile.endswith(_SUFFIXES):
        return [_Named(profile, _files.read(profile_path(profile)))]
    return [*_layers("default"), _Named(profile, _files.read(Path(profile)))]


def _lines(
    section: Mapping[str, object], path: tuple[str, ...], origins: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Each line of YAML, and the origin of its value; none for the name of a section."""
    import json

    from stoker.config import _yaml

    found: list[tuple[str, str]] = []
    indent = "  " * len(path)
    for key, value in section.items():
        place = (*path, key)
        text = _yaml.write({key: value}).removesuffix("\n")
        name = _yaml.write({key: None}).removesuffix(" null\n")
        if isinstance(value, Mapping) and value:
            found.append((f"{indent}{name}", ""))
            found += _lines(value, place, origins)
            continue
        if "\n" in text or isinstance(value, list):
            text = f"{name} {json.dumps(value, ensure_ascii=False)}"  # is YAML too, and on one line
        found.append((f"{indent}{text}", origins[".".join(place)]))
    return found


def _leaves(value: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    if not isinstance(value, Mapping) or not value:
        return [path] if path else []
    return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, str(key)))]


def _origin(
    place: tuple[str, ...],
    overrides: "Sequence[Override]",
    own: Layer,
    layers: "Sequence[_Named]",
) -> str:
    for override in overrides:
        if place[: len(override.path)] == override.path or override.path[: len(place)] == place:
            return "--set"
    if _holds(own, place):
        return "file"
    names = [layer.name for layer in layers if _holds(layer.data, place)]
    return f"profile {names[-1]}" if names else "default"


def _holds(data: object, place: tuple[str, ...]) -> bool:
    """Whether a value at this place is given, by itself or with all that it is part of."""
    if not place or not isinstance(data, Mapping):
        return True
    return any(_holds(value, place[1:]) for key, value in data.items() if str(key) == place[0])
