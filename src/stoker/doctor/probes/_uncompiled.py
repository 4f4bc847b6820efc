"""Keep torch.compile's hands off our own functions.

Inside a compiled model every Python frame is offered to the compiler, also those of a profiling hook or
a signal handler that happen to run there. Theirs would be compiled for nothing.
"""

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType


def never_compile(*modules: ModuleType) -> None:
    """Tell the compiler to run all functions and methods of these modules as they are."""
    try:
        from torch._C._dynamo import eval_frame

        skip = eval_frame._FrameExecStrategy(  # noqa: SLF001 - there is no public way short of a decorator
            eval_frame._FrameAction.SKIP,  # noqa: SLF001
            eval_frame._FrameAction.DEFAULT,  # noqa: SLF001
        )
        for module in modules:
            for code in _codes(module):
                eval_frame.set_code_exec_strategy(code, skip)
    except (ImportError, AttributeError):  # another torch: then they are compiled, which costs a moment
        return


def _codes(module: ModuleType) -> Iterator[CodeType]:
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = vars(value).values() if inspect.isclass(value) else [value]
        for member in members:
            function = inspect.unwrap(member) if callable(member) else getattr(member, "fget", None)
            if isinstance(function, FunctionType):
                yield from _with_inner(function.__code__)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
