"""Which settings classes, and so which keys, may stand at a place in the nesting."""

from collections.abc import Mapping
from dataclasses import dataclass
from re import findall
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel


@dataclass(frozen=True)
class Place:
    """A place in the nesting: the keys that lead there and the types that may stand there."""

    path: tuple[str, ...]
    types: tuple[object, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys known there, in the order of their definition; empty if none are fixed."""
        models = (kind for kind in self.types if _is_model(kind))
        return tuple(dict.fromkeys(key for model in models for key in _fields(model)))


def locate(model: type[BaseModel], location: tuple[int | str, ...]) -> Place:
    """Follow the location of a pydantic error.

    Where several types may stand, pydantic puts the name of the one it tried into the location,
    though no such key exists in the file. The name is left out of the path and narrows the types.
    """
    path: list[str] = []
    types: tuple[object, ...] = (model,)
    narrowed = False
    for part in location:
        if len(types) > 1 and not narrowed:
            types = tuple(kind for kind in types if _is_named(kind, part)) or types
            narrowed = True
            continue
        narrowed = False
        path.append(str(part))
        types = tuple(inner for kind in types for inner in _inside(kind, part))
    return Place(tuple(path), types)


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _fields(kind: object) -> dict[str, object]:
    assert isinstance(kind, type) and issubclass(kind, BaseModel)  # noqa: PT018
    return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}


def _alternatives(annotation: object) -> tuple[object, ...]:
    """Give the types a union stands for; None never appears in a location and is left out."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        members = (member for member in get_args(annotation) if member is not NoneType)
        return tuple(kind for member in members for kind in _alternatives(member))
    return (annotation,)


def _inside(kind: object, part: int | str) -> tuple[object, ...]:
    if _is_model(kind):
        fields = _fields(kind)
        return _alternatives(fields[str(part)]) if str(part) in fields else ()
    origin, arguments = get_origin(kind), get_args(kind)
    if not isinstance(origin, type) or not arguments:
        return ()
    if issubclass(origin, Mapping):
        return _alternatives(arguments[1])
    if origin is tuple and isinstance(part, int) and Ellipsis not in arguments:
        return _alternatives(arguments[part]) if part < len(arguments) else ()
    return _alternatives(arguments[0])


def _is_named(kind: object, name: int | str) -> bool:
    """Whether `name` is this class' name (perhaps wrapped in its validators') or its tag."""
    if not _is_model(kind):
        return False
    tags = (get_args(kind) for kind in _fields(kind).values() if get_origin(kind) is Literal)
    return getattr(kind, "__name__", "") in findall(r"\w+", str(name)) or any(
        name in values for values in tags
    )
