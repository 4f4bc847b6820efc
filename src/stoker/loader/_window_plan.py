"""Which steps of which session window number i covers: arithmetic on blocks, nothing kept per window.

A block is a stretch of one session in which windows may lie: the whole session, or what is left
between two skipped stretches. With ``span = left + length + right`` steps in a window and its
context, a block of ``n`` steps holds ``(n - span) // stride + 1`` windows. The k-th begins
``k * stride`` steps into the block; its core starts ``left`` steps later. Sums of those counts and a
binary search find the block of any window: memory is O(blocks), whatever the number of windows.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.errors import UsageError
from stoker.loader._permutation import derive, mix

Integers = NDArray[np.int64]

_MAX_LIMIT = 0xFFFF_FFFE  # of a draw: the product with 32 bits of the hash has to fit into 64
_GOLDEN = 0x9E37_79B9_7F4A_7C15


@dataclass(frozen=True)
class WindowShape:
    """What all windows have in common, in time steps."""

    length: int
    stride: int
    padding: tuple[int, int]  # context left and right
    jitter: int

    @classmethod
    def checked(cls, length: int, stride: int, padding: tuple[int, int], jitter: int) -> "WindowShape":
        """Raises UsageError for what cannot be."""
        if not isinstance(padding, tuple | list) or len(padding) != 2:
            raise UsageError(f"padding must be two numbers of steps, (left, right), got {padding!r}")
        left, right = (checked_number("padding", steps, least=0) for steps in padding)
        return cls(
            length=checked_number("length", length, least=1),
            stride=checked_number("stride", stride, least=1),
            padding=(left, right),
            jitter=checked_number("jitter", jitter, least=0),
        )

    @property
    def span(self) -> int:
        """Steps in a window, context included."""
        return self.padding[0] + self.length + self.padding[1]


@dataclass(frozen=True)
class Blocks:
    """Where windows may lie: steps ``start`` to ``stop`` of ``session``, each [B], sessions sorted."""

    session: Integers
    start: Integers
    stop: Integers

    def of_sessions(self, sessions: Integers) -> "Blocks":
        """The blocks of these sessions, which are numbered anew from 0 in the given order."""
        low = np.searchsorted(self.session, sessions, side="left")
        count = np.searchsorted(self.session, sessions, side="right") - low
        before = np.cumsum(count) - count
        block = np.repeat(low - before, count) + np.arange(count.sum())
        return Blocks(np.repeat(np.arange(len(sessions)), count), self.start[block], self.stop[block])


class WindowPlan:
    """The windows of one shape in some blocks, numbered from 0 in the order of the blocks."""

    def __init__(self, blocks: Blocks, shape: WindowShape) -> None:
        self.blocks = blocks
        self.shape = shape
        counts = count_windows(blocks.stop - blocks.start, shape)
        self._first = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])  # number of each first

    def __len__(self) -> int:
        return int(self._first[-1])

    def begins(self, numbers: Integers) -> tuple[Integers, Integers]:
        """Session and first step (context included) of each of these windows."""
        block, begin = self._locate(numbers)
        return self.blocks.session[block], begin

    def jittered_begins(self, numbers: Integers, *, seed: int, epoch: int) -> tuple[Integers, Integers]:
        """The same, each window moved by 0 to ``jitter`` steps, as far as its block allows.

        The move is a function of seed, epoch and window number alone.
        """
        if self.shape.jitter == 0:
            return self.begins(numbers)
        block, begin = self._locate(numbers)
        room = self.blocks.stop[block] - begin - self.shape.span
        limit = np.minimum(room, min(self.shape.jitter, _MAX_LIMIT))
        move = keyed_draw(limit, numbers, seed=seed, epoch=epoch)
        return self.blocks.session[block], begin + move

    def _locate(self, numbers: Integers) -> tuple[Integers, Integers]:
        block = np.searchsorted(self._first, numbers, side="right") - 1
        begin = self.blocks.start[block] + (numbers - self._first[block]) * self.shape.stride
        return block, begin


def count_windows(num_steps: Integers, shape: WindowShape) -> Integers:
    """How many windows lie wholly within each stretch of that many steps."""
    return np.where(num_steps < shape.span, 0, (num_steps - shape.span) // shape.stride + 1)


def whole_sessions(lengths: Integers) -> Blocks:
    """One block a session: nothing is skipped."""
    return Blocks(np.arange(len(lengths)), np.zeros(len(lengths), np.int64), np.asarray(lengths, np.int64))


def join_blocks(runs: Iterable[tuple[Integers, Integers]]) -> Blocks:
    """The blocks of all sessions, from the starts and stops of each in turn."""
    parts = list(runs)
    counts = [len(start) for start, _ in parts]
    empty = [np.empty(0, np.int64)]
    return Blocks(
        np.repeat(np.arange(len(parts)), counts),
        np.concatenate(empty + [start for start, _ in parts]),
        np.concatenate(empty + [stop for _, stop in parts]),
    )


def valid_runs(bad: Iterable[NDArray[np.bool_]], min_steps: int) -> tuple[Integers, Integers]:
    """Starts and stops of the stretches without bad steps, of at least ``min_steps`` steps.

    ``bad`` are masks of consecutive pieces of one session; a stretch may reach across them.
    """
    starts, stops = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    position, open_since = 0, -1  # the first step of a stretch that may go on, or -1
    for mask in bad:
        if len(mask) == 0:
            continue
        valid = np.concatenate([[open_since >= 0], ~mask])
        edges = np.flatnonzero(valid[1:] != valid[:-1]) + position
        if open_since >= 0:
            edges = np.concatenate([[open_since], edges])
        position += len(mask)
        open_since = int(edges[-1]) if len(edges) % 2 else -1
        closed = edges[: len(edges) // 2 * 2].reshape(-1, 2)
        closed = closed[closed[:, 1] - closed[:, 0] >= min_steps]
        starts.append(closed[:, 0])
        stops.append(closed[:, 1])
    if 0 <= open_since <= position - min_steps:
        starts.append(np.array([open_since]))
        stops.append(np.array([position]))
    return np.concatenate(starts), np.concatenate(stops)


def checked_number(name: str, number: int, *, least: int) -> int:
    """The option's number, or a UsageError."""
    if not isinstance(number, int | np.integer) or isinstance(number, bool) or not least <= number < 2**62:
        raise UsageError(f"{name} must be a whole number of at least {least}, got {number!r}")
    return int(number)


def keyed_draw(limits: Integers, numbers: Integers, *, seed: int, epoch: int) -> Integers:
    """For each number a whole number from 0 to its limit, uniform and independent of the others.

    Limits are at most 2**32 - 2. The upper half of the hash times the number of choices, over 2**32, is
    the draw: exact to one part in 2**32, and without the slow division of a remainder.
    """
    key = np.uint64(derive(seed, epoch))
    hashes = mix(mix(np.atleast_1d(numbers).astype(np.uint64) + np.uint64(_GOLDEN)) ^ key)
    choices = np.atleast_1d(limits).astype(np.uint64) + np.uint64(1)
    return ((hashes >> np.uint64(32)) * choices >> np.uint64(32)).astype(np.int64)
