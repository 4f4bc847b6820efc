import gc
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

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


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serves a folder by a server that knows ranges; ``answer(request)`` may answer for shards instead of it.

    A request has a ``path``, a ``span`` (None where all is asked for), ``content`` and ``give``.
    """
    servers = []

    def start(folder: Path, answer: Callable[[Any], bool]) -> str:
        class Handler(_Ranged):
            pass

        Handler.folder, Handler.answer = folder, staticmethod(answer)
        server = _Server(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what tests are about."""


class _Ranged(BaseHTTPRequestHandler):
    folder: Path
    answer: Callable[[Any], bool]
    span: tuple[int, int] | None = None
    content = b""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        pass

    def do_GET(self) -> None:
        self.content = (self.folder / self.path.lstrip("/").partition("?")[0]).read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked is not None:
            self.span = int(asked[1]), min(int(asked[2]) + 1, len(self.content))
        if "/shards/" in self.path and self.answer(self):
            return
        if self.span is None:
            self.give(200, self.content)
        elif self.span[0] >= len(self.content):
            self.give(416, b"")
        else:
            self.give(206, self.content[slice(*self.span)])

    def give(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
