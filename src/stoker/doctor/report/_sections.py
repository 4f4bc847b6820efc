"""The page's answer: verdict, key figures, where a step's time goes, the ceiling, the causes."""

from stoker.doctor._diagnosis import Diagnosis, Interval
from stoker.doctor._record import STAGES, Record
from stoker.doctor._words import TO, count, duration, error_line, percent, times, times_range
from stoker.doctor.report._charts import Part, level_bar, share_bar, stacked_bar
from stoker.doctor.report._markup import Child, Html, element, join, section, source_line, table
from stoker.doctor.report._words import (
    NOTHING,
    OVERLAP,
    STAGE_NAMES,
    VERDICT_MEANINGS,
    in_order,
    stage_name,
)


def verdict(record: Record, diagnosis: Diagnosis) -> Html:
    """The answer in one sentence, coloured by its kind."""
    kind = diagnosis.verdict.replace(" ", "-")
    confident = diagnosis.verdict != "nothing observed"
    return element(
        "section",
        element(
            "p",
            element("span", diagnosis.verdict, class_="pill"),
            element("span", VERDICT_MEANINGS[diagnosis.verdict]),
            element("span", f"{percent(diagnosis.confidence)} sure", class_="sure") if confident else None,
            class_="kind",
        ),
        element("h1", diagnosis.sentence),
        _culprit(record, diagnosis),
        id="verdict",
        class_=f"verdict verdict-{kind}",
        aria_label="Verdict",
    )


def crash(record: Record) -> Html | None:
    """That the script died, and of what; the figures then tell of the time before."""
    if record.ended != "crashed":
        return None
    error = record.error or ""
    return element(
        "section",
        element("h2", "The script crashed"),
        element("p", element("code", error_line(error))),
        element("p", f"Exit code {record.exit_code}. Every figure below tells of the time before that."),
        element("details", element("summary", "Traceback"), element("pre", error)) if error else None,
        id="crash",
        class_="card crash",
        role="alert",
    )


def key_figures(record: Record, diagnosis: Diagnosis) -> Html | None:
    """The six figures that one looks at first."""
    if diagnosis.step_s.value <= 0:
        return None
    step, rate, ceiling = diagnosis.step_s, diagnosis.samples_per_s, diagnosis.ceiling_speedup
    share = diagnosis.overhead_s_per_step / step.value
    num_steps = len(record.in_phase("normal"))
    figures = [
        ("A step", duration(step.value), _range_of(step)),
        ("Throughput", f"{count(rate)} /s" if rate else None, "samples a second" if rate else "not observed"),
        ("Starved", percent(diagnosis.starved_fraction), "of a step waits for data"),
        (
            "Ceiling",
            times(ceiling.value) if ceiling else None,
            f"{times_range(ceiling)}, if data were always there" if ceiling else "not replayed",
        ),
        (
            "Confidence",
            percent(diagnosis.confidence),
            f"from {count(num_steps)} step{'s' * (num_steps != 1)}",
        ),
        (
            "Our overhead",
            duration(diagnosis.overhead_s_per_step),
            f"{percent(share)} of a step",
        ),
    ]
    tiles = [
        element(
            "div",
            element("dt", name),
            element("dd", figure or NOTHING, class_="figure"),
            element("dd", said, class_="said"),
        )
        for name, figure, said in figures
    ]
    return element("dl", *tiles, class_="figures", aria_label="Key figures")


def stages(record: Record, diagnosis: Diagnosis) -> Html | None:
    """Where a step's time goes; stages that could not be observed are named with the reason."""
    step_s = diagnosis.step_s.value
    if not diagnosis.stages or step_s <= 0:
        return None
    rows: list[list[Child]] = [
        [
            join(_swatch(stage), stage_name(stage)),
            duration(seconds),
            percent(seconds / step_s),
            share_bar(seconds / step_s, kind=_kind(stage)),
        ]
        for stage in in_order(diagnosis.stages)
        for seconds in [diagnosis.stages[stage]]
    ]
    for stage in STAGES:
        if stage not in diagnosis.stages:
            why = record.not_observed.get(stage)
            said = element("span", f"not observed{f': {why}' if why else ''}", class_="quiet")
            rows.append([join(_swatch("missing"), STAGE_NAMES[stage]), said])
    if diagnosis.pause_s_per_step > 0:
        beside = (
            f"{duration(diagnosis.pause_s_per_step)}, beside the step: starts of epochs, spread over steps"
        )
        rows.append([join(_swatch("pause"), "epoch start"), element("span", beside, class_="quiet")])
    return section(
        "stages",
        "Where a step's time goes",
        step_bar(diagnosis, limit=step_s),
        table(["Stage", "Time a step", "Share", ""], rows, caption="Time a step, by stage"),
        lead="Medians over the measured steps; the timeline below shows each by itself.",
    )


