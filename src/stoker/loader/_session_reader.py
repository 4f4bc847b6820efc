"""Stretches of sessions as arrays, and which stretches have no step that is to be skipped."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoker.errors import UsageError
from stoker.loader._session_tracks import as_rows
from stoker.loader._sessions import Sessions, unknown
from stoker.loader._window_plan import Blocks, join_blocks, valid_runs
from stoker.store._samples import Array

Skip: TypeAlias = Callable[[Mapping[str, Array]], NDArray[np.bool_]] | str

_ALL_ZERO = "all_zero:"


class SessionReader:
    """Reads stretches of sessions: some fields, with time where it is stored or last."""

    def __init__(self, sessions: Sessions, names: Sequence[str], *, time_last: bool) -> None:
        self.sessions = sessions
        self.names = tuple(names)
        self._time_last = time_last

    def fields(self, num_steps: int) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Type and shape of each field of that many steps."""
        found = {name: self.sessions.fields[name] for name in self.names}
        if self._time_last:
            return {name: (field.dtype, (*field.shape, num_steps)) for name, field in found.items()}
        return {name: (field.dtype, field.with_steps(num_steps)) for name, field in found.items()}

    def read(self, session: int, start: int, stop: int) -> dict[str, Array]:
        """One stretch, as new arrays."""
        fields = self.fields(stop - start)
        out = {name: np.empty((1, *shape), dtype) for name, (dtype, shape) in fields.items()}
        self.read_many([session], [start], stop - start, out)
        return {name: array[0] for name, array in out.items()}

    def read_many(
        self, sessions: Sequence[int], starts: Sequence[int], num_steps: int, out: Mapping[str, Array]
    ) -> None:
        """Stretches of equal length into the first rows of the buffers."""
        for name, buffer in out.items():
            field = self.sessions.fields[name]
            is_moved = self._time_last and field.axis < len(field.shape)
            stored = np.moveaxis(buffer, -1, 1 + field.axis) if is_moved else buffer
            rows = as_rows(buffer, 2) if field.axis == 0 and not is_moved else None
            for place, (session, start) in enumerate(zip(sessions, starts, strict=True)):
                track = self.sessions.tracks(session)[name]
                if rows is None or track.rows is None:
                    track.read(start, start + num_steps, stored[place])
                else:
                    rows[place] = track.rows[start : start + num_steps]

    def pieces(self, session: int, start: int, stop: int, *, max_bytes: int) -> Iterator[dict[str, Array]]:
        """A long stretch in pieces of at most ``max_bytes`` (but at least a step), one after the other."""
        step_bytes = sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.fields(1).values())
        size = max(1, max_bytes // max(1, step_bytes))
        for first in range(start, stop, size):
            yield self.read(session, first, min(first + size, stop))

    def by_step(self, name: str, array: Array) -> Array:
        """The field's array as [T, channels]."""
        axis = -1 if self._time_last else self.sessions.fields[name].axis
        moved = np.moveaxis(array, axis, 0)
        return moved.reshape(len(moved), math.prod(moved.shape[1:]))


def valid_blocks(reader: SessionReader, skip: Skip, *, min_steps: int, piece_bytes: int) -> Blocks:
    """The stretches of every session without skipped steps, of at least ``min_steps``; reads them all."""
    tested = tested_field(skip)
    if tested is not None and tested not in reader.sessions.fields:
        raise unknown("field", tested, reader.sessions.fields)
    if tested is not None:
        reader = SessionReader(reader.sessions, [tested], time_last=False)

    def bad_steps(session: int) -> Iterator[NDArray[np.bool_]]:
        num_steps = int(reader.sessions.lengths[session])
        for piece in reader.pieces(session, 0, num_steps, max_bytes=piece_bytes):
            if tested is not None:
                yield np.asarray(~reader.by_step(tested, piece[tested]).any(axis=1))
                continue
            assert callable(skip)
            bad = np.asarray(skip(piece))
            given = len(reader.by_step(reader.names[0], piece[reader.names[0]]))
            if bad.dtype != np.bool_ or bad.shape != (given,):
                raise UsageError(
                    f"skip must give a bool for each of {given} steps, got {bad.dtype}{list(bad.shape)}"
                )
            yield bad

    return join_blocks(valid_runs(bad_steps(s), min_steps) for s in range(len(reader.sessions)))


def tested_field(skip: Skip | None) -> str | None:
    """The field of "all_zero:FIELD"; None where a function, or nothing, says what to skip."""
    if skip is None or callable(skip):
        return None
    if not isinstance(skip, str) or not skip.startswith(_ALL_ZERO):
        raise UsageError(f"skip must be a function or 'all_zero:FIELD', got {skip!r}")
    return skip.removeprefix(_ALL_ZERO)
