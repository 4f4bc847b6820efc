import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.errors import StoreWriteError, UsageError
from stoker.store import _shard
from stoker.store._layout import Column, open_columns
from stoker.store.remote import RemoteShards
from stoker.store.remote._folder import CacheFolder, _Found
from support.datasets import assert_same
from support.fault_proxy import FaultProxy
from support.forked import Forked


def cached_bytes(cache: Path) -> int:
    return sum(path.stat().st_size for path in cache.rglob("*.h5"))


def shards_in(cache: Path) -> set[str]:
    return {path.stem for path in (cache / "shards").iterdir()}


def first_samples(store: stoker.Store) -> list[int]:
    """A sample of each shard."""
    return [int(i) for i in np.unique(store.index.shard, return_index=True)[1]]


def test_processes_that_share_a_cache_fetch_a_shard_once(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    def read() -> None:
        store = stoker.open(url)
        for i in range(60):
            assert_same(store[i], local[i])

    children = [Forked(read) for _ in range(3)]
    for child in children:
        done = child.wait()
        assert done.returncode == 0, done.stderr
    assert proxy.num_gets("/shards/") == len(local.manifest.shards)
    assert proxy.num_gets("/index-") == 1
    assert shards_in(cache) == {entry.digest for entry in local.manifest.shards}


def test_a_forked_child_reads_on(url: str, local: stoker.Store, cache: Path) -> None:
    store = stoker.open(url)
    store[0]

    def read() -> None:
        for i in range(60):
            assert_same(store[i], local[i])

    done = Forked(read).wait()
    assert done.returncode == 0, done.stderr
    assert_same(store[59], local[59])
    assert cache.exists()


def test_a_process_killed_while_it_fetches_leaves_a_usable_cache(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    digest = local.manifest.shards[int(local.index.shard[0])].digest
    proxy.break_(digest, ["stall"])
    child = Forked(lambda: stoker.open(url, stall_s=3600.0, deadline_s=3600.0)[0])
    assert proxy.is_stalled.wait(60)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait().returncode == -signal.SIGKILL
    assert len(list(cache.glob(".writing-*"))) == 1
    assert digest not in shards_in(cache)
    store = stoker.open(url)
    for i in range(60):
        assert_same(store[i], local[i])
    assert not list(cache.glob(".writing-*"))


def test_what_a_killed_process_reserved_makes_room(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    digest = local.manifest.shards[int(local.index.shard[0])].digest
    other = next(i for i in range(60) if local.index.shard[i] != local.index.shard[0])
    proxy.break_(digest, ["stall"])
    child = Forked(lambda: stoker.open(url, stall_s=3600.0, deadline_s=3600.0)[0])
    assert proxy.is_stalled.wait(60)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    largest = max(entry.num_bytes for entry in local.manifest.shards)
    store = stoker.open(url, cache_bytes=local.manifest.index.num_bytes + largest, deadline_s=2.0)
    assert_same(store[other], local[other])
    assert not list(cache.glob(".writing-*"))


def test_the_budget_holds_and_what_was_used_least_recently_goes(
    url: str, local: stoker.Store, cache: Path
) -> None:
    sizes = [entry.num_bytes for entry in local.manifest.shards]
    budget = local.manifest.index.num_bytes + 3 * max(sizes)
    samples = first_samples(local)
    for round_ in range(2):
        for number, i in enumerate(samples):
            stoker.open(url, cache_bytes=budget)[i]  # opened anew: nobody maps what was read before
            assert cached_bytes(cache) <= budget
            assert local.manifest.shards[number].digest in shards_in(cache)
        assert local.manifest.shards[0].digest not in shards_in(cache), round_
    stoker.open(url, cache_bytes=budget)[samples[-3]]  # used again, so the next to go is another
    stoker.open(url, cache_bytes=budget)[samples[0]]
    assert local.manifest.shards[len(samples) - 3].digest in shards_in(cache)
    assert local.manifest.shards[len(samples) - 2].digest not in shards_in(cache)


def test_what_somebody_maps_is_not_removed(url: str, local: stoker.Store, cache: Path) -> None:
    samples = first_samples(local)
    holder = stoker.open(url)
    for i in samples[:2]:
        holder[i]
    held = {local.manifest.shards[number].digest for number in (0, 1)}
    largest = max(entry.num_bytes for entry in local.manifest.shards)
    budget = cached_bytes(cache) + largest
    for i in samples[2:]:
        stoker.open(url, cache_bytes=budget)[i]
        assert held < shards_in(cache)
    with pytest.raises(StoreWriteError, match="all that it holds is in use"):
        stoker.open(url, cache_bytes=cached_bytes(cache) - largest, deadline_s=0.5)[samples[3]]
    del holder
    stoker.open(url, cache_bytes=local.manifest.index.num_bytes + largest)[samples[3]]
    assert shards_in(cache) == {local.manifest.shards[3].digest}


def test_what_a_thread_is_opening_is_not_removed_though_another_thread_closes_it(
    url: str, local: stoker.Store, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = local.manifest.shards
    budget = local.manifest.index.num_bytes + max(entry.num_bytes for entry in entries)
    store = stoker.open(url, cache_bytes=budget)
    other = stoker.open(url, cache_bytes=budget, deadline_s=0.1)

    def open_late(path: Path, expected_bytes: int) -> dict[str, Column]:
        """As if another thread opened and closed it just now, and a third one needed its room."""
        monkeypatch.setattr(_shard, "open_columns", open_columns)
        assert isinstance(store.shards, RemoteShards)
        store.shards[0]
        assert store.shards._close_all()
        with pytest.raises(StoreWriteError, match="all that it holds is in use"):
            other.shards[1]
        return open_columns(path, expected_bytes)

    monkeypatch.setattr(_shard, "open_columns", open_late)
    assert_same(store.shards[0].sample(0), local.shards[0].sample(0))
    assert shards_in(cache) == {entries[0].digest}
    store.shards[1]  # nothing is held any longer but what is open
    assert shards_in(cache) == {entries[1].digest}


def test_a_store_larger_than_the_budget_is_read_whole(url: str, local: stoker.Store, cache: Path) -> None:
    largest = max(entry.num_bytes for entry in local.manifest.shards)
    budget = local.manifest.index.num_bytes + largest
    store = stoker.open(url, cache_bytes=budget)
    for i in range(59, -1, -1):
        assert_same(store[i], local[i])
        assert cached_bytes(cache) <= budget


def test_a_budget_smaller_than_a_shard_is_an_error_that_says_so(url: str, cache: Path) -> None:
    with pytest.raises(StoreWriteError, match=r"one shard alone has \d+; give more by cache_bytes="):
        stoker.open(url, cache_bytes=100)
    with pytest.raises(UsageError, match="cache_bytes must be at least 1"):
        stoker.open(url, cache_bytes=0)
    assert cache.exists()


def test_a_file_cut_short_behind_our_back_is_fetched_again(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    stoker.open(url)[0]
    (file,) = (cache / "shards").iterdir()
    os.truncate(file, 100)
    assert_same(stoker.open(url)[0], local[0])
    assert proxy.num_gets("/shards/") == 2


def test_a_cache_that_cannot_be_written_is_an_error_that_names_it(url: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreWriteError, match=r"cannot write .*file"):
        stoker.open(url, cache=tmp_path / "file" / "cache")


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(("num_bytes", "kept"), [(60, {"2"}), (40, {"1", "2"})])
def test_a_file_that_arrives_while_room_is_made_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_bytes: int, kept: set[str], *, is_late: bool
) -> None:
    folder = CacheFolder(tmp_path, 100)
    arriving = tmp_path / f".writing-60-{'1' * 32}.h5"
    arriving.write_bytes(bytes(60))
    look = os.scandir

    def look_while_it_arrives(path: Path) -> Any:
        """It arrives before the folder where it will be is listed, or after."""
        before = list(look(path))
        if path.name == "shards" and arriving.exists():
            arriving.rename(path / f"{'1' * 32}.h5")
        return contextlib.nullcontext(before if is_late else list(look(path)))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", look_while_it_arrives)
        bring(folder, "2" * 32, num_bytes)
    assert shards_in(tmp_path) == {32 * each for each in kept}


def test_a_fetch_that_fails_while_room_is_made_leaves_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CacheFolder(tmp_path, 100)
    bring(folder, "3" * 32, 40)
    failing = tmp_path / f".writing-60-{'1' * 32}.h5"
    failing.touch()
    look = CacheFolder._files

    def look_and_let_it_fail(self: CacheFolder) -> list[_Found]:
        found = look(self)
        failing.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(CacheFolder, "_files", look_and_let_it_fail)
    bring(folder, "2" * 32, 60)
    assert shards_in(tmp_path) == {"2" * 32, "3" * 32}


def bring(folder: CacheFolder, digest: str, num_bytes: int) -> None:
    def write(target: Path) -> None:
        target.write_bytes(bytes(num_bytes))

    folder.bring(folder.root / "shards" / f"{digest}.h5", digest, num_bytes, write, room_bytes=num_bytes)


def test_the_default_budget_leaves_some_of_the_disk(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path, None)
    free = os.statvfs(tmp_path)
    assert 0 < folder.max_bytes <= free.f_bavail * free.f_frsize


@pytest.mark.filterwarnings("ignore:the cache may hold")
def test_a_budget_of_the_shards_alone_has_room_for_the_index_too(
    url: str, local: stoker.Store, cache: Path
) -> None:
    budget = sum(entry.num_bytes for entry in local.manifest.shards)
    store = stoker.open(url, cache_bytes=budget, deadline_s=2.0)
    assert isinstance(store.shards, RemoteShards)
    assert not store.shards.fits(range(len(store.shards)))
    for i in range(60):
        assert_same(store[i], local[i])
    with stoker.Loader(store, 8, shuffle=False) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 60
    assert cached_bytes(cache) <= budget


def test_a_store_that_fits_gives_up_its_own_shards_when_another_takes_their_room(
    url: str, local: stoker.Store, cache: Path
) -> None:
    budget = local.manifest.index.num_bytes + sum(entry.num_bytes for entry in local.manifest.shards)
    store = stoker.open(url, cache_bytes=budget, deadline_s=2.0)
    samples = first_samples(local)
    for i in samples[:-1]:
        store[i]
    other = cache / "shards" / f"{'a' * 32}.h5"
    other.write_bytes(bytes(local.manifest.shards[-1].num_bytes))
    uses = CacheFolder(cache, None).new_uses()
    uses.hold("a" * 32)
    assert_same(store[samples[-1]], local[samples[-1]])
    assert other.exists()
    assert cached_bytes(cache) <= budget


def test_a_cached_file_that_cannot_be_opened_is_fetched_once_more(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    stoker.open(url)[0]
    (file,) = (cache / "shards").iterdir()
    content = file.read_bytes()
    file.write_bytes(content.replace(b'"dtype"', b'"etype"'))
    store = stoker.open(url)
    assert_same(store[0], local[0])
    assert file.read_bytes() == content
    assert proxy.num_gets("/shards/") == 2
