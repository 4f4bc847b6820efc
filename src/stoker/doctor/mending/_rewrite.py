"""One call in a source text, changed in place: positions by ``ast``, punctuation by ``tokenize``.

Each function takes a source and gives a source. After every change the text is parsed anew, so no
position outlives the text that it belongs to.
"""

import ast
import io
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# of torch.utils.data.DataLoader, those that may be given by position
POSITIONAL = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
)
_ONLY_WITH_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context")
_BLANK = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT}


class RefusedError(Exception):
    """A change that cannot be made surely; its text says why."""


def rewrite_call(source: str, line: int, keywords: Mapping[str, Any], *, wrap_data: str | None = None) -> str:
    """The source with these keywords in the DataLoader call at `line`; `wrap_data` is put around its data.

    Keywords that DataLoader refuses without workers are removed where num_workers becomes 0.

    Raises:
        RefusedError: there is no such call, there are two, or what it is given cannot be seen.
    """
    wanted = dict(keywords)
    if wanted.get("num_workers") == 0:
        wanted |= dict.fromkeys(_ONLY_WITH_WORKERS)
    changed = source
    for name, value in wanted.items():
        changed = _without(changed, line, name) if value is None else _with(changed, line, name, value)
    _refuse_contradiction(changed, line)
    if wrap_data is not None:
        changed = _wrapped(changed, line, wrap_data)
    return changed


def expressions_at(source: str, line: int, names: Iterable[str]) -> dict[str, str]:
    """What the DataLoader call at `line` is given for these keywords, where that depends on a name.

    Raises:
        RefusedError: there is no such call, there are two, or what it is given cannot be seen.
    """
    call = _Call(source, line)
    given = {name: call.arguments[name] for name in names if name in call.arguments}
    depending = {name: node for name, node in given.items() if _depends_on_a_name(node)}
    return {name: ast.unparse(node) for name, node in depending.items()}


def with_import(source: str, module: str) -> str:
    """The source with ``import module`` after its other imports, if it is not there."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import) and any((name.asname or name.name) == module for name in node.names):
            return source
    return with_statement(source, f"import {module}")


def with_statement(source: str, statement: str) -> str:
    """The source with a line after the imports at its top."""
    end = 0
    for node in ast.parse(source).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (is_text or isinstance(node, ast.Import | ast.ImportFrom)):
            break
        end = node.end_lineno or 0
    text = _Text(source)
    at = text.line_starts[end] if end < len(text.line_starts) else len(source)
    before = source[:at] if source[:at].endswith("\n") or at == 0 else source[:at] + text.newline
    return before + statement + text.newline + source[at:]


def _with(source: str, line: int, name: str, value: Any) -> str:
    call = _Call(source, line)
    node = call.arguments.get(name)
    if node is not None:
        begin, end = call.text.span(node)
        return source[:begin] + repr(value) + source[end:]
    if call.hides_keywords:
        raise RefusedError(f"the call takes **options, which may hold {name}; set {name}={value!r} there")
    return call.added(f"{name}={value!r}")


def _without(source: str, line: int, name: str) -> str:
    call = _Call(source, line)
    node = call.arguments.get(name)
    if node is None:
        return source
    if node not in [keyword.value for keyword in call.node.keywords]:
        begin, end = call.text.span(node)
        return source[:begin] + "None" + source[end:]
    return call.removed(next(keyword for keyword in call.node.keywords if keyword.arg == name))


def _wrapped(source: str, line: int, function: str) -> str:
    call = _Call(source, line)
    data = call.arguments.get("dataset")
    if data is None:
        raise RefusedError(f"the call's data set cannot be seen; put {function}(...) around it")
    begin, end = call.text.span(data)
    return f"{source[:begin]}{function}({source[begin:end]}){source[end:]}"


def _refuse_contradiction(source: str, line: int) -> None:
    """A call that DataLoader would refuse is never written."""
    call = _Call(source, line)
    workers = call.arguments.get("num_workers")
    if call.hides_keywords or not (workers is None or _is_constant(workers, 0)):
        return
    for name in _ONLY_WITH_WORKERS:
        node = call.arguments.get(name)
        if node is not None and not (_is_constant(node, None) or _is_constant(node, False)):  # noqa: FBT003
            raise RefusedError(f"{name} needs workers, and the call has none")


def _depends_on_a_name(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Name) for part in ast.walk(node))


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


class _Text:
    """A source and where its lines begin."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.newline = "\r\n" if "\r\n" in source else "\n"
        self.line_starts = [0]
        for line in source.split("\n")[:-1]:
            self.line_starts.append(self.line_starts[-1] + len(line) + 1)

    def offset(self, line: int, utf8_column: int) -> int:
        start = self.line_starts[line - 1]
        end = self.source.find("\n", start)
        text = self.source[start : end if end >= 0 else None]
        return start + len(text.encode()[:utf8_column].decode())

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def line_start(self, offset: int) -> int:
        return self.line_starts[bisect_right(self.line_starts, offset) - 1]

    def line_end(self, offset: int) -> int:
        """Where the line's end is written (before its carriage return, if it has one)."""
        end = self.source.find("\n", offset)
        end = len(self.source) if end < 0 else end
        return end - 1 if self.source[end - 1 : end + 1] == "\r\n" else end

    def is_first(self, offset: int) -> bool:
        """Whether nothing but blanks stands before it on its line."""
        return not self.source[self.line_start(offset) : offset].strip()


