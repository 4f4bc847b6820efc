"""A proxy in front of a real HTTP server that, for a while or for ever, does what networks and servers do."""

import functools
import http.client
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from pathlib import Path
from typing import Any, Self

FAULTS = ("500", "503", "close", "truncate", "short", "long", "wrong", "stall")


class FaultProxy:
    """Passes requests on to the server at ``port``; answers to GET come with the faults that were asked for.

    It lives in this process, so that tests know when something happened, and is used by others.
    """

    def __init__(self, port: int) -> None:
        self.upstream = port
        self.gets: Counter[str] = Counter()  # by path
        self.num_bytes = 0  # given in answer to them
        self.is_stalled = threading.Event()
        self.released = threading.Event()
        self._faults: dict[str, Iterator[str]] = {}
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), functools.partial(_Proxy, self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def break_(self, part: str, faults: Iterable[str]) -> None:
        """The next answers for paths that contain ``part`` have these faults, one each."""
        self._faults[part] = iter(faults)

    def break_for_ever(self, part: str, fault: str) -> None:
        self._faults[part] = repeat(fault)

    def mend(self) -> None:
        self._faults.clear()

    def fault_of(self, path: str) -> str | None:
        with self._lock:
            self.gets[path] += 1
            for part, faults in self._faults.items():
                if part in path:
                    return next(faults, None)
        return None

    def num_gets(self, part: str) -> int:
        with self._lock:
            return sum(count for path, count in self.gets.items() if part in path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class FileServer:
    """Python's own HTTP server over a folder; it gives whole files only, unless it is told to know ranges."""

    def __init__(self, folder: Path, *, ranges: bool = False) -> None:
        kind = _Ranges if ranges else _Files
        self._server = _Server(("127.0.0.1", 0), functools.partial(kind, directory=os.fspath(folder)))
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what tests are about."""


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        pass


class _Ranges(_Files):
    def do_GET(self) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked is None:
            super().do_GET()
            return
        content = Path(self.translate_path(self.path)).read_bytes()
        first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        self.wfile.write(content[first : last + 1])


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # S3's clients send a body when they are told to go on

    def __init__(self, proxy: FaultProxy, *arguments: Any) -> None:
        self._proxy = proxy
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        pass

    def do_GET(self) -> None:
        fault = self._proxy.fault_of(self.path)
        status, headers, body = self._pass_on()
        if status in {200, 206} and fault is not None:
            self._spoil(fault, status, headers, body)
        else:
            self._answer(status, headers, body, len(body))

    def _do_other(self) -> None:
        status, headers, body = self._pass_on()
        length = next((int(v) for n, v in headers if n.lower() == "content-length"), len(body))
        self._answer(status, headers, body, length)

    def do_HEAD(self) -> None:
        self._do_other()

    def do_PUT(self) -> None:
        self._do_other()

    def do_POST(self) -> None:
        self._do_other()

    def _spoil(self, fault: str, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        half = len(body) // 2
        match fault:
            case "500" | "503":
                self._answer(int(fault), [], b"", 0)
            case "close":
                self.close_connection = True
            case "truncate":
                self._answer(status, headers, body[:half], len(body))
            case "short":
                self._answer(status, headers, body[:half], half)
            case "long":
                self._answer(status, headers, body + body, 2 * len(body))
            case "wrong":
                middle = bytes([body[half] ^ 1])
                self._answer(status, headers, body[:half] + middle + body[half + 1 :], len(body))
            case "stall":
                self._answer(status, headers, body[:half], len(body))
                self.wfile.flush()
                self._proxy.is_stalled.set()
                self._proxy.released.wait()
            case _:
                raise ValueError(fault)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, length: int) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in {"content-length", "transfer-encoding", "connection", "server", "date"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self._proxy.num_bytes += len(body) if self.command == "GET" else 0
        self.close_connection = True

    def _pass_on(self) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._proxy.upstream, timeout=60)
        try:
            dropped = {"expect", "transfer-encoding", "content-length", "connection"}
            headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            connection.request(self.command, self.path, self._body(), headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _body(self) -> bytes | None:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            length = int(self.headers.get("Content-Length", 0))
            return self.rfile.read(length) if length or self.command == "PUT" else None
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)
