import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec.asyn
import pytest

import stoker
from support.datasets import Signals, keys
from support.fault_proxy import FaultProxy, FileServer


@pytest.fixture(autouse=True, scope="session")
def _loop_of_fsspec() -> None:
    """Started once: fsspec keeps its loop's thread, and that one's helper, for the life of the process."""
    loop = fsspec.asyn.get_loop()
    helper = ThreadPoolExecutor(1)
    helper.submit(int).result()
    loop.call_soon_threadsafe(loop.set_default_executor, helper)


@pytest.fixture(autouse=True)
def _no_caught_errors() -> Iterator[None]:
    """An error that a test caught is in a cycle with its frames, which hold the store and its lock."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a store of some shards, ``a.stoker``."""
    path = tmp_path_factory.mktemp("bucket")
    stoker.pack(
        Signals(keys(60)),
        path / "a.stoker",
        shard_bytes=3000,
        workers=0,
        splits={"train": 0.7, "val": 0.3},
        progress=False,
    )
    return path


@pytest.fixture(scope="session")
def local(folder: Path) -> stoker.Store:
    return stoker.open(folder / "a.stoker")


@pytest.fixture
def proxy(folder: Path) -> Iterator[FaultProxy]:
    with FileServer(folder) as server, FaultProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def url(proxy: FaultProxy) -> str:
    return f"{proxy.url}/a.stoker"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("STOKER_CACHE", str(path))
    return path
