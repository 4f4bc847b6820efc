"""Against a real S3 server in a process of its own, behind the proxy."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker.errors import DamagedStoreError, StoreNotFoundError, StoreUnreachableError
from stoker.store import push
from stoker.store.remote import _parts
from support.datasets import assert_same
from support.fault_proxy import FaultProxy

pytestmark = pytest.mark.filterwarnings("default")  # those libraries' own


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(number)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(number)
            yield number
        finally:
            server.terminate()


@pytest.fixture
def bucket(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FaultProxy, str]]:
    import fsspec

    with FaultProxy(port) as proxy:
        for name, value in {
            "AWS_ENDPOINT_URL": proxy.url,
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "SECRET",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        type(fsspec.filesystem("s3")).clear_instance_cache()
        fs = fsspec.filesystem("s3")
        fs.makedirs("data", exist_ok=True)
        yield proxy, "s3://data/a.stoker"
        type(fs).clear_instance_cache()


def _wait_for(port: int) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/").close()
        except OSError:
            assert time.monotonic() < end, "the S3 server does not come up"
            os.sched_yield()
        else:
            return


@pytest.mark.usefixtures("cache")
def test_a_store_goes_to_s3_and_comes_back(bucket: tuple[FaultProxy, str], local: stoker.Store) -> None:
    proxy, url = bucket
    with pytest.raises(StoreNotFoundError):
        stoker.open(f"{url}-nothing", deadline_s=20)
    assert push(local.path, url).num_kept == 0
    assert push(local.path, url).num_files == 0
    for fault in ("500", "503", "truncate", "short", "wrong", "close"):
        proxy.break_("/shards/", [fault])
        store = stoker.open(url, stall_s=5)
        with stoker.Loader(store, 8, fields=["x"]) as far, stoker.Loader(local, 8, fields=["x"]) as near:
            for left, right in zip(far, near, strict=True):
                assert (left["x"] == right["x"]).all()
        assert_same(store[5], local[5])
        for path in (store.path / "shards").iterdir():
            path.unlink()


@pytest.mark.usefixtures("cache")
def test_few_samples_come_from_s3_by_range(
    bucket: tuple[FaultProxy, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, url = bucket
    monkeypatch.setattr(_parts, "_REQUEST_BYTES", 512)
    samples = [{"x": np.full(4096, number, np.float32)} for number in range(32)]
    local = stoker.pack(samples, tmp_path / "few.stoker", workers=0, progress=False)
    push(local.path, f"{url}-few")
    few = stoker.open(f"{url}-few").select([30, 4])
    before = proxy.num_bytes
    np.testing.assert_array_equal(few[[0, 1]]["x"], local[[30, 4]]["x"])
    assert 2 * 16384 < proxy.num_bytes - before < local.manifest.num_bytes / 4


@pytest.mark.usefixtures("cache")
def test_an_object_of_s3_that_was_cut_short_is_damaged(
    bucket: tuple[FaultProxy, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    _, url = bucket
    monkeypatch.setattr(_parts, "_REQUEST_BYTES", 512)
    samples = [{"x": np.full(4096, number, np.float32)} for number in range(32)]
    local = stoker.pack(samples, tmp_path / "cut.stoker", workers=0, progress=False)
    push(local.path, f"{url}-cut")
    name = f"{url}-cut/shards/{local.manifest.shards[0].digest}.h5"
    fs = fsspec.filesystem("s3")
    fs.pipe_file(name, fs.cat_file(name)[:20_000])
    few = stoker.open(f"{url}-cut").select([30])
    with pytest.raises(DamagedStoreError, match="it ends before the bytes that were asked for"):
        few[0]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("fault", ["500", "503", "wrong", "stall"])
def test_a_lasting_fault_of_s3_names_the_object_and_no_secret(
    bucket: tuple[FaultProxy, str], local: stoker.Store, fault: str
) -> None:
    proxy, url = bucket
    push(local.path, url)
    store = stoker.open(url, stall_s=1, deadline_s=4)
    proxy.break_for_ever("/shards/", fault)
    with pytest.raises((StoreUnreachableError, DamagedStoreError), match=f"{url}/shards/") as caught:
        store[0]
    assert "SECRET" not in str(caught.value)
    assert not list(Path(store.path).glob(".writing-*"))
