"""The command's frame: its commands, its exit codes, and what a user's mistake looks like.

Exit codes: 0 fine, 1 problems found (bad samples, a damaged store), 2 wrong use or bad input.
"""

import logging
import os
import signal
import sys
import traceback
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

import stoker
from stoker.cli import _augment, _bench, _demo, _doctor, _plan, _push, _recipes, _store, _train, _tune, _views
from stoker.errors import StokerError, TrainingInterruptedError

WRONG_USE = 2
_INTERRUPTED = 128 + signal.SIGINT
_GOES_ON = {"pack", "repair", "compact", "push", "views", "train"}  # commands that a second run goes on with

# typer brings its own copy of click, or uses the one that is installed
_CLICK_ERROR: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app = typer.Typer(
    name="stoker",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Stoker keeps the accelerator fed: pack data once, verify it, load it, augment it, train on it.",
)
_store.register(app)
_push.register(app)
_views.register(app)
_augment.register(app)
_train.register(app)
_recipes.register(app)
_doctor.register(app)
_tune.register(app)
_plan.register(app)
_demo.register(app)
_bench.register(app)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"stoker {stoker.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command and exit."""
    debug, arguments = _take_debug(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(_run(arguments, debug=debug))


def _take_debug(arguments: list[str]) -> tuple[bool, list[str]]:
    """Whether ``--debug`` stands anywhere, and the rest; behind a command that runs a script it is its."""
    command = next((index for index, word in enumerate(arguments) if not word.startswith("-")), 0)
    runs_script = any(word in _doctor.RUN_SCRIPTS for word in arguments[command : command + 1])
    ours = arguments[:command] if runs_script else arguments
    rest = [argument for argument in ours if argument != "--debug"]
    return len(rest) < len(ours), rest + arguments[len(ours) :]


def _run(arguments: list[str], *, debug: bool) -> int:
    """The command's exit code."""
    try:
        code = app(arguments, prog_name="stoker", standalone_mode=False)
        sys.stdout.flush()
    except _CLICK_ERROR as error:  # an option or command that does not exist
        error.show()
        return WRONG_USE
    except TrainingInterruptedError as error:  # a signal, which the training has seen to
        _complain(str(error))
        return 128 + error.signal_number
    except StokerError as error:
        if debug:
            traceback.print_exc()
        _complain(str(error))
        return WRONG_USE
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if debug:
            traceback.print_exc()
        _complain(f"{error.filename or 'output'}: {error.strerror or error}")
        return WRONG_USE
    if code == _INTERRUPTED:  # typer may have caught it before us
        is_kept = not _GOES_ON.isdisjoint(arguments[:1])
        _complain(f"interrupted{'; what was finished is kept: run again to go on' if is_kept else ''}")
    return code if isinstance(code, int) else 0


def _complain(message: str) -> None:
    Console(stderr=True, soft_wrap=True).print("[bold red]error:[/]", end=" ", highlight=False)
    Console(stderr=True, soft_wrap=True).print(message, markup=False, highlight=False)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signal's signature
    signal.signal(number, signal.SIG_IGN)  # it often comes twice: to the process and to its group
    _complain("terminated; what was finished is kept: run again to go on")
    sys.exit(128 + number)  # unwinds, so that workers publish what they have
