"""Windows over long sessions, found by arithmetic and cut out of the mapped files."""

import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.errors import SourceError, UsageError
from stoker.loader._session_tracks import as_rows
from stoker.loader._sessions import FileSessions, Sessions, StoreSessions, TimeAxis, unknown
from stoker.loader._window_plan import (
    Blocks,
    Integers,
    WindowPlan,
    WindowShape,
    checked_number,
    join_blocks,
    valid_runs,
    whole_sessions,
)
from stoker.store import FieldStats, Store
from stoker.store._manifest import MANIFEST_NAME
from stoker.store._moments import Moments, merge
from stoker.store._samples import Array
from stoker.store.sources._hdf5_file import Hdf5Reader
from stoker.store.sources._listing import has_magic, list_files, split_pattern
from stoker.store.sources._nearest import did_you_mean
from stoker.store.sources._reader import checked_names, suffix_of

Skip = Callable[[Mapping[str, Array]], NDArray[np.bool_]] | str
File = str | os.PathLike[str]

_ALL_ZERO = "all_zero:"
_PIECE_BYTES = 4 << 20  # of a session that are in memory at a time when all of it is visited
_CHANNELS_AT_ONCE = 64  # more would be taken for time or space by Moments


def windows(
    data: Store | File | Sequence[File],
    *,
    length: int,
    stride: int | None = None,
    padding: tuple[int, int] = (0, 0),
    jitter: int = 0,
    skip: Skip | None = None,
    fields: Sequence[str] | None = None,
    time_axis: TimeAxis = None,
    channels_first: bool = False,
    group: str | None = None,
    dataset: str | None = None,
    chunk_cache_bytes: int = 64 << 20,
) -> "Windows":
    """Windows of ``length`` time steps, every ``stride`` steps, over sessions of any length.

    The first window starts after its left context, the others every ``stride`` steps from there, as
    long as the right context fits too. So all have exactly ``left + length + right`` steps, and
    nothing is cut off or filled up. A session too short for a window has none.

    Opening takes one look at each session (with ``skip``, at all of its steps), measured 1.5 ms a
    file; memory is O(sessions), whatever the number of windows.

    Args:
        data: an open store, each sample of which is a session; or HDF5 files as they are, each of
            which is one: a path, a list of paths, a pattern, or a folder of .h5 and .hdf5 files.
        length: time steps in a window, without context.
        stride: time steps between the starts of two windows; by default ``length``.
        padding: time steps of context left and right of each window.
        jitter: a loader's batches move each start by 0 to this many steps, anew in each epoch and
            never out of the session (or block); for training only.
        skip: time steps that no window may touch: "all_zero:FIELD" for those where all values of
            the field are zero, or a function of the fields (as in a window, of any number of
            consecutive steps) that gives a bool for each step, True where it is bad. Windows are
            then counted from the start of each block between bad steps.
        fields: columns of tables or datasets, by as much of their path as tells them apart; by
            default all arrays of a store, the columns of a file's only table, or all its datasets.
        time_axis: which axis is time, for all fields or by name; by default the last in a store
            ([C, T]), the first in a file (of a table: its rows), and of one axis that one.
        channels_first: give time as the last axis: [C, T] from a table instead of [T, C].
        group: in a file, look only in this group.
        dataset: in a file, take only this table or dataset.
        chunk_cache_bytes: for decoded chunks of compressed data; a whole chunk must be decoded for
            any step in it, so some chunks for each thread should fit.

    Raises:
        UsageError: an option that cannot be.
        SourceError: files or fields that are not there or do not fit together, or no window at all.
    """
    shape = WindowShape.checked(length, length if stride is None else stride, padding, jitter)
    names = checked_names("fields", fields)
    tested = _tested_field(skip)
    needed = names if names is None or tested in {None, *names} else (*names, str(tested))
    cache_bytes = checked_number("chunk_cache_bytes", chunk_cache_bytes, least=0)
    sessions = _open_sessions(data, needed, group, dataset, time_axis, cache_bytes)
    for name in time_axis if isinstance(time_axis, Mapping) else ():
        if name not in sessions.fields:
            near = did_you_mean(name, sessions.fields)
            raise UsageError(f"time_axis must name fields that are read, {name!r} is none{near}")
    reader = SessionReader(sessions, names or tuple(sessions.fields), time_last=channels_first)
    blocks = whole_sessions(sessions.lengths) if skip is None else _valid_blocks(reader, skip, shape.span)
    return Windows(reader, WindowPlan(blocks, shape), np.arange(len(sessions)))


