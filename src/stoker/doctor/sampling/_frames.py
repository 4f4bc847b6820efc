"""Whose code a stack frame runs, and what to call it.

Frames belong to the *user* (files under the user's root), to *libraries* (installed packages and the
standard library) or to Stoker, whose frames are stepped over as if they were not there.
"""

import ast
import dis
import functools
import linecache
import re
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Literal

from stoker.doctor._record import Place

Owner = Literal["user", "library", "stoker"]
Span = tuple[int | None, int | None, int | None, int | None]  # line, end line, column, end column

_STOKER = str(Path(__file__).parents[2]) + "/"
_LIBRARIES = tuple(
    str(Path(path)) + "/"
    for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sys.prefix + "/lib"}
)
_PACKAGES = ("/site-packages/", "/dist-packages/")
_COMPREHENSION = re.compile(r"(\.<locals>)?\.?<(list|set|dict)comp>|(\.<locals>)?\.?<genexpr>")
# the interpreter looks for signals at these, at none of the operators
_CALLS = ("CALL", "RESUME", "JUMP", "FOR_ITER", "SEND")
_OPERATORS = ("BINARY_OP", "UNARY_", "COMPARE_OP")
# frames that say nothing about what runs under them
_WRAPPERS = {"Module._wrapped_call_impl", "Module._call_impl", "OptimizedModule.__call__"}


def owner_of(file: str, *, user_root: str) -> Owner:
    """Whose the code in `file` is; with an empty `user_root`, all that is not a library's is the user's."""
    if file.startswith(_STOKER):
        return "stoker"
    if file.startswith("<") or any(folder in file for folder in _PACKAGES) or file.startswith(_LIBRARIES):
        return "library"
    inside = not user_root or file.startswith(user_root.rstrip("/") + "/") or not file.startswith("/")
    return "user" if inside else "library"


@dataclass(frozen=True, eq=False)
class Code:
    """A code object that was seen on a stack; compared by identity, for code objects hash slowly."""

    code: CodeType
    owner: Owner
    module: str

    @functools.cached_property  # asked for every frame of every look
    def is_forward(self) -> bool:
        """It is a module's forward pass, by its name; an `autograd.Function`'s has no self but a ctx."""
        code = self.code
        return code.co_name == "forward" and bool(self.class_name) and code.co_varnames[:1] != ("ctx",)

    @property
    def name(self) -> str:
        """Its qualified name without what it is nested in; a comprehension has its function's."""
        name = _COMPREHENSION.sub("", self.code.co_qualname)
        return name.rsplit("<locals>.", 1)[-1]

    @property
    def class_name(self) -> str:
        """The class in which it is written: "Block" for Block.forward."""
        return self.name.rpartition(".")[0]


def callee_of(under: tuple[Code, ...]) -> str:
    """Name of what the user's line called, from the library frames under it, outermost first.

    Decorators' wrappers are stepped over, and private parts of the module's path are left out, so that
    scikit-learn's method is called `sklearn.preprocessing.StandardScaler.transform`.
    """
    if not under:
        return ""
    telling = (seen for seen in under if "<" not in seen.code.co_qualname and seen.name not in _WRAPPERS)
    seen = next(telling, under[0])
    path = [part for part in seen.module.split(".") if part and not part.startswith("_")]
    return ".".join([*path, seen.name])


def place_at(file: str, line: int, function: str) -> Place:
    """The line with its text, as far as its file can be read."""
    return Place(file=file, line=line, function=function, text=linecache.getline(file, line).strip())


def span_of(code: CodeType, instruction: int) -> Span:
    """The stretch of source that an instruction (a frame's `f_lasti`) comes from."""
    return _spans(code)[max(instruction, 0) // 2]


@functools.lru_cache(maxsize=2048)
def _spans(code: CodeType) -> list[Span]:
    return list(code.co_positions())


def has_just_begun(code: CodeType, instruction: int) -> bool:
    """True where a function has been called, and nothing of it has run yet."""
    name, argument = code.co_code[max(instruction, 0)], code.co_code[max(instruction, 0) + 1]
    return dis.opname[name] == "RESUME" and argument == 0


@functools.lru_cache(maxsize=2048)
def operator_before(code: CodeType, call: int) -> int | None:
    """The last operator such as `a - b` that ran before the call at this instruction, if no other call did.

    What is seen when a function has just begun took its time before: a signal waits for the operator, and
    then for the next call.
    """
    steps = [step for step in dis.get_instructions(code) if step.offset <= call and step.opname != "PRECALL"]
    for step in reversed(steps[:-1]):
        if step.opname.startswith(_OPERATORS):
            return int(step.offset)
        if any(name in step.opname for name in _CALLS):
            return None
    return None


def called_in(file: str, span: Span) -> str:
    """The function that is called by just this stretch of source, as it is written: "np.median"; or "".

    Functions written in C have no frame; the compiler's column numbers still tell which one runs.
    """
    return _calls(file).get(span, "")


@functools.lru_cache(maxsize=64)
def _calls(file: str) -> dict[Span, str]:
    tree = _tree(file)
    return {
        (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset): ast.unparse(node.func)
        for node in (ast.walk(tree) if tree else ())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
    }


@functools.lru_cache(maxsize=512)
def for_statements(file: str) -> tuple[tuple[range, range], ...]:
    """Each `for` statement of a file: the lines of its header and those of its body.

    A loop written on one line is left out: its header can't be told from its body.
    """
    tree = _tree(file)
    if tree is None:
        return ()
    return tuple(
        (range(node.lineno, node.body[0].lineno), range(node.body[0].lineno, (node.end_lineno or 0) + 1))
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.AsyncFor) and node.body[0].lineno > node.lineno
    )


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