def step_bar(diagnosis: Diagnosis, *, limit: float) -> Html:
    """A step's stages on a bar whose full width stands for `limit` seconds."""
    step_s = diagnosis.step_s.value or 1.0
    parts = [
        Part(
            _kind(stage),
            stage_name(stage),
            seconds / (limit or 1.0),
            duration(seconds),
            percent(seconds / step_s),
        )
        for stage in in_order(diagnosis.stages)
        for seconds in [diagnosis.stages[stage]]
    ]
    said = ", ".join(f"{part.name} {part.label}" for part in parts)
    return stacked_bar(parts, label=f"A step of {duration(step_s)}: {said}")


def ceiling(record: Record, diagnosis: Diagnosis) -> Html | None:
    """What a step takes now, with data that is always there, and with data that is always on the device."""
    now = diagnosis.step_s
    if now.value <= 0:
        return None
    rows = [("Now", now, "as the script is", "now")]
    for name, speedup, said in (
        ("Batches ready", diagnosis.ceiling_speedup, "no fetching, no preparation"),
        ("On the device", diagnosis.device_ceiling_speedup, "no copy either"),
    ):
        if speedup is not None and min(speedup.low, speedup.value) > 0:
            step = Interval(
                now.value / speedup.value, now.value / max(speedup.high, 1e-9), now.value / speedup.low
            )
            rows.append((name, step, f"{times(speedup.value)} ({times_range(speedup)}), {said}", "gain"))
    replayed = len(rows) > 1
    limit = max(step.high for _, step, _, _ in rows)
    bars = [
        element(
            "li",
            element("span", name, class_="name"),
            element("b", duration(step.value)),
            level_bar(step.value, low=step.low, high=step.high, limit=limit, kind=kind),
            element("span", said, class_="quiet"),
        )
        for name, step, said, kind in rows
    ]
    why = record.not_observed.get("ceiling") or record.not_observed.get("replay")
    lead = (
        "Measured in the same run: batches were kept and given again. No loader can do better."
        if replayed
        else f"Not measured{f': {why}' if why else '.'}"
    )
    shown = element("ul", *bars, class_="levels") if replayed else None
    return section("ceiling", "Ceiling against now", shown, lead=lead)


def causes(record: Record, diagnosis: Diagnosis) -> Html | None:
    """The reasons for the time that is lost, the greatest first."""
    if not diagnosis.causes:
        return None
    items = [
        element(
            "li",
            element("b", percent(cause.share), class_="figure"),
            element(
                "div",
                element("p", element("span", cause.kind, class_="chip"), " ", cause.text),
                share_bar(cause.share, kind="cause"),
                source_line(cause.place, record),
            ),
        )
        for cause in sorted(diagnosis.causes, key=lambda cause: -cause.share)
    ]
    return section("causes", "Causes", element("ol", *items, class_="causes"), lead=OVERLAP)


def _culprit(record: Record, diagnosis: Diagnosis) -> Html | None:
    if not diagnosis.culprit:
        return None
    place = diagnosis.culprit_place
    return element(
        "p",
        element("span", "To blame: ", class_="quiet"),
        element("strong", diagnosis.culprit),
        " ",
        source_line(place, record) if place else None,
        class_="culprit",
    )


def _kind(stage: str) -> str:
    return stage if stage in {str(known) for known in STAGES} else "other"


def _swatch(stage: str) -> Html:
    square = element("rect", class_=f"fill-{stage}", width="100%", height="100%", rx="3")
    return element("svg", square, class_="swatch", width="12", height="12", aria_hidden="true")


def _range_of(interval: Interval) -> str:
    low, high = duration(interval.low), duration(interval.high)
    number, _, unit = low.rpartition(" ")
    return f"{number}{TO}{high}" if high.endswith(f" {unit}") and " " not in number else f"{low}{TO}{high}"
