"""The page's run over time: the frame that its script draws into, and the same as tables."""

from collections.abc import Mapping
from statistics import median

from stoker.doctor._record import STAGES, Record
from stoker.doctor._words import count, duration, percent, size
from stoker.doctor.report._markup import Child, Html, element, join, section, table
from stoker.doctor.report._over_time import PHASES, stalled
from stoker.doctor.report._words import MINUS, NOTHING, PHASE_NAMES, STAGE_NAMES, stage_name

_NUM_LONGEST = 8
_LANE_PARTS = {
    "loop": "the loop trains",
    "load": "loading",
    "transform": "transforms",
    "collate": "collate",
    "rest": "handing over",
    "wait": "it waits",
    "blocked": "it waits though later batches are there",
}


def run_over_time(record: Record) -> Html | None:
    """Steps, workers, memory and cores on one time axis."""
    if not (record.steps or record.batches or record.moments):
        return None
    keys = (("← →", "step by step"), (f"+ {MINUS}", "zoom"), ("S", "next stall"), ("0", "everything"))
    return section(
        "run",
        "The run over time",
        element(
            "div",
            element(
                "div",
                *(
                    element("button", label, type="button", data_action=action, aria_label=said, title=said)
                    for action, label, said in (
                        ("in", "+", "Zoom in"),
                        ("out", MINUS, "Zoom out"),
                        ("stall", "Next stall", "Go to the next stall"),
                        ("all", "Everything", "Show the whole run"),
                    )
                ),
                class_="buttons",
                role="group",
                aria_label="Zoom",
            ),
            element(
                "p",
                *(join(element("kbd", key), f" {said}  ") for key, said in keys),
                class_="keys quiet",
            ),
            class_="toolbar",
        ),
        _tracks(record),
        element("div", id="tooltip", hidden=True),
        element("p", "The drawing needs JavaScript; the tables below don't.", class_="without-script"),
        _tables(record),
        lead="All rows share one time axis. Drag across any of them to zoom in.",
    )


def _tracks(record: Record) -> Html:
    seen = [stage for stage in STAGES if any(stage in step.stages for step in record.steps)]
    tracks = [_track("overview", "The whole run", "drag to choose a range", _legend(_marks(record)))]
    if record.steps:
        legend = _legend({str(stage): STAGE_NAMES[stage] for stage in seen})
        tracks.append(_track("steps", "Steps", "time of each, by stage", legend, is_slider=True))
    if record.batches or record.steps:
        tracks.append(_track("lanes", "Loop and workers", "what each did", _legend(_LANE_PARTS)))
    if record.moments:
        memory = {"memory": "all processes", "worker-memory": "of it workers"}
        tracks.append(_track("memory", "Memory", "of the process tree", _legend(memory)))
        cores = {"cpu": "used by the process tree", "core": "each core, by anyone"}
        if any(moment.accelerator_use is not None for moment in record.moments):
            cores["accelerator"] = "accelerator, by its driver: shown, never judged by"
        tracks.append(_track("cores", "Cores", f"of {record.machine.num_cores}", _legend(cores)))
    return element("div", *tracks, id="tracks")


def _marks(record: Record) -> dict[str, str]:
    """What is marked in the steps' background and above them."""
    phases = {step.phase for step in record.steps} - {"normal"}
    marks = {str(phase): PHASE_NAMES[phase] for phase in PHASES if phase in phases}
    if record.pauses:
        marks["pause"] = "pause"
    if stalled(record.steps):
        marks["stall"] = "stall"
    return marks


def _track(name: str, title: str, said: str, legend: Html | None, *, is_slider: bool = False) -> Html:
    canvas = element(
        "canvas",
        id=f"track-{name}",
        class_="drawing",
        role="slider" if is_slider else "img",
        tabindex="0" if is_slider else None,
        aria_label="Steps over time; arrow keys go from step to step" if is_slider else f"{title}, {said}",
        aria_valuemin="1" if is_slider else None,
        aria_valuenow="1" if is_slider else None,
    )
    caption = element("figcaption", element("b", title), " ", element("span", said, class_="quiet"), legend)
    return element("figure", caption, canvas, class_="track-figure")


def _legend(names: Mapping[str, str]) -> Html:
    items = [
        element(
            "li",
            element(
                "svg",
                element("rect", class_=f"fill-{kind}", width="100%", height="100%", rx="2")
                if kind != "stall"
                else element("path", class_="fill-stall", d="M0 1h10l-5 8z"),
                class_="swatch",
                width="10",
                height="10",
                aria_hidden="true",
            ),
            name,
        )
        for kind, name in names.items()
    ]
    return element("ul", *items, class_="legend")


def _tables(record: Record) -> Html | None:
    found: list[Html] = []
    if record.steps:
        found += [_phase_table(record), _longest_table(record)]
    if record.pauses:
        found.append(_pause_table(record))
    if record.moments:
        found.append(_moment_table(record))
    return element("details", element("summary", "The same as tables"), *found)


def _phase_table(record: Record) -> Html:
    rows: list[list[Child]] = []
    for phase in PHASES:
        steps = record.in_phase(phase)
        if not steps:
            continue
        lengths = [step.seconds for step in steps]
        waits = sum(step.stages.get("wait", 0.0) for step in steps)
        rows.append(
            [
                PHASE_NAMES[phase],
                count(len(steps)),
                duration(median(lengths)),
                duration(min(lengths)),
                duration(max(lengths)),
                percent(waits / sum(lengths)) if sum(lengths) else NOTHING,
            ]
        )
    return table(
        ["Phase", "Steps", "Median", "Shortest", "Longest", "Waiting"],
        rows,
        caption="Steps by phase",
        hidden_caption=False,
    )


def _longest_table(record: Record) -> Html:
    marked = stalled(record.steps)
    order = sorted(range(len(record.steps)), key=lambda index: -record.steps[index].seconds)[:_NUM_LONGEST]
    rows: list[list[Child]] = []
    for index in order:
        step = record.steps[index]
        most = max(step.stages, key=lambda stage: step.stages[stage], default=None)
        rows.append(
            [
                f"{index + 1}{' (stall)' if index in marked else ''}",
                duration(step.begin_s),
                duration(step.seconds),
                f"{stage_name(most)}, {duration(step.stages[most])}" if most else NOTHING,
            ]
        )
    return table(["Step", "At", "Time", "Most of it"], rows, caption="Longest steps", hidden_caption=False)


def _pause_table(record: Record) -> Html:
    rows: list[list[Child]] = []
    for kind in sorted({pause.kind for pause in record.pauses}):
        lengths = [pause.end_s - pause.begin_s for pause in record.pauses if pause.kind == kind]
        rows.append([kind, count(len(lengths)), duration(sum(lengths)), duration(max(lengths))])
    return table(
        ["Pause", "Times", "Altogether", "Longest"],
        rows,
        caption="Pauses between steps",
        hidden_caption=False,
    )


def _moment_table(record: Record) -> Html:
    memory = [moment.memory_bytes for moment in record.moments]
    workers = [moment.worker_memory_bytes for moment in record.moments]
    cores = [moment.process_cpu for moment in record.moments]
    rows: list[list[Child]] = [
        ["Memory, all processes", size(median(memory)), size(max(memory))],
        ["Memory, workers", size(median(workers)), size(max(workers))],
        [f"Cores used, of {record.machine.num_cores}", f"{median(cores):.2f}", f"{max(cores):.2f}"],
    ]
    return table(["", "Median", "Highest"], rows, caption="Memory and cores", hidden_caption=False)
