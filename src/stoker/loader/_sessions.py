"""Sessions: long recordings that windows are cut from, wherever they are kept.

Each has a number, a key, a length in time steps and a track for every field. A session is opened
when it is first read; nothing of that crosses a fork or a pickle.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from stoker.errors import SourceError, UsageError
from stoker.loader._chunk_cache import ChunkCache
from stoker.loader._fork_safe import ForkSafe
from stoker.loader._session_tracks import Handles, Track
from stoker.loader._window_plan import Integers
from stoker.store.sources._nearest import did_you_mean, listed

TimeAxis: TypeAlias = int | Mapping[str, int] | None

MAKE_ALIKE = "choose with fields=[...], or say where time is with time_axis="
"""The remedy where fields do not fit together."""

_MAX_OPENED = 32_768  # sessions; each may be a mapping, of the 65,530 that Linux allows a process


@dataclass(frozen=True)
class SessionField:
    """What a field has in common in all sessions; ``shape`` lacks the time axis."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axis: int

    @classmethod
    def of(cls, track: Track) -> "SessionField":
        """The track's field; values will be in the machine's byte order."""
        shape = track.shape[: track.axis] + track.shape[track.axis + 1 :]
        return cls(track.dtype.newbyteorder("="), shape, track.axis)

    def with_steps(self, num_steps: int) -> tuple[int, ...]:
        """The shape of that many time steps."""
        return (*self.shape[: self.axis], num_steps, *self.shape[self.axis :])

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)} a step, time on axis {self.axis}"


class Sessions(ForkSafe, ABC):
    """Sessions by number; safe to use from many threads."""

    lengths: Integers
    """Time steps in each."""
    fields: dict[str, SessionField]
    identity = ""
    """Differs where contents differ, if that is known."""
    at_memory_speed = False
    """Whether reading is nothing but copying, of all of them, as far as is known before they are opened."""

    def __init__(self, cache_bytes: int) -> None:
        super().__init__()
        self._cache = ChunkCache(cache_bytes)
        self._handles = Handles()
        self._opened: dict[int, dict[str, Track]] = {}

    def __len__(self) -> int:
        return len(self.lengths)

    def tracks(self, number: int) -> dict[str, Track]:
        """The session's tracks by field."""
        tracks = self._opened.get(number)
        if tracks is None:
            with self.lock:
                tracks = self._opened.get(number) or self._open(number)
                self._opened[number] = tracks
                if len(self._opened) > _MAX_OPENED:
                    del self._opened[next(iter(self._opened))]
        return tracks

    def close(self) -> None:
        """Let go of files and cached chunks; a later read opens the files again."""
        with self.lock:
            self._opened.clear()
        self._cache.clear()
        self._handles.close()

    @abstractmethod
    def key(self, number: int) -> str:
        """The session's name."""

    @abstractmethod
    def attributes(self, number: int) -> dict[str, Any]:
        """What is known of the session besides its fields."""

    @abstractmethod
    def _open(self, number: int) -> dict[str, Track]: ...

    def __getstate__(self) -> dict[str, Any]:
        own = {"lock", "_cache", "_handles", "_opened"}
        state = {name: value for name, value in self.__dict__.items() if name not in own}
        return state | {"cache_bytes": self._cache.max_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Sessions.__init__(self, state.pop("cache_bytes"))
        self.__dict__.update(state)


def time_axis_of(name: str, num_axes: int, time_axis: TimeAxis, default: int) -> int:
    """Which of a field's axes is time, counted from the front; the only axis where there is one."""
    given = time_axis.get(name) if isinstance(time_axis, Mapping) else time_axis
    axis = default if given is None else given
    if num_axes == 1:
        return 0
    if not isinstance(axis, int) or not -num_axes <= axis < num_axes:
        raise UsageError(f"time_axis must be one of the {num_axes} axes of {name!r}, got {axis!r}")
    return axis % num_axes


def unknown(what: str, name: str, known: Collection[str]) -> SourceError:
    """The error for a name that is not there; says what is, and what was probably meant."""
    near = did_you_mean(name, [*known, *(path.rpartition(".")[2] for path in known)])
    return SourceError(f"there is no {what} {name!r}{near} (there are: {listed(known)})")


def plain(value: Any) -> Any:
    """An attribute as Python has it: bytes as text, single numbers as numbers."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray) and value.dtype.kind in "SO":
        return [plain(item) for item in value.tolist()]
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return None if type(value).__name__ == "Empty" else value
