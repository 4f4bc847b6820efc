"""HTML that can't be broken by what it shows: text is escaped unless it was made here."""

from html import escape
from typing import TypeAlias

from stoker.doctor._record import Place, Record
from stoker.doctor.report._words import place_name, plain


class Html(str):
    """Markup that is finished: it goes in as it is. Everything else is text."""

    __slots__ = ()


Child: TypeAlias = "str | Html | None"
Attribute: TypeAlias = "str | bool | None"
_KEPT = "\n\t\f"  # a patch is copied from the page and must stay as it is
_VOID = {"br", "col", "hr", "input", "link", "meta"}


def element(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. `class_` becomes `class`, `aria_label` becomes `aria-label`.

    An attribute that is None or False is left out; True stands alone. Children that are None are skipped.
    """
    said = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{said}>")
    return Html(f"<{name}{said}>{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """Children one after another, those that are text escaped."""
    return Html(
        "".join(
            child if isinstance(child, Html) else escape(plain(child, keep=_KEPT))
            for child in children
            if child
        )
    )


def table(
    headings: list[Child], rows: list[list[Child]], *, caption: str, hidden_caption: bool = True
) -> Html:
    """A table; the first cell of each row is its heading, the last of a short row fills it.

    Wide ones scroll in a frame of their own.
    """
    head = element("tr", *(element("th", heading, scope="col") for heading in headings))
    body = [
        element("tr", element("th", row[0], scope="row"), *_cells(row[1:], num_columns=len(headings) - 1))
        for row in rows
    ]
    return element(
        "div",
        element(
            "table",
            element("caption", caption, class_="unseen" if hidden_caption else None),
            element("thead", head),
            element("tbody", *body),
        ),
        class_="table",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def section(name: str, title: str, *children: Child, lead: Child = None) -> Html:
    """A part of the page that its menu leads to."""
    return element(
        "section",
        element("h2", title, id=f"{name}-title"),
        element("p", lead, class_="lead") if lead else None,
        *children,
        id=name,
        class_="card",
        aria_labelledby=f"{name}-title",
    )


def source_line(place: Place | None, record: Record) -> Html | None:
    """`train.py:41` and what stands there."""
    if place is None:
        return None
    where = element("code", place_name(place, record), class_="where", title=f"{place.file}:{place.line}")
    text = element("code", place.text, class_="text") if place.text else None
    return element("span", where, " " if text else None, text, class_="source")


def _cells(cells: list[Child], *, num_columns: int) -> list[Html]:
    span = num_columns - len(cells) + 1
    last = element("td", cells[-1], colspan=str(span) if span > 1 else None)
    return [*(element("td", cell) for cell in cells[:-1]), last]
