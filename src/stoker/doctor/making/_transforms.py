"""The transforms that a data set applies, found by looking through its attributes, and timed by name.

Found are the members of Compose-like chains (an object whose class name contains "Compose" with a list
`transforms`; a list of callables, or an `nn.Sequential`, in an attribute named like a transform), single
callables and methods named like one, and the `transform` method of scikit-learn-like objects.

Each is replaced, where it is stored, by a thin stand-in (`_stand_in.py`).
"""

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from stoker.doctor.making._stand_in import Stopwatch, Timed

_NAMED_LIKE_ONE = re.compile(
    r"transform|augment|(^|_)augs?($|_)|scaler|normali[sz]|preproc|tokeni[sz]", re.IGNORECASE
)
_MAX_DEPTH = 5
_MAX_OBJECTS = 2000
_MAX_ITEMS = 64  # of a list or dict that is looked into: longer ones hold data
_UNTOUCHABLE = ("torch.jit", "torch._", "torch.fx")  # compiled: they want to be themselves
# packages whose objects hold data, not transforms; torch's own data sets are let in by hand
_OPAQUE = {"torch", "numpy", "pandas", "h5py", "PIL", "pyarrow", "polars", "scipy", "zarr", "cv2"}


@dataclass(frozen=True)
class _Site:
    """A place that holds a transform: a dict or list, and the key in it."""

    container: MutableMapping[str, Any] | MutableSequence[Any]
    key: Any
    original: Any  # _ABSENT: a method, which is shadowed in the object's own attributes
    stand_in: Any


_ABSENT = object()


@dataclass
class Chain:
    """The transforms of one data set, in the order in which they were found."""

    names: list[str] = field(default_factory=list)
    watch: Stopwatch = field(default_factory=Stopwatch)
    sites: list[_Site] = field(default_factory=list)

    def put_in(self) -> None:
        """Put the stand-ins in, wherever the originals still are."""
        for site in self.sites:
            if site.original is _ABSENT:
                if site.key not in site.container:
                    site.container[site.key] = site.stand_in
            elif _holds(site.container, site.key, site.original):
                site.container[site.key] = site.stand_in

    def take_out(self) -> None:
        """Put the originals back, wherever the stand-ins still are."""
        for site in self.sites:
            if _holds(site.container, site.key, site.stand_in):
                if site.original is _ABSENT:
                    del site.container[site.key]
                else:
                    site.container[site.key] = site.original

    @contextmanager
    def timed(self) -> Iterator[Stopwatch]:
        """Time the transforms inside; whoever looks at the data set afterwards sees nothing of it."""
        self.put_in()
        try:
            yield self.watch
        finally:
            self.take_out()


def find_transforms(
    dataset: object, *, stand_in: Callable[[Callable[..., Any], Stopwatch, int], Any] = Timed
) -> Chain:
    """The transforms that can be reached from a data set; nothing is replaced yet.

    Takes under a millisecond for usual data sets, and looks at no more than 2,000 objects. Where the
    data set's attributes can't be looked at, what was found before counts.
    """
    search = _Search(stand_in)
    with suppress(Exception):  # a property or `__getattr__` of somebody's may raise anything
        search.look_into(dataset, depth=0)
    return search.chain


