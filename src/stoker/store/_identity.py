"""The identity of a transform: two runs may share a store only if it is the same in both.

It covers the qualified name, the parameters (attributes, defaults, closure, partial arguments, by
value) and the source text of the function or class, and likewise the global constants and functions
of its own module that it names. Functions of other modules are not followed. An explicit version
(``transform_version=``, or a ``version`` attribute) speaks for all of it instead: then only the name
and the version count.
"""

import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, cast

import numpy as np
import xxhash

from stoker.errors import TransformIdentityError
from stoker.store._manifest import TransformEntry

_NO_TRANSFORM = "none"
_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, frozenset, PurePath, np.ndarray, np.generic)


def transform_entry(transform: Callable[[Any], Any] | None, version: str | None) -> TransformEntry:
    """The transform's name and identity, as the manifest keeps them.

    Raises:
        TransformIdentityError: a parameter cannot be compared between runs; says which.
    """
    if transform is None:
        return TransformEntry(name=_NO_TRANSFORM, identity=_hash(_NO_TRANSFORM), version=version)
    stated = version if version is not None else getattr(transform, "version", None)
    name = _name(transform)
    if stated is not None:
        return TransformEntry(name=name, identity=_hash(f"{name}|version={stated}"), version=str(stated))
    described = _describe(transform, path="transform", seen=())
    return TransformEntry(name=name, identity=_hash(described))


def _hash(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode())


def _name(thing: Any) -> str:
    if isinstance(thing, functools.partial):
        return f"partial({_name(thing.func)})"
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(named, '__module__', '?')}.{named.__qualname__}"


def _describe(value: Any, *, path: str, seen: tuple[int, ...]) -> str:
    """A text that is equal for equal values, whatever the process."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | PurePath):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, re.Pattern | range | slice | np.dtype):
        return repr(value)
    if id(value) in seen:
        return "cycle"
    inner = functools.partial(_describe, seen=(*seen, id(value)))
    if isinstance(value, functools.partial):
        parts = {"func": value.func, "args": value.args, "keywords": value.keywords}
        return f"partial({inner(parts, path=path)})"
    if isinstance(value, Mapping):
        items = sorted(
            (inner(key, path=f"{path} key"), inner(item, path=f"{path}[{key!r}]"))
            for key, item in value.items()
        )
        return f"{type(value).__name__}{items}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}{[inner(v, path=f'{path}[{i}]') for i, v in enumerate(value)]}"
    if isinstance(value, set | frozenset):
        return f"set{sorted(inner(item, path=path) for item in value)}"
    if isinstance(value, np.ndarray | np.generic):
        return f"array:{value.dtype}:{value.shape}:{xxhash.xxh3_128_hexdigest(value.tobytes())}"
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        return f"tensor:{inner(value.detach().cpu().numpy(), path=path)}"
    if isinstance(value, types.ModuleType):
        return f"module:{value.__name__}"
    if isinstance(value, type):
        return f"class:{_name(value)}:{_source(value)}"
    if isinstance(value, types.FunctionType | types.MethodType):
        return _describe_function(value, inner, path)
    if isinstance(value, types.BuiltinFunctionType | np.ufunc):
        return f"builtin:{getattr(value, '__module__', '')}.{value.__name__}"
    return _describe_object(value, inner, path)


def _describe_function(
    function: types.FunctionType | types.MethodType,
    inner: Callable[..., str],
    path: str,
) -> str:
    parts: dict[str, Any] = {}
    if isinstance(function, types.MethodType):
        parts["self"] = function.__self__
        function = cast(types.FunctionType, function.__func__)
    code = function.__code__  # a decorator's own code: what it wraps is in its closure
    parts["defaults"] = (function.__defaults__, function.__kwdefaults__)
    if function.__closure__:
        cells = zip(code.co_freevars, function.__closure__, strict=True)
        parts["closure"] = {name: cell.cell_contents for name, cell in cells}
    parts["globals"] = _own_globals(function, code)
    if code.co_name == "<lambda>":  # its source is a whole line, which may hold several
        parts["code"] = _code(code)
    return f"function:{_name(function)}:{inner(parts, path=path)}:{_source(code)}"


def _own_globals(function: types.FunctionType, code: types.CodeType) -> dict[str, Any]:
    """Constants, and functions and classes of the same module, that the code names."""
    names = set(code.co_names)
    for constant in code.co_consts:  # functions defined inside it
        if isinstance(constant, types.CodeType):
            names |= set(constant.co_names)
    found = {}
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        own = getattr(value, "__module__", None) == function.__module__
        if isinstance(value, _CONSTANTS) or (own and isinstance(value, types.FunctionType | type)):
            found[name] = value
    return found


def _describe_object(value: Any, inner: Callable[..., str], path: str) -> str:
    if hasattr(value, "to_config"):
        # a pipeline of ours: the rest of it is memory that is used again. In evaluation it does nothing
        config = inner(value.to_config(), path=f"{path}.to_config()")
        return f"object:{_name(type(value))}:{config}:{getattr(value, 'training', True)}"
    if dataclasses.is_dataclass(value):
        parameters = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif hasattr(value, "__dict__"):
        parameters = vars(value)
    else:
        raise TransformIdentityError(
            f"{path} is a {type(value).__name__}, which cannot be compared between two runs; "
            "pass transform_version='1' and change it whenever the transform changes"
        )
    described = {name: inner(item, path=f"{path}.{name}") for name, item in sorted(parameters.items())}
    return f"object:{_name(type(value))}:{described}:{_source(type(value))}"


def _source(thing: Any) -> str:
    """The source text, or the compiled code where there is none (a console, a frozen module)."""
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        pass
    if isinstance(thing, types.CodeType):
        return _code(thing)
    members = sorted(vars(thing).items()) if isinstance(thing, type) else []
    return ";".join(
        f"{name}={_code(member.__code__)}" for name, member in members if hasattr(member, "__code__")
    )


def _code(code: types.CodeType) -> str:
    constants = [_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()}:{code.co_names}:{constants}"
