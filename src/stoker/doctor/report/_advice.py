"""The page's cure: advice as ranked cards, and what it brought where it was applied."""

from collections.abc import Mapping
from typing import Any

from stoker.doctor._diagnosis import Advice, Comparison, Diagnosis
from stoker.doctor._record import Record
from stoker.doctor._words import duration, percent, size, times, times_range
from stoker.doctor.report._charts import interval_bar
from stoker.doctor.report._markup import Child, Html, element, join, section, source_line, table
from stoker.doctor.report._sections import step_bar
from stoker.doctor.report._words import in_order, stage_name, training_words


def advice(record: Record, diagnosis: Diagnosis) -> Html | None:
    """What to change, the greatest gain first, each with what it would bring and what it costs."""
    if diagnosis.verdict == "nothing observed" and not diagnosis.advice:
        return None
    if not diagnosis.advice:
        said = (
            "Leave the loader alone: data is there when the model asks for it, and no change to it would "
            "make a step shorter."
            if diagnosis.has_nothing_to_gain
            else "Nothing that was measured calls for a change."
        )
        return section("advice", "What to do", element("p", said, class_="calm"))
    limit = max(1.2, *(item.speedup.high for item in diagnosis.advice))
    cards = [
        _card(item, record, number=number, limit=limit) for number, item in enumerate(diagnosis.advice, 1)
    ]
    return section(
        "advice",
        "What to do",
        element("ol", *cards, class_="advice"),
        lead="Predicted speed-up of a whole step for each change alone; the band is the range it may lie in.",
    )


def comparison(record: Record, done: Comparison) -> Html:
    """Predicted against achieved, and where the time went."""
    before, after = done.before.step_s, done.after.step_s
    limit = max(1.2, done.predicted.high, done.achieved.high)
    slowest = max(before.value, after.value)
    within = done.predicted.low <= done.achieved.value <= done.predicted.high
    speedups = [
        element(
            "li",
            element("span", name, class_="name"),
            element(
                "span",
                element("span", times_range(interval), class_="quiet"),
                " ",
                element("b", times(interval.value)),
            ),
            interval_bar(interval, limit=limit, kind=kind, has_scale=True),
        )
        for name, interval, kind in (
            ("Predicted", done.predicted, "predicted"),
            ("Achieved", done.achieved, "gain"),
        )
    ]
    steps = [
        element(
            "li",
            element("span", name, class_="name"),
            element("b", duration(found.step_s.value)),
            step_bar(found, limit=slowest),
            element("span", f"{percent(found.starved_fraction)} of it starved", class_="quiet"),
        )
        for name, found in (("Before", done.before), ("After", done.after))
    ]
    return section(
        "comparison",
        "Before and after",
        element(
            "p",
            element("b", times(done.achieved.value), class_="huge"),
            element("span", f"{duration(before.value)} → {duration(after.value)} a step"),
            element(
                "span",
                "as predicted" if within else "outside the predicted range",
                class_="chip good" if within else "chip careful",
            ),
            class_="headline",
        ),
        element("div", element("ul", *speedups, class_="levels"), element("ul", *steps, class_="levels")),
        _applied(record, done),
        patch(done.patch, name="patch-of-fix", title="Patch for your source"),
        element(
            "details",
            element("summary", "The same in figures"),
            table(
                ["Stage", "Before", "After"],
                _stage_rows(done.before, done.after),
                caption="Time a step before and after, by stage",
            ),
        ),
    )


def patch(text: str | None, *, name: str, title: str = "Patch") -> Html | None:
    """A unified diff that can be copied as it is."""
    if not text:
        return None
    lines = [element("span", line, class_=_line_kind(line)) for line in text.splitlines(keepends=True)]
    button = element("button", "Copy", type="button", class_="copy", data_copy=name)
    return element(
        "details",
        element("summary", title),
        element("div", button, element("pre", *lines, id=name, tabindex="0"), class_="patch"),
    )


def _card(item: Advice, record: Record, *, number: int, limit: float) -> Html:
    ram = f"{size(item.ram_bytes)} more memory" if item.ram_bytes > 0 else "no more memory"
    if item.ram_bytes < 0:
        ram = f"{size(-item.ram_bytes)} less memory"
    training = element(
        "span", training_words(item), class_="chip careful" if item.changes_training else "chip good"
    )
    applied = "stoker fix --reorder applies it" if item.changes_order_only else "stoker fix applies it"
    automatic = bool(item.settings) and (item.changes_order_only or not item.changes_training)
    return element(
        "li",
        element(
            "div",
            element("b", times(item.speedup.value)),
            element("span", times_range(item.speedup), class_="quiet"),
            class_="gain",
        ),
        element(
            "div",
            element("h3", item.action),
            interval_bar(item.speedup, limit=limit, has_scale=number == 1),
            element("p", item.reason),
            element(
                "p",
                training,
                element("span", ram, class_="chip"),
                element("span", applied, class_="chip") if automatic else None,
                element("span", f"loader: {item.loader}", class_="chip") if item.loader else None,
                class_="chips",
            ),
            source_line(item.place, record),
            element("p", element("code", _keywords(item.settings)), class_="settings")
            if item.settings
            else None,
            patch(item.patch, name=f"patch-{number}"),
        ),
    )


def _applied(record: Record, done: Comparison) -> Html:
    items = [element("li", item.action, " ", source_line(item.place, record)) for item in done.applied] or [
        element("li", "Nothing could be applied without changing the training.")
    ]
    settings = [
        element("p", element("span", f"{loader}: "), element("code", _keywords(keywords)), class_="settings")
        for loader, keywords in done.settings.items()
        if keywords
    ]
    return join(element("h3", "Applied"), element("ul", *items, class_="plain"), *settings)


def _stage_rows(before: Diagnosis, after: Diagnosis) -> list[list[Child]]:
    rows: list[list[Child]] = [
        [
            stage_name(stage),
            *(
                duration(found.stages[stage]) if stage in found.stages else "not observed"
                for found in (before, after)
            ),
        ]
        for stage in in_order({*before.stages, *after.stages})
    ]
    return [*rows, ["a step", duration(before.step_s.value), duration(after.step_s.value)]]


def _keywords(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in settings.items())


def _line_kind(line: str) -> str | None:
    if line.startswith(("+++", "---", "@@")):
        return "hunk"
    return "added" if line.startswith("+") else "removed" if line.startswith("-") else None
