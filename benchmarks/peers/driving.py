"""The other end of ``serving``: installs loaders, starts their processes and asks them for epochs."""

import json
import math
import os
import select
import signal
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import say

BENCHMARKS = Path(__file__).parent.parent
ENVIRONMENTS = BENCHMARKS.parent / "build" / "peers"

_ANSWER_S = 1800  # a peer that says nothing for so long hangs

# What pip is told, one call each, for a loader that needs an environment of its own. A pinned torch lets
# pip take a CPU build where it is offered one.
_TORCH = "torch==2.13.0"
_PACKAGES: dict[str, list[list[str]]] = {
    # after `apt install libopencv-dev libturbojpeg0-dev pkg-config`
    "ffcv": [[_TORCH, "numpy", "pillow"], ["ffcv==1.0.2"]],
    # without torchvision, for which it would fetch a torch with CUDA
    "litdata": [
        [_TORCH, "numpy", "boto3", "lightning-utilities", "obstore", "requests", "tifffile"],
        ["--no-deps", "litdata==0.2.76"],
    ],
    # a newer filelock refuses locks that cross a fork, and with them its workers
    "streaming": [[_TORCH, "mosaicml-streaming==0.13.0", "filelock==3.19.1"]],
    "webdataset": [[_TORCH, "webdataset==1.0.2"]],
    "huggingface": [[_TORCH, "datasets==5.2.0"]],
    "grain": [["numpy", "grain==0.2.18"]],
    "spdl": [[_TORCH, "numpy", "spdl==0.8.0"]],
}


@dataclass(frozen=True)
class System:
    """A loader to be measured: ``peers/MODULE.py``, in each of its variants."""

    name: str
    module: str
    variants: tuple[str, ...]
    environment: str | None = None  # None for that of the benchmark itself
    report_all: bool = False  # every variant, instead of the best

    @property
    def python(self) -> Path:
        """The interpreter that has it."""
        if self.environment is None:
            return Path(sys.executable)
        return ENVIRONMENTS / self.environment / "bin" / "python"


class PeerError(Exception):
    """A loader is not installed, failed or hangs."""


class Peer:
    """The running process of a loader; started on one workload, it can be given others.

    Raises:
        PeerError: it cannot be measured here; says why.
    """

    def __init__(self, system: System, folder: Path) -> None:
        self._log = folder / f"{system.module}.log"
        if not system.python.exists():
            raise PeerError(f"no {system.python.parent.parent}; run benchmarks/loading.py --install")
        script = BENCHMARKS / "peers" / f"{system.module}.py"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [system.python, script, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(BENCHMARKS), "TMPDIR": str(folder)},
                start_new_session=True,  # so that its workers can be ended with it
            )
        try:
            self.version = str(self._answer()["version"])
        except PeerError:
            self.close()
            raise

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request; see ``serving``."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(self._reason("ended")) from None
        return self._answer()

    def close(self) -> None:
        """End it and everything it started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _ANSWER_S)[0]:
            raise PeerError(self._reason(f"silent for {_ANSWER_S} s"))
        line = self._process.stdout.readline().decode()
        if not line:
            raise PeerError(self._reason("ended"))
        answer: dict[str, Any] = json.loads(line.removeprefix("ready "))
        return answer

    def _reason(self, what: str) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{what}: {lines[-1] if lines else 'it printed nothing'}"


class Peers:
    """The loaders of one section at a time, and why some of them are missing.

    With ``reuse``, processes stay from one section to the next: quicker, but no longer fresh.
    """

    def __init__(self, *, reuse: bool) -> None:
        self.missing: dict[System, str] = {}
        self._reuse = reuse
        self._running: dict[str, Peer] = {}  # by module

    def prepare(self, systems: Sequence[System], folder: Path) -> None:
        """Have these systems ready on the workload in ``folder``, three at a time."""
        if not self._reuse:
            self.close()
        self.missing.clear()
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda system: self._prepare(system, folder), systems))

    def ask(self, system: System, variant: str, request: Mapping[str, Any]) -> float:
        """The number asked for, or not one if the loader is missing or fails now."""
        if system in self.missing:
            return math.nan
        try:
            (number,) = self._running[system.module].ask({"variant": variant, **request}).values()
            return float(number)
        except PeerError as error:
            self._miss(system, error)
            return math.nan

    def version(self, system: System) -> str:
        """The version of a loader that is not missing."""
        return self._running[system.module].version

    def close(self) -> None:
        """End them all."""
        self._end(list(self._running))

    def _prepare(self, system: System, folder: Path) -> None:
        try:
            if system.module in self._running:
                self._running[system.module].ask({"workload": str(folder)})
            else:
                self._running[system.module] = Peer(system, folder)
        except PeerError as error:
            self._miss(system, error)

    def _miss(self, system: System, error: PeerError) -> None:
        self.missing[system] = str(error)
        say(f"{system.name} is missing: {error}")
        self._end([system.module] if system.module in self._running else [])

    def _end(self, modules: Sequence[str]) -> None:
        with ThreadPoolExecutor(len(modules) + 1) as pool:
            list(pool.map(lambda module: self._running.pop(module).close(), modules))


def install() -> None:
    """Make the environments; one that cannot be made is said, and left out."""
    for name, calls in _PACKAGES.items():
        folder = ENVIRONMENTS / name
        if not (folder / "bin" / "python").exists():
            say(f"making {folder}")
            venv.create(folder, with_pip=True, symlinks=True)
        for packages in calls:
            say(f"{name}: pip install {' '.join(packages)}")
            command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages]
            if subprocess.run(command, check=False).returncode:
                say(f"{name}: pip failed; it will be reported as missing")
                break