class _Search:
    def __init__(self, stand_in: Callable[[Callable[..., Any], Stopwatch, int], Any]) -> None:
        self.chain = Chain()
        self._make = stand_in
        self._seen: set[int] = set()
        self._stand_ins: dict[int, Any] = {}  # by the original's id, which the stand-in keeps alive
        self._shadowed: set[tuple[int, str]] = set()  # attributes' id, method
        self._names: dict[str, int] = {}

    def look_into(self, owner: object, *, depth: int) -> None:
        """Search the attributes of an object."""
        if depth > _MAX_DEPTH or id(owner) in self._seen or len(self._seen) > _MAX_OBJECTS:
            return
        self._seen.add(id(owner))
        attributes = getattr(owner, "__dict__", None)
        if not isinstance(attributes, dict):
            return
        for key, value in list(attributes.items()):
            if key == "_modules" and isinstance(value, dict):  # where nn.Module keeps its children
                for name, child in list(value.items()):
                    self._consider(value, name, child, depth)
            else:
                self._consider(attributes, key, value, depth)
        if hasattr(type(owner), "__getitem__") or hasattr(type(owner), "__iter__"):
            self._shadow_methods(owner, attributes)

    def _consider(
        self, container: dict[str, Any], key: Any, value: Any, depth: int, *, in_named: bool = False
    ) -> None:
        """Look at one attribute, or one value of a dict that is named like a transform (`in_named`)."""
        if value is None or isinstance(value, str | bytes | int | float | complex | type):
            return
        named_like_one = in_named or (isinstance(key, str) and _NAMED_LIKE_ONE.search(key) is not None)
        if type(value) in {list, tuple}:
            self._consider_list(container, key, value, depth, named_like_one=named_like_one)
        elif type(value) is dict:
            for inner_key, inner in list(value.items()) if len(value) <= _MAX_ITEMS else []:
                self._consider(value, inner_key, inner, depth + 1, in_named=named_like_one)
        elif _is_compose(value) or (named_like_one and _is_sequential(value)):
            self.look_into_chain(value, depth=depth)
        elif named_like_one and callable(value):
            if _is_transparent(value) or _is_module(value):
                self.look_into(value, depth=depth + 1)
            if not type(value).__module__.startswith(_UNTOUCHABLE):
                self._replace(container, key, value)
        elif named_like_one and callable(getattr(value, "transform", None)):
            self._shadow(value, "transform", name=f"{type(value).__name__}.transform")
        elif _is_transparent(value):
            self.look_into(value, depth=depth + 1)

    def _consider_list(
        self, container: dict[str, Any], key: Any, value: Any, depth: int, *, named_like_one: bool
    ) -> None:
        if not 0 < len(value) <= _MAX_ITEMS:
            return
        if named_like_one and all(callable(item) and not isinstance(item, type) for item in value):
            self._replace_members(container, key, value, depth)
        elif not isinstance(value[0], str | bytes | int | float):
            for item in value:
                if _is_compose(item):
                    self.look_into_chain(item, depth=depth)
                elif _is_transparent(item):
                    self.look_into(item, depth=depth + 1)

    def look_into_chain(self, chain: Any, *, depth: int) -> None:
        """Replace the members of a Compose-like object."""
        if id(chain) in self._seen or depth > _MAX_DEPTH:
            return
        self._seen.add(id(chain))
        if _is_sequential(chain):
            children = chain._modules  # noqa: SLF001 - setting a child by name accepts modules only
            for name, child in list(children.items()):
                if _is_compose(child) or _is_sequential(child):
                    self.look_into_chain(child, depth=depth + 1)
                elif child is not None:
                    self._replace(children, name, child)
        else:
            self._replace_members(vars(chain), "transforms", chain.transforms, depth)

    def _replace_members(self, container: dict[str, Any], key: str, members: Any, depth: int) -> None:
        if id(members) in self._seen:
            return
        self._seen.add(id(members))
        stand_ins = []
        for index, member in enumerate(members):
            if _is_compose(member) or _is_sequential(member):
                self.look_into_chain(member, depth=depth + 1)
                stand_ins.append(member)
                continue
            if _is_transparent(member):
                self.look_into(member, depth=depth + 1)
            stand_ins.append(self._stand_in(member, _name_of(member)))
            if isinstance(members, list):
                self.chain.sites.append(_Site(members, index, member, stand_ins[-1]))
        if isinstance(members, tuple):
            self.chain.sites.append(_Site(container, key, members, tuple(stand_ins)))

    def _replace(self, container: dict[str, Any], key: str, value: Any) -> None:
        self.chain.sites.append(_Site(container, key, value, self._stand_in(value, _name_of(value))))

    def _shadow_methods(self, owner: object, attributes: dict[str, Any]) -> None:
        """Time the data set's own methods that are named like a transform."""
        for kind in type(owner).__mro__:
            if kind.__module__.split(".")[0] in {"builtins", "torch", "typing"}:
                continue
            for key, value in vars(kind).items():
                function = value.__func__ if isinstance(value, staticmethod) else value
                if (
                    isinstance(function, FunctionType)
                    and not key.startswith("__")
                    and key not in attributes
                    and _NAMED_LIKE_ONE.search(key)
                    and not inspect.isgeneratorfunction(function)
                    and not inspect.iscoroutinefunction(function)
                ):
                    self._shadow(owner, key, name=function.__qualname__.rsplit("<locals>.", 1)[-1])

    def _shadow(self, owner: object, key: str, *, name: str) -> None:
        attributes = getattr(owner, "__dict__", None)
        if not isinstance(attributes, dict) or (id(attributes), key) in self._shadowed:
            return
        self._shadowed.add((id(attributes), key))
        method = getattr(owner, key)
        self.chain.sites.append(_Site(attributes, key, _ABSENT, self._stand_in(method, name)))

    def _stand_in(self, value: Any, name: str) -> Any:
        found = self._stand_ins.get(id(value))
        if found is None:
            self._names[name] = number = self._names.get(name, 0) + 1
            self.chain.names.append(name if number == 1 else f"{name} {number}")
            self.chain.watch.totals.append(0)
            found = self._make(value, self.chain.watch, len(self.chain.names) - 1)
            self._stand_ins[id(value)] = found
        return found


def _holds(container: Any, key: Any, value: object) -> bool:
    try:
        return container[key] is value
    except (KeyError, IndexError):
        return False


def _name_of(value: Any) -> str:
    """Class of an object, qualified name of a function; where a lambda is written."""
    if isinstance(value, functools.partial):
        return _name_of(value.func)
    if isinstance(value, MethodType):
        return value.__func__.__qualname__.rsplit("<locals>.", 1)[-1]
    if isinstance(value, FunctionType):
        name = value.__qualname__.rsplit("<locals>.", 1)[-1]
        if name == "<lambda>":
            return f"<lambda> {value.__code__.co_filename.rsplit('/', 1)[-1]}:{value.__code__.co_firstlineno}"
        return name
    if isinstance(value, BuiltinFunctionType):
        return value.__name__
    return type(value).__name__


def _is_compose(value: Any) -> bool:
    """Calls its members one after another, by its class's name and its list of callables."""
    if isinstance(value, type) or "Compose" not in type(value).__name__ or not callable(value):
        return False
    members = getattr(value, "__dict__", {}).get("transforms")
    return isinstance(members, list | tuple) and all(callable(member) for member in members)


def _is_sequential(value: Any) -> bool:
    nn = sys.modules.get("torch.nn")
    return nn is not None and type(value) is nn.Sequential


def _is_module(value: Any) -> bool:
    nn = sys.modules.get("torch.nn")
    return nn is not None and isinstance(value, nn.Module)


def _is_dataset(value: object) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(value, data.Dataset)


def _is_transparent(value: Any) -> bool:
    """An object that may hold transforms: the user's, an installed package's, one of torch's data sets.

    A model that a data set holds is no such thing, unless it is itself a transform.
    """
    if isinstance(value, type | FunctionType | MethodType | BuiltinFunctionType) or _is_module(value):
        return False
    if _is_dataset(value):
        return True
    package = type(value).__module__.split(".")[0]
    return package not in _OPAQUE and package not in sys.stdlib_module_names
