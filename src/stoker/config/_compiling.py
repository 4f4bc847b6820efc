"""Whether this process can compile loops, and what compiles them: numba, where it is installed.

A loop is a function of arrays and numbers in a module of its own, imported only where `can_compile`.
It is compiled when it is first called, for some seconds, and kept on disk for the processes to come.
"""

import functools
import importlib.util
import os
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


@functools.cache
def can_compile() -> bool:
    """Whether numba is there (extra ``kernels``); its own NUMBA_DISABLE_JIT=1 says that it must not.

    Half a second the first time.
    """
    is_allowed = os.environ.get("NUMBA_DISABLE_JIT", "0") in {"", "0"}
    if not is_allowed or importlib.util.find_spec("numba") is None:
        return False
    try:
        from numba.core.compiler_lock import global_compiler_lock as compiling
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, we can do without
        warnings.warn(f"numba is installed but does not work, so it is not used: {error}", stacklevel=2)
        return False
    # a child that was forked while another thread compiles would wait for that for ever
    os.register_at_fork(
        before=compiling.acquire, after_in_parent=compiling.release, after_in_child=compiling.release
    )
    return True


def kernel_part(function: Function) -> Function:
    """A function that kernels call: compiled with them."""
    import numba

    return cast(Function, numba.njit(nogil=True)(function))


def kernel(function: Function) -> Function:
    """A function for Python to call, by `call_kernel`: compiled when it first is, and kept on disk."""
    import numba

    try:
        return cast(Function, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # there is no place to keep it
        return kernel_part(function)


def call_kernel(function: Callable[..., None], *arguments: Any) -> None:
    """Call what `kernel` gave."""
    try:
        function(*arguments)
    except OSError:  # it was compiled, but could not be kept
        function(*arguments)
