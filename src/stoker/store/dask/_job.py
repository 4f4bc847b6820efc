"""A packing job on its way to Dask workers: what cannot travel is named, and what arrives is checked.

A worker that lives long keeps the modules it imported: it would run yesterday's code and publish under the
identity of today's. So the job says what its code must be, and a worker with other code refuses it.
"""

import dis
import functools
import json
import socket
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import cloudpickle
import xxhash

import stoker
from stoker.errors import UsageError
from stoker.store._workers import Job

_MAX_DEPTH = 12
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def seal(job: Job) -> bytes:
    """The job as bytes.

    Raises:
        UsageError: source or transform cannot be pickled; names the part that cannot.
    """
    parts = job.feed.parts
    for name, part in parts.items():
        error = _pickling_error(part)
        if error is not None:
            where, kind, why = _offender(part, name, error, _MAX_DEPTH)
            raise UsageError(
                f"the {name} is sent to the workers, but {where}, a {kind}, cannot be pickled: {why}; make "
                "it when it is first used, or pack on this machine alone, without a scheduler"
            )
    header = {**_versions(), **{name: code_digest(part) for name, part in parts.items()}}
    content: bytes = cloudpickle.dumps(job)
    return json.dumps(header).encode() + b"\n" + content


def unseal(sealed: bytes) -> Job:
    """The job, in the process of a worker.

    Raises:
        UsageError: the worker has other versions or other code than the sender, or lacks a module.
    """
    line, _, content = sealed.partition(b"\n")
    header = json.loads(line)
    host = socket.gethostname()
    for name, version in _versions().items():
        if version != header[name]:
            raise UsageError(
                f"the worker on {host} has {name} {version}, this process {header[name]}; "
                "workers and client need the same"
            )
    try:
        job: Job = cloudpickle.loads(content)
    except Exception as error:  # whatever importing the user's modules raises
        raise UsageError(
            f"the worker on {host} cannot load the source and the transform: {error!r}; their modules must "
            "be installed there, or their folder be in its PYTHONPATH"
        ) from error
    for name, part in job.feed.parts.items():
        if code_digest(part) != header[name]:
            raise UsageError(
                f"the worker on {host} has another version of the code of the {name} ({_title(part)}) than "
                "this process; restart the workers, or install there what is installed here"
            )
    return job


def code_digest(thing: Any) -> str:
    """A digest of the compiled code of a function or an object's class, and of what it names beside it."""
    state = xxhash.xxh3_128()
    for text in _codes(thing, set()):
        state.update(text.encode())
    return state.hexdigest()


def _versions() -> dict[str, str]:
    return {"python": ".".join(map(str, sys.version_info[:2])), "stoker": stoker.__version__}


def _title(thing: Any) -> str:
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"


def _pickling_error(value: Any) -> Exception | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - a user's class may raise anything
        return error
    return None


def _offender(value: Any, path: str, error: Exception, depth: int) -> tuple[str, str, Exception]:
    """The innermost part that cannot be pickled: where it is, what it is, and why not."""
    for name, part in _parts(value) if depth else ():
        inner = _pickling_error(part)
        if inner is not None:
            return _offender(part, f"{path}{name}", inner, depth - 1)
    return path, type(value).__name__, error


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, types.FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        yield from ((f".{name}", cell.cell_contents) for name, cell in cells)
        names = (name for name in value.__code__.co_names if name in value.__globals__)
        yield from ((f".{name}", value.__globals__[name]) for name in names)
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType):
        yield from ((f".{name}", item) for name, item in vars(value).items())


def _codes(thing: Any, seen: set[int]) -> Iterator[str]:
    """The code behind a thing, in an order that does not depend on the process."""
    if isinstance(thing, functools.partial):
        thing = thing.func
    if isinstance(thing, types.MethodType):
        yield from _codes(thing.__self__, seen)
        thing = thing.__func__
    if isinstance(thing, types.FunctionType):
        yield from _codes_of_function(thing, seen)
        return
    kind = thing if isinstance(thing, type) else type(thing)
    if id(kind) in seen or kind.__module__ == "builtins":
        return
    seen.add(id(kind))
    for base in kind.__mro__:
        for name, member in sorted(vars(base).items(), key=lambda item: item[0]):
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(function, types.FunctionType) and not name.startswith("_abc"):
                yield name
                yield from _codes_of_function(function, seen)


def _codes_of_function(function: types.FunctionType, seen: set[int]) -> Iterator[str]:
    if id(function) in seen:
        return
    seen.add(id(function))
    yield _text(function.__code__)
    for name in sorted(_names(function.__code__) & function.__globals__.keys()):
        value = function.__globals__[name]
        if isinstance(value, _PLAIN):
            yield f"{name}={value!r}"
        elif getattr(value, "__module__", None) == function.__module__:
            yield name
            yield from _codes(value, seen)


def _names(code: types.CodeType) -> set[str]:
    """Global names that the code and the functions inside it look up: those that travel with it."""
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    own = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return own.union(*inner)


def _text(code: types.CodeType) -> str:
    return f"{code.co_code.hex()}:{code.co_names}:{[_constant(value) for value in code.co_consts]}"


def _constant(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return _text(value)
    if isinstance(value, frozenset):  # its order is another in every process
        return f"frozenset{sorted(map(_constant, value))}"
    if isinstance(value, tuple):
        return f"tuple{[_constant(item) for item in value]}"
    return repr(value)
