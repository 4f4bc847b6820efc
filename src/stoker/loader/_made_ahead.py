"""The next batches, made in threads while the last one is used."""

import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")

_END: Any = object()


def made_ahead(items: Generator[Item], make: Callable[[Item], Made], num_ahead: int) -> Generator[Made]:
    """`make` of each item, in order; the next ones are under way from the moment that one is given.

    Items are taken by the threads too, one after the other, so that nobody waits for a later one. What goes
    wrong is raised where its item would have been given. Closed early, it waits for what is under way and
    closes `items`.

    Args:
        items: those to come.
        make: called in `num_ahead` threads at once.
        num_ahead: how many are under way.
    """
    import torch

    taking = threading.Lock()
    vacant: deque[Future[Made]] = deque()  # in the order of their items, which is the one of taking them
    pending: deque[Future[Made]] = deque()

    def work() -> None:
        with taking:
            future = vacant.popleft()
            try:
                item: Any = next(items, _END)
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                future.set_exception(error)
                return
        try:
            future.set_result(_END if item is _END else make(item))
        except BaseException as error:  # noqa: BLE001
            future.set_exception(error)

    def begin_another() -> None:
        future: Future[Made] = Future()
        vacant.append(future)
        pending.append(future)
        pool.submit(work)

    # a thread that first uses torch while another augments would take over how few threads that one uses
    num_threads = torch.get_num_threads()
    with ThreadPoolExecutor(
        num_ahead, "stoker-augment", initializer=torch.set_num_threads, initargs=(num_threads,)
    ) as pool:
        try:
            for _ in range(num_ahead):
                begin_another()
            while (made := pending.popleft().result()) is not _END:
                begin_another()
                yield made
                del made  # the user's alone: its memory may be free by the next step
        finally:
            pool.shutdown(cancel_futures=True)
            items.close()
