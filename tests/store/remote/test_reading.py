import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker.errors import StoreNotFoundError, UsageError
from support.commands import call
from support.datasets import assert_same
from support.fault_proxy import FaultProxy


def assert_equal_batches(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name, value in right.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(left[name], value), name
        else:
            assert left[name] == value, name


def test_a_remote_store_is_the_local_one(url: str, local: stoker.Store, cache: Path) -> None:
    store = stoker.open(url)
    assert (len(store), store.fields, store.stats, store.splits) == (
        len(local),
        local.fields,
        local.stats,
        local.splits,
    )
    assert store.content_digest == local.content_digest
    for i in range(len(local)):
        assert_same(store[i], local[i])
    assert_same(store.split("val")[3], local.split("val")[3])
    np.testing.assert_array_equal(store.column("y"), local.column("y"))
    assert store.path == cache
    assert url in repr(store)


def test_shards_come_when_they_are_needed_and_once(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    store = stoker.open(url)
    assert proxy.num_gets("/shards/") == 0
    store[0]
    store[0]
    assert proxy.num_gets("/shards/") == 1
    again = stoker.open(url)
    assert_same(again[0], local[0])
    assert proxy.num_gets("/shards/") == 1
    assert proxy.num_gets("/index-") == 1
    assert sorted(path.name for path in (cache / "shards").iterdir()) == [
        f"{local.manifest.shards[int(local.index.shard[0])].digest}.h5"
    ]


@pytest.mark.parametrize("shuffle", [True, False, "quasi"])
@pytest.mark.parametrize("share", [2.0, 0.5])
@pytest.mark.filterwarnings("ignore:the cache may hold")
def test_a_loader_gives_the_batches_of_the_local_store(
    url: str, local: stoker.Store, cache: Path, shuffle: Any, share: float
) -> None:
    budget = int(share * local.manifest.num_bytes)
    store = stoker.open(url, cache_bytes=budget)
    with (
        stoker.Loader(store, 7, shuffle=shuffle) as remote,
        stoker.Loader(local, 7, shuffle=shuffle) as plain,
    ):
        for _ in range(2):
            for left, right in zip(remote, plain, strict=True):
                assert_equal_batches(left, right)
    assert sum(path.stat().st_size for path in cache.rglob("*.h5")) <= budget


def test_a_loader_fetches_every_shard_once_while_the_cache_holds_them(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    with stoker.Loader(stoker.open(url), 4, fields=["x"]) as loader:
        for _ in range(3):
            list(loader)
    assert proxy.num_gets("/shards/") == len(local.manifest.shards)
    assert cache.exists()


def test_a_rank_fetches_only_what_it_reads(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    used = set(local.index.shard[:4].tolist())
    loader = stoker.Loader(stoker.open(url), 4, shuffle=False, rank=0, world_size=15, fields=["x"])
    assert len(list(loader)) == 1
    loader.close()
    fetched = {path.stem for path in (cache / "shards").iterdir()}
    assert fetched == {local.manifest.shards[number].digest for number in used}
    assert proxy.num_gets("/shards/") == len(used)


def test_preloading_brings_everything_before_the_first_batch(
    url: str, proxy: FaultProxy, local: stoker.Store, cache: Path
) -> None:
    with stoker.Loader(stoker.open(url), 4, fields=["x"], preload=True) as loader:
        assert proxy.num_gets("/shards/") == len(local.manifest.shards)
        assert len(list(loader)) == 15
    assert cache.exists()


def test_a_loader_can_be_left_early_and_used_again(url: str, local: stoker.Store, cache: Path) -> None:
    with stoker.Loader(stoker.open(url), 4) as loader, stoker.Loader(local, 4) as plain:
        next(iter(loader))
        loader.set_epoch(5)
        plain.set_epoch(5)
        for left, right in zip(loader, plain, strict=True):
            assert_equal_batches(left, right)
    assert cache.exists()


def test_a_forgotten_loader_leaves_no_thread(url: str, cache: Path) -> None:
    next(iter(stoker.Loader(stoker.open(url), 4)))
    assert cache.exists()  # the rest is what is checked after each test


def test_windows_over_a_remote_store(url: str, local: stoker.Store, cache: Path) -> None:
    options: dict[str, Any] = {"length": 20, "stride": 10, "fields": ["x"]}
    near, far = stoker.windows(local, **options), stoker.windows(stoker.open(url), **options)
    assert len(near) == len(far)
    for i in range(0, len(near), 17):
        assert_same(far[i], near[i])
    assert cache.exists()


def test_pickled_it_is_opened_again_by_url(url: str, local: stoker.Store, tmp_path: Path) -> None:
    store = stoker.open(url, cache=tmp_path / "c", cache_bytes=10**9).split("val")
    again = pickle.loads(pickle.dumps(store))
    assert again.path == tmp_path / "c"
    assert_same(again[2], local.split("val")[2])


def test_a_shuffle_that_would_fetch_again_and_again_is_warned_of(
    url: str, local: stoker.Store, cache: Path
) -> None:
    store = stoker.open(url, cache_bytes=local.manifest.num_bytes // 2)
    with pytest.warns(UserWarning, match=r'shuffle="quasi", run_length=8, pool='):
        stoker.Loader(store, 4)
    assert cache.exists()


def test_commands_take_a_url(url: str, local: stoker.Store, cache: Path, tmp_path: Path) -> None:
    told = json.loads(call("info", url, "--json", cwd=tmp_path).stdout)
    assert (told["path"], told["num_samples"]) == (url, 60)
    near = call("stats", local.path, "--json", cwd=tmp_path)
    assert call("stats", url, "--json", cwd=tmp_path).stdout == near.stdout
    done = call("verify", url, cwd=tmp_path)
    assert done.returncode == 0
    assert f"ok {url}: 60 samples, every byte as published" in " ".join(done.stdout.split())
    assert not list(cache.glob(".verifying-*"))


def test_memory_is_a_file_system_too(local: stoker.Store, cache: Path) -> None:
    from stoker.store import push

    push(local.path, "memory://reading/a.stoker")
    store = stoker.open("memory://reading/a.stoker")
    assert_same(store[7], local[7])
    assert cache.exists()


@pytest.mark.usefixtures("cache")
def test_a_url_without_a_store_is_said_to_have_none(proxy: FaultProxy) -> None:
    with pytest.raises(StoreNotFoundError, match=rf"no store at {proxy.url}/b.stoker"):
        stoker.open(f"{proxy.url}/b.stoker")


@pytest.mark.parametrize(
    "url",
    [
        "https://host/a.stoker?sig=SECRET",
        "HTTPS://host/a.stoker?sig=SECRET",
        "https://me:SECRET@host/a.stoker",
        "s3://id:SECRET@b/a.stoker",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="must not carry credentials") as caught:
        stoker.open(url)
    assert "SECRET" not in str(caught.value)


def test_options_of_urls_are_refused_for_folders(local: stoker.Store) -> None:
    with pytest.raises(UsageError, match="cache_bytes is for stores at a URL"):
        stoker.open(local.path, cache_bytes=5)


@pytest.mark.parametrize("url", ["nothing://b/a.stoker"])
def test_an_unknown_kind_of_url_is_refused(url: str, cache: Path) -> None:
    with pytest.raises(UsageError, match="nothing"):
        stoker.open(url)
    assert not cache.exists()


def test_storing_locally_needs_no_fsspec(folder: Path) -> None:
    code = (
        "import sys; sys.modules['fsspec'] = None\n"
        "import stoker; print(len(stoker.open(sys.argv[1])))\n"
        "try: stoker.open('s3://b/a.stoker')\n"
        "except stoker.errors.MissingExtraError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, folder / "a.stoker"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("60\n")
    assert "pip install 'stoker[remote]'" in done.stdout