class Windows:
    """Windows by number; also a map-style Dataset for ``torch.utils.data.DataLoader``.

    Made by ``windows``. It may be forked, pickled (as paths and numbers; files are opened again when
    they are first read) and used from many threads.
    """

    def __init__(self, reader: "SessionReader", plan: WindowPlan, members: Integers) -> None:
        self._reader = reader
        self._plan = plan
        self._members = members  # for each session of this view its number in the reader's sessions
        if len(plan) == 0:
            raise self._no_window()

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, number: int) -> dict[str, Array]:
        """The window's fields, as new arrays; not jittered."""
        session, begin = self._begin(number)
        return self._reader.read(int(self._members[session]), begin, begin + self._plan.shape.span)

    def __repr__(self) -> str:
        shape, sizes = self._plan.shape, self.fields.items()
        fields = ", ".join(f"{name}: {dtype}{list(size)}" for name, (dtype, size) in sizes)
        return f"Windows({len(self)} every {shape.stride} steps of {self.num_sessions} sessions, {fields})"

    @property
    def fields(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Type and shape of every field of a window."""
        return self._reader.fields(self._plan.shape.span)

    @property
    def num_sessions(self) -> int:
        """Sessions, those too short for a window included."""
        return len(self._members)

    @property
    def identity(self) -> str:
        """Differs where windows differ in place or fields, or a store in content (files are not read)."""
        blocks, state = self._plan.blocks, xxhash.xxh3_128()
        for array in (self._members, blocks.session, blocks.start, blocks.stop):
            state.update(np.ascontiguousarray(array).tobytes())
        keys = "\n".join(map(self.session_key, range(self.num_sessions)))
        state.update(f"{self._reader.sessions.identity}{self._plan.shape}{self.fields}{keys}".encode())
        return state.hexdigest()

    def key(self, number: int) -> str:
        """The window's name, for messages: that of its session and the steps of it."""
        session, begin = self._begin(number)
        return f"{self.session_key(session)}[{begin}:{begin + self._plan.shape.span}]"

    def session(self, number: int) -> tuple[int, int]:
        """The number of the window's session, and the step at which it starts, after its context."""
        session, begin = self._begin(number)
        return session, begin + self._plan.shape.padding[0]

    def session_key(self, session: int) -> str:
        """The session's key in the store, or its file's path."""
        return self._reader.sessions.key(self._member(session))

    def attributes(self, session: int) -> dict[str, Any]:
        """What the session's HDF5 groups say of it; of a store, the sample's texts and single numbers."""
        return self._reader.sessions.attributes(self._member(session))

    def subset(self, sessions: Sequence[int]) -> "Windows":
        """The windows of these sessions alone, numbered anew; files are shared with this one."""
        members = np.array([self._member(session) for session in sessions], np.int64)
        chosen = np.arange(self.num_sessions)[list(sessions)]
        blocks = self._plan.blocks.of_sessions(chosen)
        return Windows(self._reader, WindowPlan(blocks, self._plan.shape), members)

    def read_into(self, numbers: Integers, out: Mapping[str, Array], *, seed: int, epoch: int) -> None:
        """Fill the first ``len(numbers)`` rows of every buffer in ``out``, from any thread.

        With jitter, each start depends on seed, epoch and its window's number alone.
        """
        numbers = np.asarray(numbers, np.int64)
        outside = (numbers < 0) | (numbers >= len(self))
        if outside.any():
            raise IndexError(f"window {int(numbers[outside][0])} of {len(self)}")
        fields = self.fields
        for name, buffer in out.items():
            found = buffer.dtype, buffer.shape[1:]
            if name not in fields or found != fields[name] or len(buffer) < len(numbers):
                raise UsageError(
                    f"a buffer for {len(numbers)} windows must fit one of {fields}, "
                    f"got {buffer.dtype}{list(buffer.shape)} for {name!r}"
                )
        session, begin = self._plan.jittered_begins(numbers, seed=seed, epoch=epoch)
        self._reader.read_many(self._members[session].tolist(), begin.tolist(), self._plan.shape.span, out)

    def statistics(self, num_windows: int | None = None, seed: int = 0) -> dict[str, FieldStats]:
        """Mean, deviation and extremes of every field (not of complex ones), one entry a channel.

        Exact, over every step of every session but for skipped ones, each counted once; or over
        ``num_windows`` windows, spread evenly and drawn by ``seed``. A channel is what has one value
        a step: a field of shape [T, 4, 2] has eight.
        """
        if num_windows is None:
            pieces = self._all_steps()
        else:
            count = min(checked_number("num_windows", num_windows, least=1), len(self))
            places = (np.arange(count) + np.random.default_rng(seed).random(count)) / count
            numbers = np.minimum((places * len(self)).astype(np.int64), len(self) - 1)
            pieces = (self[number] for number in numbers.tolist())
        totals: dict[str, list[Moments]] = {}
        for piece in pieces:
            for name, array in piece.items():
                if array.size and array.dtype.kind != "c":
                    parts = _moments(self._reader.by_step(name, array))
                    totals[name] = _merged(totals[name], parts) if name in totals else parts
        return {name: _stats(parts) for name, parts in totals.items()}

    def close(self) -> None:
        """Let go of files and cached chunks; a later read opens the files again."""
        self._reader.sessions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self, number: int) -> tuple[int, int]:
        i = operator.index(number)
        if not -len(self) <= i < len(self):
            raise IndexError(f"window {i} of {len(self)}")
        session, begin = self._plan.begins(np.array([i % len(self)]))
        return int(session[0]), int(begin[0])

    def _member(self, session: int) -> int:
        if not -self.num_sessions <= session < self.num_sessions:
            raise IndexError(f"session {session} of {self.num_sessions}")
        return int(self._members[session])

    def _all_steps(self) -> Iterator[dict[str, Array]]:
        blocks = self._plan.blocks
        for session, start, stop in zip(blocks.session, blocks.start, blocks.stop, strict=True):
            yield from self._reader.pieces(int(self._members[session]), int(start), int(stop))

    def _no_window(self) -> SourceError:
        shape, lengths = self._plan.shape, self._reader.sessions.lengths[self._members]
        if len(lengths) == 0:
            return SourceError("there must be at least one session, got none")
        longest = int(lengths.argmax())
        left, right = shape.padding
        return SourceError(
            f"no window fits: it takes {shape.span} valid steps in a row ({left} + {shape.length} + "
            f"{right}), and the longest of {len(lengths)} sessions, {self.session_key(longest)!r}, has "
            f"{lengths[longest]}, some of which may be skipped; choose a smaller length or padding, or "
            "say where time is with time_axis="
        )


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

    def pieces(self, session: int, start: int, stop: int) -> Iterator[dict[str, Array]]:
        """A long stretch in pieces of a few MB, one after the other."""
        step_bytes = sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.fields(1).values())
        size = max(1, _PIECE_BYTES // max(1, step_bytes))
        for first in range(start, stop, size):
            yield self.read(session, first, min(first + size, stop))

    def by_step(self, name: str, array: Array) -> Array:
        """The field's array as [T, channels]."""
        axis = -1 if self._time_last else self.sessions.fields[name].axis
        moved = np.moveaxis(array, axis, 0)
        return moved.reshape(len(moved), math.prod(moved.shape[1:]))


def _valid_blocks(reader: SessionReader, skip: Skip, min_steps: int) -> Blocks:
    tested = _tested_field(skip)
    if tested is not None and tested not in reader.sessions.fields:
        raise unknown("field", tested, reader.sessions.fields)
    if tested is not None:
        reader = SessionReader(reader.sessions, [tested], time_last=False)

    def bad_steps(session: int) -> Iterator[NDArray[np.bool_]]:
        num_steps = int(reader.sessions.lengths[session])
        for piece in reader.pieces(session, 0, num_steps):
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


def _tested_field(skip: Skip | None) -> str | None:
    """The field of "all_zero:FIELD"."""
    if skip is None or callable(skip):
        return None
    if not isinstance(skip, str) or not skip.startswith(_ALL_ZERO):
        raise UsageError(f"skip must be a function or 'all_zero:FIELD', got {skip!r}")
    return skip.removeprefix(_ALL_ZERO)


def _moments(steps: Array) -> list[Moments]:
    """Of steps [T, channels], for as many channels at a time as Moments keeps apart."""
    starts = range(0, steps.shape[1], _CHANNELS_AT_ONCE)
    return [Moments.of(steps[:, start : start + _CHANNELS_AT_ONCE], 0) for start in starts]


def _merged(left: list[Moments], right: list[Moments]) -> list[Moments]:
    return [merge(list(pair)) for pair in zip(left, right, strict=True)]


def _stats(parts: list[Moments]) -> FieldStats:
    """Of all channels, one entry each."""

    def joined(name: str) -> tuple[Any, ...]:
        return tuple(np.concatenate([getattr(part, name) for part in parts]).tolist())

    return FieldStats(
        count=joined("count"),
        num_nonfinite=joined("num_nonfinite"),
        mean=joined("mean"),
        std=joined("std"),
        min=joined("minimum"),
        max=joined("maximum"),
    )


def _open_sessions(
    data: Store | File | Sequence[File],
    names: Sequence[str] | None,
    group: str | None,
    dataset: str | None,
    time_axis: TimeAxis,
    cache_bytes: int,
) -> Sessions:
    if isinstance(data, str | os.PathLike) and (Path(data) / MANIFEST_NAME).is_file():
        data = Store(data)
    if isinstance(data, Store):
        if group is not None or dataset is not None:
            raise UsageError("group and dataset are for HDF5 files, a store has neither; leave them out")
        return StoreSessions(data, names, time_axis=time_axis, cache_bytes=cache_bytes)
    paths, keys = _files(data)
    return FileSessions(
        paths, keys, names, group=group, dataset=dataset, time_axis=time_axis, cache_bytes=cache_bytes
    )


def _files(data: File | Sequence[File]) -> tuple[list[str], list[str]]:
    """Absolute paths, and keys: as given, or below the folder that was given."""
    if not isinstance(data, str | os.PathLike):
        if not isinstance(data, Sequence) or not all(isinstance(path, str | os.PathLike) for path in data):
            raise UsageError(f"windows are cut from a store or from HDF5 files, got {data!r}")
        keys = [os.fspath(path) for path in data]
        return [str(Path(key).absolute()) for key in keys], keys
    text = os.fspath(data)
    root, keys = Path(text).parent, [Path(text).name]
    if Path(text).is_dir():
        root = Path(text)
        keys = [key for key in list_files(text, "**/*") if suffix_of(key) in Hdf5Reader.suffixes]
    elif has_magic(text) and not Path(text).exists():
        folder, pattern = split_pattern(text)
        root, keys = Path(folder), list_files(folder, pattern)
    if not keys:
        raise SourceError(f"there must be at least one HDF5 file, {text!r} has none (.h5 or .hdf5)")
    return [str((root / key).absolute()) for key in keys], keys
