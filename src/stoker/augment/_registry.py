"""Transforms by name, for config files and for the tests that hold for all of them."""

from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import TypeVar

from stoker.augment._transform import Transform
from stoker.errors import UsageError

TransformT = TypeVar("TransformT", bound=type[Transform])

_TRANSFORMS: dict[str, type[Transform]] = {}


def register(family: str) -> Callable[[TransformT], TransformT]:
    """Make a transform known as ``family.Name``; the family says what it is for, such as "signal".

    Raises:
        UsageError: another transform has that name, or the class' declarations contradict each other.
    """

    def added(transform: TransformT) -> TransformT:
        name = f"{family}.{transform.__name__}"
        known = _TRANSFORMS.get(name)
        if known is not None and known.__module__ != transform.__module__:
            raise UsageError(f"a transform's name must be its own, got {name!r} again; rename one of them")
        if transform.every_row and not transform.neutral:
            raise UsageError(f"{name} computes every row, so it must declare neutral parameters")
        _TRANSFORMS[name] = transform
        return transform

    return added


def registered() -> dict[str, type[Transform]]:
    """Every known transform by its full name."""
    return dict(sorted(_TRANSFORMS.items()))


def full_name(transform: type[Transform]) -> str:
    """The name under which a transform is registered."""
    for name, known in _TRANSFORMS.items():
        if known is transform:
            return name
    raise UsageError(
        f"only a registered transform has a name for config files, got {transform.__name__}; "
        f"decorate its class with @register('family')"
    )


def find(name: str, families: Collection[str] = ()) -> type[Transform]:
    """The transform of that name; the family may be left out.

    Where several families have the name, that of ``families`` is meant, if it is one.
    """
    if name in _TRANSFORMS:
        return _TRANSFORMS[name]
    same = [known for known in _TRANSFORMS if known.partition(".")[2] == name]
    meant = [known for known in same if known.partition(".")[0] in families]
    if len(same) == 1 or len(meant) == 1:
        return _TRANSFORMS[(meant or same)[0]]
    if same:
        raise UsageError(
            f"a transform's name must say which is meant, got {name!r}; write {' or '.join(same)}"
        )
    short = {known.partition(".")[2].lower(): known for known in _TRANSFORMS}
    near = get_close_matches(name.rpartition(".")[2].lower(), short, n=1)
    hint = f"did you mean {short[near[0]]!r}?" if near else f"known are {', '.join(sorted(_TRANSFORMS))}"
    raise UsageError(f"a transform must be a registered one, got {name!r}; {hint}")
