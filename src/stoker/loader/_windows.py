"""Windows over long sessions, found by arithmetic and cut out of the mapped files."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import xxhash

from stoker.errors import SourceError, UsageError
from stoker.loader._open_sessions import File, open_sessions
from stoker.loader._session_reader import SessionReader, Skip, tested_field, valid_blocks
from stoker.loader._sessions import TimeAxis
from stoker.loader._window_plan import Integers, WindowPlan, WindowShape, checked_number, whole_sessions
from stoker.loader._window_statistics import channel_statistics, spread_evenly
from stoker.store import FieldStats, Store
from stoker.store._samples import Array
from stoker.store.sources._nearest import did_you_mean
from stoker.store.sources._reader import checked_names

_PIECE_BYTES = 4 << 20  # of a session that are in memory at a time when all of it is visited


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
    tested = tested_field(skip)
    needed = names if names is None or tested in {None, *names} else (*names, str(tested))
    cache_bytes = checked_number("chunk_cache_bytes", chunk_cache_bytes, least=0)
    sessions = open_sessions(data, needed, group, dataset, time_axis, cache_bytes)
    for name in time_axis if isinstance(time_axis, Mapping) else ():
        if name not in sessions.fields:
            near = did_you_mean(name, sessions.fields)
            raise UsageError(f"time_axis must name fields that are read, {name!r} is none{near}")
    reader = SessionReader(sessions, names or tuple(sessions.fields), time_last=channels_first)
    if skip is None:
        blocks = whole_sessions(sessions.lengths)
    else:
        blocks = valid_blocks(reader, skip, min_steps=shape.span, piece_bytes=_PIECE_BYTES)
    return Windows(reader, WindowPlan(blocks, shape), np.arange(len(sessions)))


class Windows:
    """Windows by number; also a map-style Dataset for ``torch.utils.data.DataLoader``.

    Made by ``windows``. It may be forked, pickled (as paths and numbers; files are opened again when
    they are first read) and used from many threads.
    """

    def __init__(self, reader: SessionReader, plan: WindowPlan, members: Integers) -> None:
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
    def at_memory_speed(self) -> bool:
        """Whether reading is nothing but copying."""
        return self._reader.sessions.at_memory_speed

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

    def sessions(self) -> Integers:
        """The number of every window's session, [windows]: 8 bytes a window, where one needs them all."""
        return self._plan.begins(np.arange(len(self)))[0]

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
            numbers = spread_evenly(count, len(self), seed)
            pieces = (self[number] for number in numbers.tolist())
        return channel_statistics(pieces, self._reader.by_step)

    def close(self) -> None:
        """Let go of files and cached chunks; a later read opens the files again."""
        self._reader.sessions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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
            member = int(self._members[session])
            yield from self._reader.pieces(member, int(start), int(stop), max_bytes=_PIECE_BYTES)

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
