"""Objects below a URL: fetched whole into files and put whole, with patience and by name.

A try is given up when no byte comes for a while, whatever the file system's library thinks of it. Names of
objects are in every message; credentials are known to the library alone.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.errors import (
    DamagedStoreError,
    MissingExtraError,
    StoreUnreachableError,
    StoreWriteError,
    UnsafeStoreError,
    UsageError,
)
from stoker.store.remote._patience import MAX_WRONG, Fault, FaultError, Patience
from stoker.store.remote._ranges import Answer, Ranges, Span
from stoker.store.remote._transfer import Transfer

_TELL_AFTER_S = 5.0  # of tries in vain, once

logger = logging.getLogger("stoker")

# S3, Google, Azure, HTTP, memory and files: the surest first
_VERSIONS = (
    "ETag",
    "etag",
    "generation",
    "md5Hash",
    "LastModified",
    "last_modified",
    "updated",
    "mtime",
    "created",
)


@dataclass(frozen=True)
class Listed:
    """What a listing tells of an object."""

    num_bytes: int | None  # not every web server tells
    version: str  # another where the object is another; empty where it is not told


class Bucket:
    """What lies below ``url``."""

    def __init__(self, url: str, patience: Patience) -> None:
        self.url = url
        self.patience = patience
        self._given_up = threading.Event()
        self._has_told = False  # that something is tried again and again
        self._pid = -1
        self._connect()

    def give_up(self) -> None:
        """End what other threads are about here: nobody waits for it any more."""
        self._given_up.set()

    def name_of(self, name: str) -> str:
        """The object as messages name it."""
        return f"{self.url}/{name}" if name else self.url

    def fetch(
        self,
        name: str,
        target: Path,
        *,
        check: Callable[[Path], None],
        max_bytes: int,
        stop: threading.Event | None = None,
    ) -> None:
        """Bring an object into the file ``target``, until ``check`` finds no fault with it.

        Raises:
            FileNotFoundError: there is no such object.
            DamagedStoreError: it arrived, several times, but never as ``check`` wants it.
            StoreUnreachableError: it could not be had before the deadline, or not at all.
            StoreWriteError: the file cannot be written.
        """

        def attempt(end: float) -> None:
            self._get(name, target, max_bytes, end, stop)
            check(target)

        self._patiently(name, attempt, stop)

    def fetch_spans(
        self,
        name: str,
        target: Path,
        spans: Sequence[Span],
        *,
        num_bytes: int,
        check: Callable[[Path], None],
        stop: threading.Event | None = None,
    ) -> None:
        """As `fetch`, of some bytes; elsewhere the file has holes. What has come is not asked for again."""
        with target.open("wb") as file:
            ranges = Ranges(file, spans, num_bytes)

            def attempt(end: float) -> None:
                self._get_ranges(name, ranges, end, stop)
                file.flush()
                try:
                    check(target)
                except DamagedStoreError:
                    ranges.start_over()  # some of it is wrong, and nobody knows which
                    raise

            self._patiently(name, attempt, stop)

    def read(self, name: str) -> bytes | None:
        """A small object's bytes, or None where there is none."""
        found: list[bytes] = []

        def attempt(end: float) -> None:
            found[:] = [self._call("cat_file", end, self._path(name))]

        try:
            self._patiently(name, attempt, None)
        except FileNotFoundError:
            return None
        return found[0]

    def size(self, name: str) -> int | None:
        """The object's size, or None where there is none."""
        found = self.look(name)
        return None if found is None else found.num_bytes

    def look(self, name: str) -> Listed | None:
        """Size and version of the object as it is now, or None where there is none."""
        found: list[Listed] = []

        def attempt(end: float) -> None:
            self._connect().invalidate_cache()
            found[:] = [_listed(self._call("info", end, self._path(name)))]

        try:
            self._patiently(name, attempt, None)
        except FileNotFoundError:
            return None
        return found[0]

    def list(self, folder: str = "", *, depth: int | None = None) -> dict[str, Listed]:
        """All objects below a folder, by their paths below it; none where it gives no listing."""
        found: dict[str, Listed] = {}
        prefix = self._path(folder) + "/"

        def attempt(end: float) -> None:
            self._connect().invalidate_cache()
            answer = self._call("find", end, prefix, maxdepth=depth, detail=True)
            found.clear()
            found.update({name.removeprefix(prefix): _listed(facts) for name, facts in answer.items()})

        try:
            self._patiently(folder, attempt, None)
        except FileNotFoundError:
            return {}
        return found

    def put(self, name: str, source: Path) -> None:
        """Write a file's bytes as an object, which appears when all of them are there."""
        self._write(name, "put_file", os.fspath(source), self._path(name))

    def write(self, name: str, content: bytes) -> None:
        """Write a small object, replacing the one before in one go."""
        self._write(name, "pipe_file", self._path(name), content)

    def _write(self, name: str, method: str, *arguments: Any) -> None:
        try:
            self._patiently(name, lambda end: self._call(method, end, *arguments), None)
        except FileNotFoundError as error:  # not the object, which is to be made: its bucket or folder
            where = self.name_of(name)
            raise StoreWriteError(f"{where} cannot be written: there is no such place") from error

    def _patiently(self, name: str, attempt: Callable[[float], object], stop: threading.Event | None) -> None:
        stop = self._given_up if stop is None else stop
        started = time.monotonic()
        end = started + self.patience.deadline_s
        num_wrong = 0
        for num_tries, delay in enumerate(self.patience.delays(), start=1):
            try:
                attempt(end)
            except UnsafeStoreError:
                raise
            except DamagedStoreError as error:
                fault = Fault.of(error)
            except FaultError as error:
                fault = error.fault
            else:
                return
            num_wrong += fault.is_damage
            seconds = time.monotonic() - started
            is_lasting = fault.is_lasting or num_wrong >= MAX_WRONG
            if is_lasting or seconds + delay >= self.patience.deadline_s or stop.is_set():
                raise self._final(name, fault, num_tries, seconds)
            if seconds > _TELL_AFTER_S and not self._has_told:
                self._has_told = True
                limit_s = self.patience.deadline_s
                logger.warning("%s: %s; tried again for %.0f s", self.name_of(name), fault.text, limit_s)
            stop.wait(delay)

    def _final(self, name: str, fault: Fault, num_tries: int, seconds: float) -> Exception:
        """The error that the caller sees; it names the object."""
        where = self.name_of(name)
        times = "once" if num_tries == 1 else f"{num_tries} times"
        if fault.is_damage:
            return DamagedStoreError(f"{where}: {fault.text} (fetched {times})")
        if fault.is_local:
            return StoreWriteError(f"{where} cannot be written to the local disk: {fault.text}")
        if fault.is_missing:
            return FileNotFoundError(f"there is no object {where}")
        if fault.is_forbidden:
            return StoreUnreachableError(
                f"no permission for {where}; credentials come from the environment (AWS_ACCESS_KEY_ID, …)"
            )
        return StoreUnreachableError(
            f"{where} cannot be reached, tried {times} in {seconds:.1f} s: {fault.text}"
        )

    def _get(self, name: str, target: Path, max_bytes: int, end: float, stop: threading.Event | None) -> None:
        def num_here() -> int:
            found = target.stat().st_size if target.exists() else 0
            if found > max_bytes:
                raise DamagedStoreError(f"it has more than the {max_bytes} bytes it should have")
            return found

        def abandon() -> None:  # it may still write: into a file that has no name any more
            target.unlink(missing_ok=True)

        check = self._watch(num_here, stop)
        self._call("get_file", end, self._path(name), os.fspath(target), check=check, abandon=abandon)

    def _get_ranges(self, name: str, ranges: Ranges, end: float, stop: threading.Event | None) -> None:
        """Have all pieces that are missing, or, after a fault, as many as came."""
        fs, path, asked = self._connect(), self._path(name), ranges.new_try()

        async def ask(piece: Span, answer: Answer) -> None:
            first, behind = piece
            if self.url.startswith(("http:", "https:")):  # bytes as they come, and no more than there can be
                headers = {**fs.kwargs.get("headers", {}), "Range": f"bytes={first}-{behind - 1}"}
                await fs._get_file(path, answer, headers=headers)  # noqa: SLF001 - see _run
            else:
                answer.write(await fs._cat_file(path, start=first, end=behind))  # noqa: SLF001

        def num_taken() -> int:
            ranges.take(asked)
            return ranges.num_taken

        check = self._watch(num_taken, stop)
        try:
            if fs.async_impl:
                self._run(asked.run(ask), end, check, lambda: None)
            for piece in [] if fs.async_impl else asked.pieces:
                answer = Answer(asked, piece)
                answer.write(_result(_outcome(fs.cat_file, (path, *piece), {})))
                answer.finish()
                check()
        finally:
            ranges.take(asked)

    def _watch(self, num_moved: Callable[[], int], stop: threading.Event | None) -> Callable[[], None]:
        """Raises FaultError when that number has stayed the same for too long, or nobody waits any more."""
        before, moved = -1, time.monotonic()

        def check() -> None:
            nonlocal before, moved
            now, found = time.monotonic(), num_moved()
            if found != before:
                before, moved = found, now
            if now - moved > self.patience.stall_s:
                raise FaultError(Fault(f"no byte came for {self.patience.stall_s:g} s"))
            if stop is not None and stop.is_set():
                raise FaultError(Fault("no longer needed", is_lasting=True))

        return check

    def _call(
        self,
        method: str,
        end: float,
        *arguments: Any,
        check: Callable[[], None] = lambda: None,
        abandon: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> Any:
        """The file system's method; ``check`` is called while it runs, and may end it by raising."""
        fs = self._connect()
        if fs.async_impl:
            return self._run(getattr(fs, f"_{method}")(*arguments, **options), end, check, abandon)
        return _result(_outcome(getattr(fs, method), arguments, options))

    def _run(
        self,
        call: Coroutine[Any, Any, Any],
        end: float,
        check: Callable[[], None],
        abandon: Callable[[], None],
    ) -> Any:
        """What a call of the asynchronous file system gives.

        Private by name, these are what fsspec documents for callers that bring no loop of their own.
        """
        transfer = Transfer(call, self._connect().loop)
        try:
            while not transfer.is_done():
                check()
                if self._given_up.is_set():
                    raise FaultError(Fault("no longer needed", is_lasting=True))
                if time.monotonic() > end:
                    raise FaultError(Fault(f"not done after {self.patience.deadline_s:g} s", is_lasting=True))
            return _result(transfer.outcome())
        finally:
            if not transfer.cancel():
                abandon()

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _connect(self) -> Any:
        """The file system; a forked child makes its own, as connections and loops do not cross a fork."""
        if self._pid != os.getpid():
            self._fs, self._root = _file_system(self.url)
            self._pid = os.getpid()
        return self._fs


def _listed(facts: Mapping[str, Any]) -> Listed:
    """What each library calls by other names."""
    version = next((str(facts[name]) for name in _VERSIONS if facts.get(name)), "")
    size = facts.get("size")
    return Listed(None if size is None else int(size), version)


def _file_system(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(f"the URL {url}", extra="remote", library="fsspec") from error
    try:
        options = {"auto_mkdir": True} if url.startswith(("file:", "local:")) else {}
        fs, root = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError) as error:  # says which library to install, or that there is none
        raise UsageError(f"{url} cannot be opened: {error}") from error
    return fs, str(root).rstrip("/")


def _outcome(
    call: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[Any, Fault | None]:
    try:
        return call(*arguments, **options), None
    except Exception as error:  # noqa: BLE001 - whatever a library raises is looked at
        return None, Fault.of(error)


def _result(outcome: tuple[Any, Fault | None]) -> Any:
    value, fault = outcome
    if fault is not None:
        raise FaultError(fault)
    return value
