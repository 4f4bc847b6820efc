"""Who waits for whom, and for how long: processes, threads and forks that want the same files."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import stoker
from stoker.errors import StoreUnreachableError, StoreWriteError
from stoker.loader._arrivals import Arrivals
from stoker.store.remote import RemoteShards
from stoker.store.remote._folder import CacheFolder
from stoker.store.remote._locks import Kind, Uses, locked, locked_if_free
from support.datasets import assert_same
from support.fault_proxy import FaultProxy
from support.forked import Forked

DIGEST = "a" * 32


def is_free(path: Path, kind: Kind) -> bool:
    with locked_if_free(path, kind, DIGEST) as is_held:
        return is_held


@pytest.mark.parametrize("dies", [False, True])
def test_a_child_forked_while_a_lock_is_held_does_not_keep_it(tmp_path: Path, dies: bool) -> None:
    path = tmp_path / "lock"
    ours, theirs = os.pipe()
    ready, is_ready = os.pipe()

    def hold_and_fork() -> None:
        with locked(path, Kind.FETCH, DIGEST):
            child = os.fork()
            if child == 0:  # lives on until the test lets it go
                os.write(is_ready, b"!")
                os.close(theirs)
                os.read(ours, 1)
                os._exit(0)
            os.read(ready, 1)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)

    parent = os.fork()
    if parent == 0:
        hold_and_fork()
        os._exit(0)
    os.waitpid(parent, 0)
    try:
        assert is_free(path, Kind.FETCH)
    finally:
        for descriptor in (ours, theirs, ready, is_ready):
            os.close(descriptor)


def test_a_child_that_was_forked_during_a_fetch_gets_the_shard(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    store = stoker.open(url, stall_s=3600.0)
    proxy.break_("/shards/", ["stall"])
    stop = threading.Event()
    fetching = threading.Thread(target=_fetch_and_give_up, args=(store.shards, stop))
    fetching.start()
    assert proxy.is_stalled.wait(60)
    ours, theirs = os.pipe()

    def read() -> None:
        os.read(ours, 1)
        assert_same(store[0], local[0])

    child = Forked(read)
    stop.set()
    fetching.join()
    os.write(theirs, b"!")
    done = child.wait()
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert cache.exists()


def _fetch_and_give_up(shards: RemoteShards, stop: threading.Event) -> None:
    with pytest.raises(StoreUnreachableError, match="no longer needed"):
        shards.fetch(0, stop)


def test_what_a_forked_child_holds_stays_held_when_its_parent_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    uses = Uses(path)
    uses.hold(DIGEST)
    ours, theirs = os.pipe()
    ready, is_ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(is_ready, b"!")
        os.close(theirs)
        os.read(ours, 1)
        os._exit(0)
    os.read(ready, 1)
    uses.drop(DIGEST)
    try:
        assert not is_free(path, Kind.USE)
    finally:
        os.close(theirs)
        os.waitpid(child, 0)
        for descriptor in (ours, ready, is_ready):
            os.close(descriptor)
    assert is_free(path, Kind.USE)


def test_the_deadline_counts_while_another_process_fetches(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    store = stoker.open(url, deadline_s=0.2)
    shard = local.manifest.shards[0].digest
    with (
        locked(cache / ".cache.lock", Kind.FETCH, shard),
        pytest.raises(StoreUnreachableError, match=rf"{url}/shards/{shard}\.h5 is being fetched by another"),
    ):
        store.shards[0]
    assert proxy.num_gets("/shards/") == 0
    assert_same(store.shards[0].sample(0), local.shards[0].sample(0))  # it is not held to have failed


def test_who_waits_for_another_process_can_be_stopped(url: str, local: stoker.Store, cache: Path) -> None:
    store = stoker.open(url)
    assert isinstance(store.shards, RemoteShards)
    stop = threading.Event()
    stop.set()
    with (
        locked(cache / ".cache.lock", Kind.FETCH, local.manifest.shards[0].digest),
        pytest.raises(StoreUnreachableError),
    ):
        store.shards.fetch(0, stop)


def test_closing_a_loader_does_not_wait_for_a_process_that_fetches(
    url: str, local: stoker.Store, cache: Path
) -> None:
    last = local.manifest.shards[int(local.index.shard[-1])].digest
    loader = stoker.Loader(stoker.open(url), 4, shuffle=False, num_workers=1)
    with locked(cache / ".cache.lock", Kind.FETCH, last):
        batches = iter(loader)
        next(batches)
        loader.close()
    assert not (cache / "shards" / f"{last}.h5").exists()


def test_an_iterator_that_is_dropped_does_not_wait_for_a_process_that_fetches(
    url: str, local: stoker.Store, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = int(local.index.shard[-1])
    plain, is_waited_for = Arrivals.wait_for, threading.Event()

    def wait_for(self: Arrivals, shards: NDArray[np.uint32], stop: threading.Event | None) -> None:
        if number in shards:
            is_waited_for.set()
        plain(self, shards, stop)

    monkeypatch.setattr(Arrivals, "wait_for", wait_for)
    with (
        stoker.Loader(stoker.open(url), 4, shuffle=False, num_workers=2) as loader,
        locked(cache / ".cache.lock", Kind.FETCH, local.manifest.shards[number].digest),
    ):
        batches = iter(loader)
        next(batches)
        assert is_waited_for.wait(60)
        del batches
    assert not (cache / "shards" / f"{local.manifest.shards[number].digest}.h5").exists()


def test_a_fetch_that_fails_drops_nothing_that_another_thread_holds(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    store = stoker.open(url, deadline_s=0.5)
    assert isinstance(store.shards, RemoteShards)
    arrivals = Arrivals(store.shards, [], populate=False)
    digest = local.manifest.shards[0].digest
    arrivals._uses.hold(digest)  # as a thread does that wants the same shard
    proxy.break_for_ever("/shards/", "500")
    with pytest.raises(StoreUnreachableError):
        arrivals.bring(0, None)
    with locked_if_free(cache / ".cache.lock", Kind.USE, digest) as is_held:
        assert not is_held


def test_what_arrived_is_held(url: str, local: stoker.Store, cache: Path) -> None:
    store = stoker.open(url)
    assert isinstance(store.shards, RemoteShards)
    arrivals = Arrivals(store.shards, [], populate=False)
    arrivals.bring(0, None)
    assert arrivals.has(np.array([0]))
    largest = max(entry.num_bytes for entry in local.manifest.shards)
    other = stoker.open(url, cache_bytes=local.manifest.index.num_bytes + largest, deadline_s=0.2)
    with pytest.raises(StoreWriteError, match="all that it holds is in use"):
        other.shards[1]
    assert (cache / "shards" / f"{local.manifest.shards[0].digest}.h5").exists()


def test_opening_waits_for_room(
    url: str, local: stoker.Store, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = local.manifest.index.num_bytes + 10
    folder = CacheFolder(cache, budget)
    in_use = cache / "shards" / f"{DIGEST}.h5"
    in_use.write_bytes(bytes(100))
    uses = folder.new_uses()
    uses.hold(DIGEST)
    plain, looks = CacheFolder._make_room, []

    def make_room(self: CacheFolder, num_bytes: int, digest: str) -> None:
        """As if its user let go of it when it is looked for the third time."""
        looks.append(digest)
        if len(looks) == 3:
            uses.drop(DIGEST)
        plain(self, num_bytes, digest)

    monkeypatch.setattr(CacheFolder, "_make_room", make_room)
    assert len(stoker.open(url, cache_bytes=budget)) == 60
    assert len(looks) == 3
    assert not in_use.exists()
