"""Some bytes of an object: asked for by range in pieces, few at a time, on their way into a file with holes.

What comes is noted on the library's thread and written on that of the caller: a try that was given up may go
on for a while, and notes then what nobody looks at.
"""

import asyncio
import io
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, BinaryIO, NamedTuple

from stoker.errors import DamagedStoreError

Span = tuple[int, int]  # of bytes: first, and one behind the last

# Small: most libraries tell of no byte before a piece is here, and a slow link must bring all that are asked
# for at a time before silence is too long.
_PIECE_BYTES, _NUM_AT_A_TIME = 1 << 19, 8


class Ranges:
    """The spans of an object of ``num_bytes``; what came stays from one try to the next."""

    def __init__(self, file: BinaryIO, spans: Sequence[Span], num_bytes: int) -> None:
        self._file = file
        self._spans = spans
        self._num_bytes = num_bytes
        self.num_taken = 0  # times that something came
        self.start_over()

    def start_over(self) -> None:
        """Nothing is there: the file is one hole."""
        self._file.seek(0)
        self._file.truncate()
        self._file.truncate(self._num_bytes)
        self._missing = dict.fromkeys(_pieces(self._spans))

    def new_try(self) -> "Try":
        """For what is missing."""
        return Try(list(self._missing), self._spans, self._num_bytes)

    def take(self, asked: "Try") -> None:
        """Write what has come since the last time."""
        while asked.news:
            came = asked.news.popleft()
            self._file.seek(came.start)
            self._file.write(came.content)
            for piece in came.finished:
                self._missing.pop(piece, None)
            self.num_taken += 1


class News(NamedTuple):
    """What came."""

    start: int
    content: bytes
    finished: Sequence[Span]  # pieces that are here with it


class Try:
    """Asks for pieces; ``news`` tells what came."""

    def __init__(self, pieces: Sequence[Span], spans: Sequence[Span], num_bytes: int) -> None:
        self.pieces = pieces
        self.spans = spans
        self.num_bytes = num_bytes
        self.news: deque[News] = deque()

    async def run(self, ask: Callable[[Span, "Answer"], Awaitable[None]]) -> None:
        """Have every piece; after an error the others under way still come, then it is raised."""

        async def have(piece: Span) -> bool:
            answer = Answer(self, piece)
            await ask(piece, answer)
            return answer.finish()

        if not self.pieces or await have(self.pieces[0]):  # alone: it shows whether ranges are known there
            return
        waiting = iter(self.pieces[1:])

        async def work() -> None:
            for piece in waiting:
                await have(piece)

        ended = await asyncio.gather(*(work() for _ in range(_NUM_AT_A_TIME)), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error


class Answer(io.RawIOBase):
    """What comes for a piece: as a file, so that a library may write into it while it comes.

    A server that knows no ranges sends the whole object, of which the spans are kept.
    """

    def __init__(self, asked: Try, piece: Span) -> None:
        super().__init__()
        self._asked = asked
        self._piece = piece
        self._here = piece[0]

    def write(self, content: Any) -> int:
        """The next bytes; DamagedStoreError where there are more than there can be."""
        start, self._here = self._here, self._here + len(content)
        limit = self._asked.num_bytes if self._piece[0] == 0 else self._piece[1]
        if self._here > limit:
            raise DamagedStoreError(f"more than {limit - self._piece[0]} bytes came from {self._piece[0]} on")
        self._asked.news.append(News(start, b"", ()))  # something moves, be it in a hole
        for span in self._asked.spans:
            first, stop = max(span[0], start), min(span[1], self._here)
            if first < stop:
                self._asked.news.append(News(first, content[first - start : stop - start], ()))
        return len(content)

    def finish(self) -> bool:
        """Nothing more comes; whether it was the whole object."""
        (first, stop), here = self._piece, self._here
        is_whole = here == self._asked.num_bytes and first == 0
        if here != stop and not is_whole:
            raise DamagedStoreError(f"of {stop - first} bytes from {first} on there came {here - first}")
        self._asked.news.append(News(first, b"", self._asked.pieces if is_whole else [self._piece]))
        return is_whole


def _pieces(spans: Sequence[Span]) -> list[Span]:
    return [
        (start, min(start + _PIECE_BYTES, stop))
        for first, stop in spans
        for start in range(first, stop, _PIECE_BYTES)
    ]
