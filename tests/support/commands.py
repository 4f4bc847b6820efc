"""The ``stoker`` command: in a process of its own, or in this one, which has its imports already.

A process costs its imports, with torch 2 s. What signals, a terminal, the interpreter's options or the start
itself do is tried with `run`; what a command says and returns, with `call`.
"""

import contextlib
import importlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from stoker.cli._main import _run, _take_debug

Done = subprocess.CompletedProcess[str]


def run(*arguments: str | Path, cwd: Path, options: Sequence[str] = (), **environment: str) -> Done:
    """The command in a process of its own; `options` are the interpreter's."""
    return subprocess.run(
        [sys.executable, *options, "-m", "stoker", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def call(*arguments: str | Path, cwd: Path) -> Done:
    """The command in this process; an exception that the command lets through is the test's."""
    debug, words = _take_debug([str(argument) for argument in arguments])
    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        contextlib.chdir(cwd),
        _modules_of(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        code = _run(words, debug=debug)
    return Done(words, code, _text(out), _text(errors))


@contextlib.contextmanager
def _modules_of(folder: Path) -> Iterator[None]:
    """Modules of the folder can be imported, as files they are now; behind it they are forgotten."""

    def forget() -> None:
        for file in folder.glob("*.py"):
            sys.modules.pop(file.stem, None)

    forget()
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        forget()


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
