"""The next batch, made in a thread while the last one is used."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

Item = TypeVar("Item")

_END: Any = object()


def one_ahead(items: Generator[Item]) -> Generator[Item]:
    """The same items; the next one is under way from the moment that one is given.

    What goes wrong while an item is made is raised where it would have been given. Closed early, it waits for
    the item that is under way and closes `items`.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="stoker-augment") as pool:
        following = pool.submit(next, items, _END)
        try:
            while (item := following.result()) is not _END:
                following = pool.submit(next, items, _END)
                yield item
                del item  # the user's alone: its memory may be free by the next step
        finally:
            wait([following])
            items.close()
