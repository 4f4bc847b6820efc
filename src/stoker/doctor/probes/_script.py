"""Run a Python script or module in this process as `python` itself would."""

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from stoker.doctor.probes._session import Stopped
from stoker.errors import UsageError

_OURS = (str(Path(__file__).parents[1]) + os.sep, runpy.__file__, "<frozen runpy>")
_PROJECT = (".git", "pyproject.toml", "setup.py", "setup.cfg")


@dataclass
class Ending:
    """How a script ended."""

    how: Literal["stopped", "finished", "crashed"]
    exit_code: int = 0
    error: str | None = None  # the traceback of a crash
    exception: BaseException | None = None


def run_script(target: list[str], *, module: bool, after: Callable[[], None]) -> Ending:
    """Run it with its arguments; its output, working directory and imports are its own.

    A crash is printed as python would print it. `after` is called when the script is through and
    `__main__` still is its module, so that what it defined can be pickled.

    Raises:
        UsageError: there is no such script or module.
        KeyboardInterrupt: of the user's, after the process is as it was.
    """
    if not target:
        raise UsageError("a script or a module is needed, got none: stoker doctor train.py")
    run = _module_runner(target[0]) if module else _script_runner(target[0])
    with _as_main(target, module=module):
        try:
            run()
        except Stopped:
            ending = Ending("stopped")
        except SystemExit as error:
            ending = Ending("finished", _exit_code(error.code))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a crash of the user's script is a result
            ending = Ending("crashed", 1, _print_crash(error), error)
        else:
            ending = Ending("finished")
        if ending.how == "finished":
            after()
    return ending


def root_of(target: list[str], *, module: bool) -> str:
    """Folder whose source lines count as the user's own: the project around the script, else its folder."""
    if module:
        spec = _find(target[0])
        path = Path(os.path.realpath(spec.origin)) if spec and spec.origin else Path.cwd() / "module"
        folder = path.parents[target[0].count(".") + (path.name == "__init__.py")]
    else:
        folder = Path(os.path.realpath(target[0])).parent
    return str(project_of(folder))


def project_of(folder: Path) -> Path:
    """The nearest folder from this one upwards that is a project's; itself if there is none."""
    home = Path.home()
    for candidate in (folder, *folder.parents):
        if candidate in {home, Path(candidate.anchor)}:
            break
        if any((candidate / name).exists() for name in _PROJECT):
            return candidate
    return folder


def _script_runner(script: str) -> Callable[[], None]:
    path = Path(script)
    if not path.exists():
        raise UsageError(f"there is no script {script!r}: give the path of a Python file")
    if path.is_dir() or path.suffix in {".zip", ".pyz"}:
        return lambda: _discard(runpy.run_path(script, run_name="__main__"))

    def run() -> None:
        file = os.path.abspath(script)  # noqa: PTH100 - not resolved: python does not, either
        main = ModuleType("__main__")
        main.__dict__.update(
            __file__=file,
            __builtins__=__builtins__,
            __loader__=SourceFileLoader("__main__", file),
            __spec__=None,  # spawned workers then import the script by its path
            __cached__=None,
        )
        sys.modules["__main__"] = main
        exec(compile(path.read_bytes(), file, "exec", dont_inherit=True), main.__dict__)  # noqa: S102

    return run


def _module_runner(name: str) -> Callable[[], None]:
    if _find(name) is None:
        raise UsageError(f"there is no module {name!r}: give one that can be imported from here")
    return lambda: _discard(runpy.run_module(name, run_name="__main__", alter_sys=True))


def _find(name: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return find_spec(name)
    except (ImportError, ValueError):
        return None
    finally:
        sys.path.pop(0)


def _discard(_: object) -> None:
    """What a run leaves behind is of no use here."""


@contextmanager
def _as_main(target: list[str], *, module: bool) -> Iterator[None]:
    """Give the process the script's arguments and first import folder, and back what it had."""
    argv, path, main = sys.argv, list(sys.path), sys.modules["__main__"]
    folder, modules = Path.cwd(), set(sys.modules)
    first = str(folder) if module else os.path.dirname(os.path.realpath(target[0]))  # noqa: PTH120
    own = {"", os.path.dirname(os.path.realpath(argv[0] or "."))}  # noqa: PTH120
    sys.argv = list(target)
    sys.path[:] = [first, *(path[1:] if path and path[0] in own else path)]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        sys.modules["__main__"] = main
        os.chdir(folder)
        for name in set(sys.modules) - modules:  # another run must not find this one's modules
            file = getattr(sys.modules[name], "__file__", None)
            if file and "site-packages" not in file and os.path.realpath(file).startswith(first + os.sep):
                del sys.modules[name]


def _exit_code(code: object) -> int:
    """What python makes of the argument of sys.exit()."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)  # noqa: T201 - as python does
    return 1


def _print_crash(error: BaseException) -> str:
    report = traceback.TracebackException.from_exception(error)
    _leave_out_ours(report)
    text = "".join(report.format())
    sys.stdout.flush()
    sys.stderr.write(text)
    return text


def _leave_out_ours(report: traceback.TracebackException | None) -> None:
    """The traceback as it is without us: neither probes nor what runs the script."""
    while report is not None:
        frames = [frame for frame in report.stack if not frame.filename.startswith(_OURS)]
        report.stack = traceback.StackSummary.from_list(frames)
        _leave_out_ours(report.__cause__)
        report = report.__context__
