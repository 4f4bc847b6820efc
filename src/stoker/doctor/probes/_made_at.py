"""Where in the user's code something was called from, and what its result was bound to."""

import ast
import linecache
import os
from functools import lru_cache
from types import CodeType, FrameType

from stoker.doctor._record import Place
from stoker.doctor.sampling._frames import owner_of


def user_frame(frame: FrameType | None, *, user_root: str) -> FrameType | None:
    """The innermost frame of the user's own code, from this one outwards."""
    while frame is not None and owner_of(frame.f_code.co_filename, user_root=user_root) != "user":
        frame = frame.f_back
    return frame


def place_of(frame: FrameType) -> Place:
    """The line that a frame stands on."""
    code = frame.f_code
    return place_at(code.co_filename, frame.f_lineno, code.co_qualname)


def place_at(filename: str, line: int, function: str = "") -> Place:
    """A line of a file, with its text where the file can be read."""
    text = linecache.getline(filename, line).strip()
    return Place(os.path.realpath(filename), line, function, text)


def bound_name(frame: FrameType | None, *, user_root: str) -> str | None:
    """The variable, attribute, keyword or dict key that the call in this frame is bound to.

    A call that is returned is looked for in the caller, so that `train = make_loader(...)` is "train".
    None where it is not plain.
    """
    for _ in range(4):
        frame = user_frame(frame, user_root=user_root)
        if frame is None:
            return None
        name = _binding(frame)
        if name != _RETURNED:
            return name
        frame = frame.f_back
    return None


_RETURNED = "return"  # no variable can be called so


def _binding(frame: FrameType) -> str | None:
    line, column = _position(frame.f_code, frame.f_lasti)
    path = _path_to(frame.f_code.co_filename, line, column)
    for outer, inner in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        match outer:
            case ast.Assign(targets=[target]):
                return _target_name(target, outer.value, inner, line, column)
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
                return _target_name(target, inner, inner, line, column)
            case ast.Return():
                return _RETURNED
            case ast.keyword(arg=str(name)):
                return name
            case ast.Dict(keys=keys, values=values) if inner in values:
                key = keys[values.index(inner)]
                return str(key.value) if isinstance(key, ast.Constant) else None
            case ast.Tuple() | ast.IfExp():
                continue  # `a, b = DataLoader(...), DataLoader(...)`
            case _:
                return None
    return None


def _target_name(
    target: ast.expr, value: ast.AST | None, inner: ast.AST, line: int, column: int
) -> str | None:
    match target, value:
        case ast.Name(id=name), _:
            return name
        case ast.Attribute(attr=name), _:
            return name
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for one, candidate in zip(targets, values, strict=True):
                if _holds(candidate, line, column):
                    return _target_name(one, candidate, inner, line, column)
    return None


def _position(code: CodeType, instruction: int) -> tuple[int, int]:
    """Line and column where the expression begins that an instruction belongs to."""
    for number, (line, _, column, _) in enumerate(code.co_positions()):
        if number == instruction // 2 and line is not None:
            return line, column or 0
    return 0, 0


@lru_cache(maxsize=64)
def _tree(filename: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return None


def _path_to(filename: str, line: int, column: int) -> list[ast.AST]:
    """Nodes from the module down to the call that begins at this position."""
    path: list[ast.AST] = []
    node: ast.AST | None = _tree(filename)
    while node is not None:
        path.append(node)
        if isinstance(node, ast.Call) and (node.lineno, node.col_offset) == (line, column):
            break
        node = next((child for child in ast.iter_child_nodes(node) if _holds(child, line, column)), None)
    return path


def _holds(node: ast.AST, line: int, column: int) -> bool:
    if not isinstance(node, ast.expr | ast.stmt | ast.keyword | ast.excepthandler | ast.withitem):
        return False
    if isinstance(node, ast.withitem):
        return _holds(node.context_expr, line, column)
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset) <= (line, column) < end
