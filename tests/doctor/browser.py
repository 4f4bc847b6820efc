"""A real headless Chromium, spoken to over a pipe: no driver, no port, no network, no thread."""

import json
import os
import select
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_FLAGS = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
_KEYS = {"+": "Equal", "-": "Minus", "0": "Digit0", "s": "KeyS", "S": "KeyS"}
_KEY_CODES = {"ArrowLeft": 37, "ArrowRight": 39, "End": 35, "Home": 36, "Tab": 9, "Enter": 13, "Escape": 27}


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


class Browser:
    """One process for many pages. `folder` takes its profile."""

    def __init__(self, executable: str, folder: Path) -> None:
        their_read, self._write = os.pipe()
        self._read, their_write = os.pipe()
        self._buffer = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        # Chromium wants the pipe at descriptors 3 and 4
        script = f'exec "$@" 3<&{their_read} 4>&{their_write}'
        arguments = [executable, *_FLAGS, *sandbox, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, "chromium", *arguments],
            pass_fds=(their_read, their_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_read)
        os.close(their_write)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired, TimeoutError):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._read)
            os.close(self._write)

    @contextmanager
    def page(self) -> Iterator["Page"]:
        """A page of its own, with a memory of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        try:
            yield Page(self, session)
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)

    def call(self, method: str, *, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._events.append(answer)

    def events(self, session: str) -> list[dict[str, Any]]:
        """What a page has reported up to now."""
        return [event for event in self._events if event.get("sessionId") == session]

    def wait_for(self, session: str, method: str) -> None:
        while not any(event["method"] == method for event in self.events(session)):
            self._events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], 30)[0]:
                raise TimeoutError("Chromium says nothing")
            got = os.read(self._read, 1 << 20)
            if not got:
                raise OSError("Chromium is gone")
            self._buffer += got
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


class Page:
    """One page: what a person does with it, and what it complains of."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, *, width: int = 1280, height: int = 900, scale: float = 1.0) -> None:
        self.resize(width=width, height=height, scale=scale)
        self._call("Page.navigate", url=path.as_uri())
        self._browser.wait_for(self._session, "Page.loadEventFired")
        self.settle()

    def resize(self, *, width: int, height: int = 900, scale: float = 1.0) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 500,
        )

    def prefer(self, **features: str) -> None:
        """What the system prefers: `color_scheme="dark"`, `reduced_motion="reduce"`."""
        named = [
            {"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()
        ]
        self._call("Emulation.setEmulatedMedia", features=named)

    def run(self, script: str) -> Any:
        """The value of an expression; what it throws fails the test."""
        done = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def settle(self) -> None:
        """Let what is queued be drawn."""
        self.run("new Promise(go => requestAnimationFrame(() => requestAnimationFrame(() => go(1))))")

    def press(self, *keys: str) -> None:
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            same = {
                "key": key,
                "code": _KEYS.get(key, key),
                "windowsVirtualKeyCode": _KEY_CODES.get(key, ord(key[0])),
            }
            self._call("Input.dispatchKeyEvent", type="keyDown", **same, **text)
            self._call("Input.dispatchKeyEvent", type="keyUp", **same)

    def move(self, x: float, y: float, *, kind: str = "mouseMoved", pressed: bool = False) -> None:
        more = {"button": "left", "buttons": 1, "clickCount": 1} if pressed or kind != "mouseMoved" else {}
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        self.move(*begin)
        self.move(*begin, kind="mousePressed", pressed=True)
        for part in (0.3, 0.7, 1.0):
            at = [start + (stop - start) * part for start, stop in zip(begin, end, strict=True)]
            self.move(*at, pressed=True)
        self.move(*end, kind="mouseReleased")
        self.settle()

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        box = self.box(selector)
        self.move(*box.middle)
        self.move(*box.middle, kind="mousePressed", pressed=True)
        self.move(*box.middle, kind="mouseReleased")
        self.settle()

    def box(self, selector: str) -> "Box":
        script = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()"
        found = self.run(script)
        return Box(found["x"], found["y"], found["width"], found["height"])

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """Errors and warnings in the console, exceptions, refusals by the security policy."""
        found = []
        for event in self._browser.events(self._session):
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning"}:
                found.append(str(params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
                found.append(params["entry"]["text"])
            elif event["method"] == "Page.javascriptDialogOpening":
                found.append(f"a dialog: {params['message']}")
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for, itself among them."""
        return [
            event["params"]["request"]["url"]
            for event in self._browser.events(self._session)
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, session=self._session, **params)


class Box:
    """Where an element lies in the window."""

    def __init__(self, x: float, y: float, width: float, height: float) -> None:
        self.x, self.y, self.width, self.height = x, y, width, height

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2

    def at(self, across: float, down: float) -> tuple[float, float]:
        """A point inside, by shares of its width and height."""
        return self.x + self.width * across, self.y + self.height * down
