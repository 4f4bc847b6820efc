"""Bars as SVG: widths in percent, colours by class, so that they fit any width and theme without a script."""

from collections.abc import Sequence
from dataclasses import dataclass

from stoker.doctor._diagnosis import Interval
from stoker.doctor._words import times, times_range
from stoker.doctor.report._markup import Html, element

_LABELLED_SHARE = 0.13  # a narrower part has no room for its label on a phone


@dataclass(frozen=True)
class Part:
    """One part of a stacked bar."""

    kind: str  # the class that gives its colour
    name: str
    share: float  # of the bar's full width
    figure: str  # its size in words
    label: str  # what stands on it, where there is room


def stacked_bar(parts: Sequence[Part], *, label: str) -> Html:
    """Parts beside one another, each with a tooltip, wide ones with their label."""
    drawn, left = [], 0.0
    for part in parts:
        said = f"{part.name}: {part.figure}, {part.label}"
        drawn.append(
            element(
                "rect",
                element("title", said),
                class_=f"fill-{part.kind}",
                x=_percent(left),
                width=_percent(part.share),
                height="100%",
            )
        )
        if part.share >= _LABELLED_SHARE:
            drawn.append(
                element(
                    "text",
                    part.label,
                    class_=f"on-{part.kind}",
                    x=_percent(left + part.share / 2),
                    y="50%",
                    dy=".36em",
                    text_anchor="middle",
                )
            )
        left += part.share
    return element("svg", *drawn, class_="stacked", width="100%", height="44", role="img", aria_label=label)


def share_bar(share: float, *, kind: str) -> Html:
    """How much of the whole; the figure stands beside it, so it says nothing to a screen reader."""
    track = element("rect", class_="track", width="100%", height="100%", rx="4")
    bar = element("rect", class_=f"fill-{kind}", width=_percent(share), height="100%", rx="4")
    return element("svg", track, bar, class_="share", width="100%", height="8", aria_hidden="true")


def level_bar(value: float, *, low: float, high: float, limit: float, kind: str) -> Html:
    """A figure as a bar with a whisker over the range it may lie in, on a scale from 0 to `limit`."""
    scale = limit or 1.0
    bar = element("rect", class_=f"fill-{kind}", width=_percent(value / scale), y="5", height="18", rx="3")
    return element("svg", bar, *_whisker(low / scale, high / scale), **_LEVEL)


def interval_bar(interval: Interval, *, limit: float, kind: str = "gain", has_scale: bool = False) -> Html:
    """Speed-ups on a scale from 1 to `limit`: the range as a band, the value as a dot."""

    def position(speedup: float) -> float:
        return (speedup - 1) / (limit - 1) if limit > 1 else 0.0

    low, high = position(interval.low), position(interval.high)
    return element(
        "svg",
        element("rect", class_="track", width="100%", y="8", height="4", rx="2"),
        element(
            "rect",
            class_=f"fill-{kind} faint",
            x=_percent(low),
            width=_percent(max(min(high, 1) - max(low, 0), 0.01)),
            y="4",
            height="12",
            rx="6",
        ),
        element("circle", class_=f"fill-{kind}", cx=_percent(position(interval.value)), cy="10", r="6"),
        *(_scale(limit) if has_scale else ()),
        class_="interval",
        width="100%",
        height="34" if has_scale else "20",
        role="img",
        aria_label=f"{times(interval.value)}, between {times_range(interval)}",
    )


_LEVEL = {"class_": "level", "width": "100%", "height": "28", "aria_hidden": "true"}


def _scale(limit: float) -> list[Html]:
    return [
        element("text", times(value), class_="scale", x=x, y="31", text_anchor=anchor)
        for value, x, anchor in ((1.0, "0%", "start"), (limit, "100%", "end"))
    ]


def _whisker(low: float, high: float) -> list[Html]:
    line = element("line", class_="whisker", x1=_percent(low), x2=_percent(high), y1="14", y2="14")
    ends = [
        element("line", class_="whisker", x1=_percent(end), x2=_percent(end), y1="9", y2="19")
        for end in (low, high)
    ]
    return [line, *ends]


def _percent(share: float) -> str:
    return f"{min(max(share, 0.0), 1.0) * 100:.3f}%"
