"""YAML without its traps: the scalars of YAML 1.2, and no key twice.

PyYAML follows YAML 1.1, where ``1e-3`` is a string, ``no`` is false, ``010`` is eight, ``1:30`` is
ninety and ``2024-01-01`` is a date. Here ``1e-3`` is a float, ``010`` is ten and the others are
strings. ``on``, ``off``, ``yes`` and ``no`` thus stay what was written, and a boolean setting takes
them all the same, since pydantic understands these words. Anchors and ``<<`` work.

What is written is quoted wherever either version of YAML would take a string for something else.
"""

import re
from typing import Any

import yaml

_PREFIX = "tag:yaml.org,2002:"
_MERGE = f"{_PREFIX}merge"
_INT = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_FLOAT = (
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
# Tag, the whole text it stands for, and the characters that can begin it; the first match decides.
_SCALARS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
)


def parse(text: str) -> object:
    """Give the plain data in `text`; None if it holds nothing.

    Raises:
        yaml.YAMLError: and nothing else, whatever the text.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506  a SafeLoader
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # PyYAML lets these through for a tag that does not fit its value, such as !!int x.
        raise yaml.YAMLError(f"a value does not fit its type: {error}") from error
    except RecursionError as error:
        raise yaml.YAMLError("the nesting is too deep") from error


def parse_inline(text: str) -> object:
    """Give the plain data of a scalar or of a flow list or mapping, such as ``[1, 2]``.

    Raises:
        yaml.YAMLError: also for a block list or mapping (``a: b``), which a value on a command line
            is rarely meant to be.
    """
    data = parse(text)
    if isinstance(data, list | dict) and not text.lstrip().startswith(("[", "{")):
        raise yaml.YAMLError("it reads as a block list or mapping")
    return data


def write(data: object) -> str:
    """Give plain data as YAML, in the order of its keys."""
    text: str = yaml.dump(
        data,
        Dumper=_Dumper,
        allow_unicode=True,
        default_flow_style=False,
        sort_keys=False,
        width=100,
    )
    return text


def describe(error: yaml.YAMLError, text: str) -> tuple[int | None, str]:
    """Give the line (from 1; None if unknown) and the reason of an error that `parse` raised."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        why = ", ".join(part for part in (error.context, error.problem) if part)
        return (mark.line + 1 if mark else None), why
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return line, f"the character {chr(error.character)!r} is not allowed"
    return None, str(error)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012  PyYAML's own way; filled below

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here and not in construct_mapping: by then `<<` may have been merged into the same node,
        # and a key that overrides a merged one is no duplicate.
        node = super().compose_mapping_node(anchor)
        first: dict[object, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            key = "<<" if key_node.tag == _MERGE else self.construct_object(key_node)
            if key in first:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} again (first on line {first[key]})",
                    problem_mark=key_node.start_mark,
                )
            first[key] = key_node.start_mark.line + 1
        return node

    def construct_whole_number(self, node: yaml.ScalarNode) -> int:
        text = str(self.construct_scalar(node))
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        # PyYAML loses line breaks such as U+0085 in every style but the double-quoted one.
        style = None if text.isprintable() else '"'
        return self.represent_scalar(f"{_PREFIX}str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)
_Loader.add_constructor(f"{_PREFIX}int", _Loader.construct_whole_number)
for _name, _pattern, _first in _SCALARS:
    _whole = re.compile(rf"(?:{_pattern})\Z")
    _Loader.add_implicit_resolver(f"{_PREFIX}{_name}", _whole, _first)
    _Dumper.add_implicit_resolver(f"{_PREFIX}{_name}", _whole, _first)
