"""Stands in for a callable: adds up its wall time and is otherwise the thing itself.

Attributes, `isinstance`, comparison, copying and pickling go to the original. Time is exclusive: what one
timed callable spends in another is counted there only, so that the sum never exceeds the whole.
"""

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any


class Stopwatch:
    """Where stand-ins add up their times."""

    __slots__ = ("inner_ns", "totals")

    def __init__(self) -> None:
        self.totals: list[int] = []  # nanoseconds, by slot
        self.inner_ns = 0  # time of timed calls inside the one under way

    def reset(self) -> None:
        self.totals[:] = [0] * len(self.totals)
        self.inner_ns = 0


class Timed:
    """Stands in for a callable."""

    __slots__ = ("_stoker_inner", "_stoker_slot", "_stoker_watch")

    def __init__(self, inner: Callable[..., Any], watch: Stopwatch, slot: int) -> None:
        object.__setattr__(self, "_stoker_inner", inner)
        object.__setattr__(self, "_stoker_watch", watch)
        object.__setattr__(self, "_stoker_slot", slot)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        watch = self._stoker_watch
        outer_ns, watch.inner_ns = watch.inner_ns, 0
        begin = time.perf_counter_ns()
        try:
            return self._stoker_inner(*args, **kwargs)
        finally:
            spent = time.perf_counter_ns() - begin
            watch.totals[self._stoker_slot] += spent - watch.inner_ns
            watch.inner_ns = outer_ns + spent

    @property  # type: ignore[misc] # isinstance() asks here when type() is not enough
    def __class__(self) -> type:
        return type(self._stoker_inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stoker_inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._stoker_inner, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._stoker_inner, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._stoker_inner,)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _itself, (self._stoker_inner,)

    def __copy__(self) -> Any:
        return copy.copy(self._stoker_inner)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._stoker_inner, memo)

    def __repr__(self) -> str:
        return repr(self._stoker_inner)

    def __str__(self) -> str:
        return str(self._stoker_inner)

    def __eq__(self, other: object) -> bool:
        other = object.__getattribute__(other, "_stoker_inner") if type(other) is Timed else other
        return bool(self._stoker_inner == other)

    def __hash__(self) -> int:
        return hash(self._stoker_inner)

    def __bool__(self) -> bool:
        return bool(self._stoker_inner)

    def __dir__(self) -> list[str]:
        return dir(self._stoker_inner)

    def __len__(self) -> int:
        return len(self._stoker_inner)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._stoker_inner)

    def __getitem__(self, key: Any) -> Any:
        return self._stoker_inner[key]

    def __contains__(self, item: Any) -> bool:
        return item in self._stoker_inner


def _itself(inner: Any) -> Any:
    return inner
