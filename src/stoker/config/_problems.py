"""What pydantic found wrong, said as Stoker says it: the place, the rule, the value, the remedy."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ValidationError

from stoker.config._shape import Place, locate

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_LONGEST_VALUE = 80
_OWN_RULES = {"value_error", "assertion_error"}  # raised by a validator of the settings class


def explain(
    error: ValidationError,
    model: type[BaseModel],
    origin: Callable[[tuple[str, ...]], str],
) -> str:
    """Give one message for all problems.

    Args:
        error: what pydantic raised.
        model: the class that was being validated.
        origin: names where the value at a path came from, such as a file.
    """
    problems = (_problem(details, model) for details in error.errors(include_url=False))
    lines = [f"{origin(path)}: {text}" for path, text in _merged(problems)]
    if len(lines) == 1:
        return lines[0]
    return "\n  ".join([f"{len(lines)} settings must be corrected:", *lines])


class _Problem(NamedTuple):
    path: tuple[str, ...]
    subject: str  # what is wrong: a quoted path, or nothing for the settings as a whole
    rule: str
    rest: str  # the value received and the remedy


def _merged(problems: Iterable[_Problem]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Give one text per subject: what several alternatives demand of it is joined by "or"."""
    by_subject: dict[str, list[_Problem]] = {}
    for problem in problems:
        by_subject.setdefault(problem.subject, []).append(problem)
    for subject, group in by_subject.items():
        rules = " or ".join(dict.fromkeys(problem.rule for problem in group))
        yield group[-1].path, " ".join(filter(None, (subject, rules))) + group[-1].rest


def _problem(details: "ErrorDetails", model: type[BaseModel]) -> _Problem:
    kind, location, value = details["type"], details["loc"], details["input"]
    if kind in {"extra_forbidden", "invalid_key"}:
        key = str(value if kind == "invalid_key" else location[-1])
        return _unknown_key(locate(model, location[:-1]), key)
    if kind in {"union_tag_invalid", "union_tag_not_found"}:
        return _wrong_tag(locate(model, location).path, details["ctx"])
    if location[-1:] == ("[key]",):
        path = locate(model, location[:-1]).path
        return _Problem(path, f"the key {_quoted(path)}", _rule(details), "; rename it")
    path = locate(model, location).path
    if kind == "missing":
        return _required(path)
    return _Problem(path, _quoted(path), _rule(details), _received(details))


def _unknown_key(section: Place, key: str) -> _Problem:
    path = (*section.path, key)
    nearest = get_close_matches(key, section.keys, n=1)
    if "." in key:
        remedy = "dots are for --set only, in a file the keys are nested."
    elif nearest:
        remedy = f"did you mean {_quoted((*section.path, nearest[0]))}?"
    else:
        remedy = "remove it."
    known = ", ".join(section.keys)
    return _Problem(path, f"unknown key {_quoted(path)}", "", f"; {remedy} Known keys there: {known}")


def _wrong_tag(section: tuple[str, ...], context: Mapping[str, str]) -> _Problem:
    path = (*section, context["discriminator"].strip("'"))
    if "tag" not in context:
        return _required(path)
    rule = f"must be one of {context['expected_tags']}"
    return _Problem(path, _quoted(path), rule, f", got {_shown(context['tag'])}")


def _required(path: tuple[str, ...]) -> _Problem:
    return _Problem(path, _quoted(path), "is required", ", got nothing; add it")


def _rule(details: "ErrorDetails") -> str:
    if details["type"] in _OWN_RULES:
        text = str(details["ctx"]["error"])
        return f"is refused: {text}" if details["loc"] else text
    if details["type"] == "model_type":
        return "must be a section (a mapping of keys to values)"
    text = details["msg"].replace(" should ", " must ")
    return text.removeprefix("Input ") if text.startswith("Input ") else f"is refused: {text}"


def _received(details: "ErrorDetails") -> str:
    kind, value = details["type"], details["input"]
    # A section's own validator judges all of it at once, and many name the value themselves.
    if kind in _OWN_RULES and (isinstance(value, Mapping | BaseModel) or "got " in details["msg"]):
        return ""
    remedy = ""
    if kind == "string_type" and isinstance(value, int | float | None):
        remedy = "; put it in quotes to make it text"
    elif kind == "model_type" and value is None:
        remedy = "; leave the key out, or write {}, for its defaults"
    elif kind in {"list_type", "tuple_type"} and isinstance(value, Mapping):
        remedy = "; give the whole list, such as [1, 2]"
    return f", got {_shown(value)}{remedy}"


def _quoted(path: tuple[str, ...]) -> str:
    return f"'{'.'.join(path)}'" if path else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
