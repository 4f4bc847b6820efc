"""How far into the making of a sample its value depends on its index alone.

The same samples are made twice, with other seeds, while the inputs and outputs of all transforms are
watched, and what functions of the user's give back to ``__getitem__``: they are the checkpoints. A sample
can be kept up to the last checkpoint at which both times agree and nobody has drawn from the random
state. The second rule finds transforms that act by chance: twice the same may be chance, too.
"""

import dataclasses
import hashlib
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from stoker.doctor.making._randomness import random_state, set_seed
from stoker.doctor.making._stand_in import Stopwatch, Timed
from stoker.doctor.making._transforms import find_transforms
from stoker.doctor.sampling._frames import owner_of

Make = Callable[[], list[Any]]

_MAKERS = {"__getitem__", "__getitems__", "__iter__"}  # of a data set


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One moment in the making of a sample."""

    seconds: float  # since the making began, without our own work
    digest: bytes | None  # of the value; None where it can't be compared
    is_drawn: bool  # somebody has drawn from the random state since the making began


class Passes:
    """Two passes over the same samples. Call `first` for each, then `second` for each again."""

    def __init__(self, dataset: object, *, clock: Callable[[], float], user_root: str = "") -> None:
        self._watcher = _Watcher(clock)
        self._user_root = user_root
        self._chain = find_transforms(dataset, stand_in=self._stand_in)
        self._first: list[list[Checkpoint]] = []
        self._second: list[list[Checkpoint]] = []

    @property
    def num_first(self) -> int:
        return len(self._first)

    def first(self, make: Make) -> None:
        set_seed(1000 + len(self._first))
        self._make(make, self._first)

    def second(self, make: Make) -> None:
        set_seed(2000 + len(self._second))
        self._make(make, self._second)

    def are_equal(self) -> bool | None:
        """The same index gave the same sample, without drawing; None where that can't be told."""
        pairs = [(a[-1], b[-1]) for a, b in zip(self._first, self._second, strict=True)]
        if any(a.digest != b.digest or a.is_drawn or b.is_drawn for a, b in pairs):
            return False
        return None if not pairs or any(a.digest is None for a, _ in pairs) else True

    def kept_seconds(self, seconds_per_sample: float) -> float | None:
        """What of a sample's time could be saved by keeping it; None where that can't be told."""
        pairs = list(zip(self._first, self._second, strict=True))
        num_kept = min((num_agreeing(a, b) for a, b in pairs), default=0)
        if num_kept == 0:
            return None
        shares = [
            made[num_kept - 1].seconds / made[-1].seconds
            for pair in pairs
            for made in pair
            if made[-1].seconds > 0
        ]
        return seconds_per_sample * sum(shares) / len(shares) if shares else None

    def _make(self, make: Make, passes: list[list[Checkpoint]]) -> None:
        with self._chain.timed():
            self._watcher.begin()
            with self._noting_returns():
                samples = make()
            self._watcher.note(samples)
        passes.append(self._watcher.checkpoints)

    @contextmanager
    def _noting_returns(self) -> Iterator[None]:
        """Note what the functions give back that ``__getitem__`` calls, unless somebody else profiles."""
        if sys.getprofile() is not None:
            yield
            return
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, value: object) -> None:
        if event != "return" or frame.f_back is None or frame.f_back.f_code.co_name not in _MAKERS:
            return
        if owner_of(frame.f_code.co_filename, user_root=self._user_root) == "user":
            self._watcher.note(value)

    def _stand_in(self, inner: Callable[..., Any], watch: Stopwatch, slot: int) -> "_Watched":
        return _Watched(inner, watch, slot, self._watcher)


def num_agreeing(first: list[Checkpoint], second: list[Checkpoint]) -> int:
    """How many checkpoints agree from the beginning on."""
    number = 0
    for a, b in zip(first, second, strict=False):
        if a.digest is None or a.digest != b.digest or a.is_drawn or b.is_drawn:
            break
        number += 1
    return number


class _Watcher:
    """Notes the checkpoints of the sample under way."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begin = 0.0
        self._state: tuple[object, ...] = ()
        self.checkpoints: list[Checkpoint] = []

    def begin(self) -> None:
        self.checkpoints = []
        self._state = random_state()
        self._begin = self._clock()

    def note(self, value: object) -> None:
        now = self._clock()
        drawn = random_state() != self._state
        self.checkpoints.append(Checkpoint(now - self._begin, digest(value), drawn))
        self._begin += self._clock() - now  # our own work takes no time


class _Watched(Timed):
    """Stands in for a transform, and notes what goes in and what comes out."""

    __slots__ = ("_stoker_watcher",)

    def __init__(self, inner: Callable[..., Any], watch: Stopwatch, slot: int, watcher: _Watcher) -> None:
        super().__init__(inner, watch, slot)
        object.__setattr__(self, "_stoker_watcher", watcher)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._stoker_watcher.note((args, kwargs))
        result = self._stoker_inner(*args, **kwargs)
        self._stoker_watcher.note(result)
        return result


def digest(value: object) -> bytes | None:
    """A hash of a value's content; None where it can't be had."""
    state = hashlib.blake2b(digest_size=16)
    try:
        _add(state, value)
    except Exception:  # noqa: BLE001 - anything may be in a sample, and refuse to be pickled
        return None
    return state.digest()


def _add(state: Any, value: Any) -> None:
    import torch

    state.update(type(value).__name__.encode())
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous()
        state.update(f"{plain.dtype} {tuple(plain.shape)}".encode())
        state.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        state.update(f"{value.dtype} {value.shape}".encode())
        state.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif isinstance(value, dict):
        for key, inner in value.items():
            _add(state, key)
            _add(state, inner)
    elif isinstance(value, list | tuple):
        state.update(str(len(value)).encode())
        for inner in value:
            _add(state, inner)
    elif isinstance(value, str | bytes | int | float | bool | None | np.generic):
        state.update(repr(value).encode())
    elif hasattr(value, "tobytes") and hasattr(value, "size"):  # a picture
        state.update(repr((value.size, getattr(value, "mode", ""))).encode())
        state.update(value.tobytes())
    elif dataclasses.is_dataclass(value):
        _add(state, vars(value))
    else:
        state.update(pickle.dumps(value))
