"""Waiting for a core, as the scheduler counts it."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker.doctor._record import Batch, with_queues
from stoker.doctor.making import _fetch
from stoker.doctor.making._core_queue import UNTOLD, CoreQueue

pytestmark = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel keeps no count")


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_two_that_compute_on_one_core_wait_for_each_other() -> None:
    before_cores, queue = os.sched_getaffinity(0), CoreQueue()
    os.sched_setaffinity(0, {min(before_cores)})
    try:
        child = os.fork()
        if child == 0:
            burn(0.5)
            os._exit(0)
        before = queue.waited_ns()
        burn(0.3)
        waited_s = (queue.waited_ns() - before) / 1e9
        os.waitpid(child, 0)
    finally:
        os.sched_setaffinity(0, before_cores)
    assert waited_s > 0.1


def test_waiting_for_something_else_is_not_counted() -> None:
    queue, event = CoreQueue(), threading.Event()
    timer = threading.Timer(0.2, event.set)
    before = queue.waited_ns()
    timer.start()
    event.wait()
    assert (queue.waited_ns() - before) / 1e9 < 0.15


def test_each_thread_and_process_is_asked_for_itself() -> None:
    queue = CoreQueue()
    found = [queue.waited_ns()]
    thread = threading.Thread(target=lambda: found.append(queue.waited_ns()))
    thread.start()
    thread.join()
    assert UNTOLD not in found
    child = os.fork()
    if child == 0:
        os._exit(0 if 0 <= queue.waited_ns() < 10**9 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert queue.waited_ns() >= found[0]
    assert queue.since(queue.waited_ns()) >= 0
    assert queue.since(UNTOLD) == queue.since(1 << 62) == UNTOLD


def test_waits_are_known_where_nearly_all_fetches_were_asked() -> None:
    untold = Batch("loader", 0, 0, None, "normal", 0.0, 1.0, 0.8, 0.2, 0.2, 0.2, {}, 16, 1024)
    told = replace(untold, queued_s=0.5)
    assert with_queues([told] * 19 + [untold]) == [told] * 19
    assert with_queues([told] * 3 + [untold]) == []
    assert with_queues([]) == []


class Fetcher:
    """Gives what it is asked for."""

    auto_collation = True
    dataset: Any = ()

    def __init__(self) -> None:
        self.collate_fn = list

    def fetch(self, index: list[int]) -> list[int]:
        return self.collate_fn(index)


def test_quick_fetches_are_not_asked_and_a_slow_one_after_them_is_untold_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetcher, queued = Fetcher(), list[int]()
    probe = _fetch.Probe(fetcher, keep_in=False)
    probe.keep = lambda _number, figures, _transforms: queued.append(figures[6])
    fetch = _fetch._watched_fetch(Fetcher.fetch)
    for is_quick in (False, True, True, False, False):
        monkeypatch.setattr(_fetch, "_QUICK_NS", 1 << 62 if is_quick else 0)
        fetch(fetcher, [0])
    assert [each == UNTOLD for each in queued] == [False, False, False, True, False]
    assert queued[2] == 0
