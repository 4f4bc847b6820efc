"""Batches of views: each generation is a store of its own, read by threads like any other."""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.loader._course import Course, Fetched
from stoker.loader._preload import populate
from stoker.loader._readers import StoreReader
from stoker.loader._threads import ThreadFeed
from stoker.loader._views import ViewCache
from stoker.store import Store


class ViewReader(StoreReader):
    """One generation: samples are asked for by number, and an epoch's views of them read."""

    def __init__(self, views: ViewCache, generation: Store) -> None:
        super().__init__(generation, None)
        list(generation.shards)  # all mapped now: another process may remove it while it is read
        self.identity = views.identity
        self.epoch = 0  # whose views are read now
        self._views = views

    def __len__(self) -> int:
        return len(self._views)

    def key(self, number: int) -> str:
        """The sample's key in the original store."""
        return self._views.key(number)

    def locate(self, numbers: NDArray[np.int64]) -> Any:
        """Where this epoch's views of the samples lie."""
        return super().locate(self._views.rows(numbers, self.epoch))


class ViewFeed:
    """Reads the generation of the epoch that is asked for, and has the next one made meanwhile."""

    def __init__(
        self,
        views: ViewCache,
        make_feed: Callable[[ViewReader], ThreadFeed],
        *,
        preload: bool | int,
    ) -> None:
        self._views = views
        self._make_feed = make_feed
        self._preload = preload
        self._open: tuple[int, ViewReader, ThreadFeed] | None = None

    def batches(self, course: Course, *, skip_bad: bool) -> Generator[Fetched]:
        """The batches of the course's remaining steps, in order.

        Raises:
            StoreError: the generation can neither be opened nor made.
            BadSampleError: a sample cannot be augmented, or a view cannot be read.
        """
        reader, feed = self._generation(self._views.generation_of(course.epoch))
        reader.epoch = course.epoch
        yield from feed.batches(course, skip_bad=skip_bad)

    def close(self) -> None:
        """Stop reading and let go of the threads and of the generation."""
        if self._open is not None:
            self._open[2].close()
        self._open = None

    def _generation(self, number: int) -> tuple[ViewReader, ThreadFeed]:
        if self._open is None or self._open[0] != number:
            self.close()  # first: what is mapped takes room on disk even after it was removed
            reader = ViewReader(self._views, self._views.generation(number))
            feed = self._make_feed(reader)
            populate(feed, reader, self._preload)
            self._open = number, reader, feed
            self._views.prepare(number + 1)
        return self._open[1:]
