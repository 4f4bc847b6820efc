import os
import signal
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import DamagedStoreError, StoreUnreachableError
from stoker.store import verify
from support.datasets import assert_same
from support.fault_proxy import FAULTS, FaultProxy
from support.forked import Forked

PATIENT: dict[str, Any] = {"stall_s": 0.3, "deadline_s": 60.0}
SHORT: dict[str, Any] = {"stall_s": 0.3, "deadline_s": 1.0}
OBJECTS = ["manifest.json", "/index-", "/shards/"]


@pytest.mark.parametrize("part", OBJECTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_passing_fault_costs_only_time(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path, fault: str, part: str
) -> None:
    proxy.break_(part, [fault])
    store = stoker.open(url, **PATIENT)
    assert_same(store[0], local[0])
    assert proxy.num_gets(part) == 2
    assert not list(cache.glob(".writing-*"))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lasting_fault_is_an_error_that_names_the_object(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path, fault: str
) -> None:
    store = stoker.open(url, **SHORT)
    proxy.break_for_ever("/shards/", fault)
    name = local.manifest.shards[int(local.index.shard[0])].digest
    is_damage = fault in {"short", "long", "wrong"}
    with pytest.raises(DamagedStoreError if is_damage else StoreUnreachableError) as caught:
        store[0]
    assert f"{url}/shards/{name}.h5" in str(caught.value)
    assert [path.name for path in cache.iterdir() if path.name.startswith(".writing-")] == []
    assert list((cache / "shards").iterdir()) == []


@pytest.mark.parametrize("part", OBJECTS[:2])
@pytest.mark.parametrize("fault", ["500", "wrong"])
def test_a_lasting_fault_when_opening_too(
    url: str, proxy: FaultProxy, cache: Path, fault: str, part: str
) -> None:
    proxy.break_for_ever(part, fault)
    with pytest.raises((DamagedStoreError, StoreUnreachableError), match=f"{url}/{part.strip('/')}"):
        stoker.open(url, **SHORT)
    assert cache.exists()


def test_many_faults_at_once_never_reach_a_batch(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    proxy.break_("/shards/", ["500", "wrong", "truncate", "503", "short", "close", "stall", "long"])
    store = stoker.open(url, **PATIENT)
    with stoker.Loader(store, 8, fields=["x"]) as far, stoker.Loader(local, 8, fields=["x"]) as near:
        for left, right in zip(far, near, strict=True):
            assert (left["x"] == right["x"]).all()
            assert (left["index"] == right["index"]).all()
    assert cache.exists()


@pytest.mark.parametrize("on_bad_sample", ["raise", "skip"])
def test_a_loader_says_which_object_cannot_be_had_and_skips_nothing_for_that(
    url: str, proxy: FaultProxy, cache: Path, on_bad_sample: Any
) -> None:
    store = stoker.open(url, **SHORT)
    proxy.break_for_ever("/shards/", "500")
    with (
        stoker.Loader(store, 8, on_bad_sample=on_bad_sample) as loader,
        pytest.raises(StoreUnreachableError, match=rf"{url}/shards/[0-9a-f]{{32}}\.h5 cannot be reached"),
    ):
        list(loader)
    assert loader.bad_samples == []
    assert cache.exists()


def test_after_a_lasting_fault_has_passed_all_is_well(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    proxy.break_for_ever("/shards/", "500")
    with pytest.raises(StoreUnreachableError):
        stoker.open(url, **SHORT)[0]
    proxy.mend()
    assert_same(stoker.open(url, **SHORT)[0], local[0])
    assert cache.exists()


def test_closing_a_loader_does_not_wait_for_a_server_that_is_silent(
    url: str, proxy: FaultProxy, cache: Path
) -> None:
    store = stoker.open(url, stall_s=3600.0, deadline_s=3600.0)
    first = store.manifest.shards[int(store.index.shard[0])].digest
    store[0]
    loader = stoker.Loader(store, 4, shuffle=False, num_workers=1)
    proxy.break_for_ever("/shards/", "stall")
    batches = iter(loader)
    next(batches)
    assert proxy.is_stalled.wait(60)
    loader.close()
    assert [path.stem for path in (cache / "shards").iterdir()] == [first]


def test_verifying_names_the_object_that_is_damaged_at_its_url(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    store = stoker.open(url)
    for i in range(60):  # that the cache has good ones says nothing of the store
        store[i]
    entry = local.manifest.shards[2]
    proxy.break_for_ever(entry.digest, "wrong")
    report = verify(url)
    assert [name for name, _ in report.files] == [f"{entry.digest}.h5"]
    assert len(report.bad) == int((local.index.shard == 2).sum())
    assert cache.exists()


def test_permission_is_not_asked_for_again_and_again(proxy: FaultProxy, cache: Path) -> None:
    from stoker.store.remote._patience import is_lasting

    class Answer(Exception):  # noqa: N818 - as aiohttp's
        status = 403

    assert is_lasting(Answer())
    assert is_lasting(PermissionError())
    assert not is_lasting(ConnectionResetError())
    assert proxy.num_gets("") == 0
    assert not cache.exists()


def test_verifying_an_open_store_uses_its_own_cache_and_patience(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path, tmp_path: Path
) -> None:
    store = stoker.open(url, cache=tmp_path / "own", **SHORT)
    assert store.verify().files == []
    assert not cache.exists()
    proxy.break_for_ever(local.manifest.shards[0].digest, "500")
    with pytest.raises(StoreUnreachableError, match=local.manifest.shards[0].digest):
        store.verify()
    assert not list((tmp_path / "own").glob(".verifying-*"))


def test_what_a_killed_verification_left_is_removed_by_the_next(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    proxy.break_("/shards/", ["stall"])
    child = Forked(lambda: stoker.open(url, stall_s=3600.0).verify(workers=1))
    assert proxy.is_stalled.wait(60)
    assert len(list(cache.glob(".verifying-*"))) == 1
    largest = max(entry.num_bytes for entry in local.manifest.shards)
    budget = local.manifest.index.num_bytes + largest
    store = stoker.open(url, cache_bytes=budget)
    for number in (0, 1):  # which needs room: what somebody still works with stays
        store.shards[number]
    assert len(list(cache.glob(".verifying-*"))) == 1
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    store.shards[2]
    assert not list(cache.glob(".verifying-*"))