@dataclass(frozen=True)
class _Token:
    begin: int
    end: int
    text: str


class _Call:
    """The DataLoader call that stands at a line."""

    def __init__(self, source: str, line: int) -> None:
        self.text = _Text(source)
        try:
            tree = ast.parse(source)
        except SyntaxError as error:
            raise RefusedError(f"does not parse: {error.msg}") from None
        self.node = _find_call(tree, line)
        if any(isinstance(argument, ast.Starred) for argument in self.node.args):
            raise RefusedError("the call takes *arguments, which cannot be seen; name them")
        if len(self.node.args) == 1 and isinstance(self.node.args[0], ast.GeneratorExp):
            raise RefusedError("the call's data set is a generator")
        if len(self.node.args) > len(POSITIONAL):
            raise RefusedError("the call takes more arguments by position than DataLoader has")
        self.arguments: dict[str, ast.expr] = dict(zip(POSITIONAL, self.node.args, strict=False))
        self.arguments |= {keyword.arg: keyword.value for keyword in self.node.keywords if keyword.arg}
        self.hides_keywords = any(keyword.arg is None for keyword in self.node.keywords)

    def added(self, argument: str) -> str:
        """The source with one more argument at the call's end, laid out as the others are."""
        source, tokens = self.text.source, self._tokens()
        has_trailing_comma = tokens[-1].text == ","
        arguments: list[ast.expr | ast.keyword] = [*self.node.args, *self.node.keywords]
        last = max(self.text.span(each)[0] for each in arguments)
        end = tokens[-1].end
        if not self.text.is_first(last):  # it shares its line with others
            added = f" {argument}," if has_trailing_comma else f", {argument}"
            return source[:end] + added + source[end:]
        indent = source[self.text.line_start(last) : last]
        comma = "" if has_trailing_comma else ","
        new_line = f"{self.text.newline}{indent}{argument}{',' if has_trailing_comma else ''}"
        line_end = self.text.line_end(end)
        at = line_end if line_end < self._closing else end  # a comment behind it stays on its line
        return source[:end] + comma + source[end:at] + new_line + source[at:]

    def removed(self, keyword: ast.keyword) -> str:
        """The source without this argument, and without its line if it has one for itself."""
        source, tokens = self.text.source, self._tokens()
        begin, end = self.text.span(keyword)
        after = next((token for token in tokens if token.begin >= end and token.text == ","), None)
        if after is not None:
            end = after.end
        rest = source[end : self.text.line_end(end)].strip()
        if self.text.is_first(begin) and (not rest or rest.startswith("#")):
            cut = self.text.line_end(end)
            cut = source.find("\n", cut) + 1 or len(source)
            return source[: self.text.line_start(begin)] + source[cut:]
        if after is not None:
            while source[end : end + 1] == " ":
                end += 1
            return source[:begin] + source[end:]
        before = [token for token in tokens if token.end <= begin and token.text == ","]
        return source[: before[-1].begin if before else begin] + source[end:]

    def _tokens(self) -> list[_Token]:
        """What stands between the call's parentheses, but for comments; commas deeper inside have no text."""
        begin, end = self.text.span(self.node)
        found: list[_Token] = []
        brackets, depth = [], 0
        for token in tokenize.generate_tokens(io.StringIO(self.text.source, newline="").readline):
            if token.type in _BLANK or token.type == tokenize.ENDMARKER:
                continue
            first = self.text.line_starts[token.start[0] - 1] + token.start[1]
            last = self.text.line_starts[token.end[0] - 1] + token.end[1]
            if first < begin or last > end:
                continue
            if token.type == tokenize.OP and token.string in "([{":
                depth += 1
                brackets.append((depth, len(found)))
            if token.type == tokenize.OP and token.string in ")]}":
                depth -= 1
            text = token.string if depth == 1 or token.string != "," else ""
            found.append(_Token(first, last, text))
        # the call ends with its closing parenthesis; the last bracket opened at depth 1 is its partner
        index = [index for depth_then, index in brackets if depth_then == 1][-1]
        self._closing = found[-1].begin
        inner = found[index + 1 : -1]
        if not inner:
            raise RefusedError("the call has no arguments")
        return inner


def _find_call(tree: ast.Module, line: int) -> ast.Call:
    names = _names_of_data_loader(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = [call for call in calls if _called(call) in names]
    here = [call for call in found if call.lineno == line]
    if not here:
        here = [call for call in found if call.lineno <= line <= (call.end_lineno or 0)]
    if len(here) > 1:
        raise RefusedError(f"line {line} has {len(here)} DataLoader calls; put each on a line of its own")
    if here:
        return here[0]
    others = sorted({_called(call) for call in calls if call.lineno == line} - {""})
    made = f"; it calls {', '.join(others)}" if others else ""
    raise RefusedError(f"line {line} has no DataLoader call{made}")


def _names_of_data_loader(tree: ast.Module) -> set[str]:
    names = {"DataLoader"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.name == "DataLoader" and alias.asname}
    return names


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
