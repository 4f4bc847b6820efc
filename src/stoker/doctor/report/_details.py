"""The page's evidence: workers and transforms, hottest lines, operators, loaders, notes, machine."""

import shlex
from collections.abc import Mapping
from statistics import fmean

from stoker.doctor._diagnosis import Diagnosis
from stoker.doctor._record import Batch, Loader, Record, with_queues
from stoker.doctor._words import count, duration, percent, size
from stoker.doctor.report._charts import share_bar
from stoker.doctor.report._markup import Child, Html, element, join, section, source_line, table
from stoker.doctor.report._words import NOTHING, stage_name

_MAX_ROWS = 25
_PROCESSES = {"trial": "made once more"}  # of samplers; the others are called what they are


def making_data(record: Record, diagnosis: Diagnosis) -> Html | None:
    """What a sample costs by transform, and what each worker spent its time on."""
    parts = [
        _transforms(diagnosis.transforms) if diagnosis.transforms else None,
        _trials(record) if record.trials else None,
        _workers(record) if record.batches else None,
    ]
    if not any(parts):
        return None
    return section("data", "How a sample is made", *parts)


def hottest_lines(record: Record) -> Html | None:
    """Lines of the user's own code at which Python stood, by a sampler."""
    if not record.lines:
        return None
    lines = sorted(record.lines, key=lambda line: -line.seconds)[:_MAX_ROWS]
    wholes = {
        process: sum(line.seconds for line in record.lines if line.process == process) or 1.0
        for process in {line.process for line in record.lines}
    }
    rows: list[list[Child]] = []
    for line in lines:
        inside = [name for name in (line.module and f"{line.module}.forward", line.callee) if name]
        share = line.seconds / wholes[line.process]
        where = [
            _PROCESSES.get(line.process, line.process),
            *([stage_name(line.stage)] if line.stage else []),
        ]
        rows.append(
            [
                source_line(line.place, record),
                " · ".join(where) + (" · makes data" if line.in_loop_header else ""),
                element("code", " → ".join(inside)) if inside else "",
                duration(line.seconds),
                percent(share),
                share_bar(share, kind="cause"),
            ]
        )
    return section(
        "lines",
        "Hottest lines",
        table(["Line", "Where", "Inside", "Time", "Share", ""], rows, caption="Hottest lines of your code"),
        lead="Where Python stood when it was sampled. A share is of all looks at one place: the loop, the "
        "workers, or samples that were made once more after it.",
    )


def operators(record: Record) -> Html | None:
    """How many operators a step issues and which modules issue them."""
    found = record.operators
    if found is None:
        return None
    figures = element(
        "p",
        element("b", count(found.per_step)),
        " operators a step, ",
        element("b", duration(found.seconds_per_operator)),
        " each on average. A step of many tiny ones is bound by Python, not by arithmetic.",
    )
    return section(
        "operators",
        "Operators",
        figures,
        _shares(found.by_module, heading="Module", caption="Operators a step, by module"),
        _shares(
            found.host_syncs, heading="Waits for the device", caption="Synchronisations a step, by place"
        ),
    )


def loaders(record: Record) -> Html | None:
    """Every DataLoader's settings."""
    if not record.loaders:
        return None
    cards = [
        element(
            "div",
            element("h3", loader.name, " ", element("span", loader.role, class_="chip")),
            _pairs(_settings(loader)),
            source_line(loader.made_at, record),
            class_="loader",
        )
        for loader in record.loaders
    ]
    return section("loaders", "Loaders", element("div", *cards, class_="loaders"))


def notes(record: Record, diagnosis: Diagnosis) -> Html | None:
    """What to know, what was not observed, and what happened."""
    items = [element("li", note) for note in diagnosis.notes]
    missing = [
        element("li", element("b", stage_name(name)), f": {why}") for name, why in record.not_observed.items()
    ]
    events = [
        element(
            "li",
            element("span", duration(event.time_s), class_="quiet"),
            " ",
            element("span", event.kind, class_="chip"),
            " ",
            event.text,
            " ",
            source_line(event.place, record),
        )
        for event in record.events[:_MAX_ROWS]
    ]
    if len(record.events) > _MAX_ROWS:
        events.append(element("li", f"and {len(record.events) - _MAX_ROWS} more, in report.json"))
    lists = [
        join(element("h3", title), element("ul", *found, class_="plain"))
        for title, found in (("To know", items), ("Not observed", missing), ("Events", events))
        if found
    ]
    return section("notes", "Notes", *lists) if lists else None


def machine(record: Record) -> Html:
    """What the run had at its disposal, and how it was started."""
    found = record.machine
    cores = f"{found.num_cores} of {found.num_cores_present}"
    ended = {"stopped": "stopped by the doctor", "finished": "finished", "crashed": "crashed"}[record.ended]
    pairs: dict[str, Child] = {
        "command": element("code", shlex.join(record.command)),
        "run": f"{duration(record.seconds)}, {ended}",
        "device": found.device,
        "cores it may use": cores,
        "memory": size(found.memory_bytes),
        "torch threads": str(found.num_torch_threads),
        "Python": found.python,
        "torch": found.torch,
        "platform": found.platform,
    }
    return section("machine", "Machine and run", _pairs(pairs))


def _transforms(transforms: Mapping[str, float]) -> Html:
    whole = sum(transforms.values()) or 1.0
    most = max(transforms.values()) or 1.0
    ordered = sorted(transforms.items(), key=lambda item: -item[1])
    rows: list[list[Child]] = [
        [
            element("code", name),
            duration(seconds),
            percent(seconds / whole),
            share_bar(seconds / most, kind="transform"),
        ]
        for name, seconds in ordered[:_MAX_ROWS]
    ]
    if len(ordered) > _MAX_ROWS:
        rest = sum(seconds for _, seconds in ordered[_MAX_ROWS:])
        rows.append([f"{len(ordered) - _MAX_ROWS} more", duration(rest), percent(rest / whole), ""])
    heading = element("h3", "Transforms")
    return join(
        heading,
        table(["Transform", "A sample", "Share", ""], rows, caption=f"Cost of {len(transforms)} transforms"),
    )


def _trials(record: Record) -> Html:
    rows: list[list[Child]] = [
        [
            trial.loader,
            duration(trial.seconds_per_sample),
            percent(trial.cpu_s_per_sample / trial.seconds_per_sample)
            if trial.seconds_per_sample
            else NOTHING,
            f"± {percent(trial.spread)}",
            duration(trial.collate_s_per_batch),
            NOTHING if trial.transfer_s_per_batch is None else duration(trial.transfer_s_per_batch),
            size(trial.bytes_per_sample),
            {True: "yes", False: "no", None: "unknown"}[trial.is_deterministic],
        ]
        for trial in record.trials
    ]
    headings: list[Child] = [
        "Loader",
        "A sample",
        "On a core",
        "Spread",
        "Collate",
        "Transfer",
        "Size",
        "Repeatable",
    ]
    caption = "Samples made again, alone in the main process"
    return join(element("h3", "A sample by itself"), table(headings, rows, caption=caption))


def _workers(record: Record) -> Html:
    by_worker: dict[tuple[str, int], list[Batch]] = {}
    for batch in record.batches:
        by_worker.setdefault((batch.loader, -1 if batch.worker is None else batch.worker), []).append(batch)
    rows: list[list[Child]] = []
    for (loader, worker), batches in sorted(by_worker.items())[: 4 * _MAX_ROWS]:
        begin, end = min(batch.begin_s for batch in batches), max(batch.end_s for batch in batches)
        busy = sum(batch.end_s - batch.begin_s for batch in batches)
        fetch = sum(batch.fetch_s for batch in batches)
        queued = sum(batch.queued_s or 0.0 for batch in batches)
        off_core = max(0.0, fetch - sum(batch.fetch_cpu_s for batch in batches) - queued)
        rows.append(
            [
                f"{loader} · {'in the loop' if worker < 0 else f'worker {worker}'}",
                count(len(batches)),
                duration(fmean(batch.end_s - batch.begin_s for batch in batches)),
                duration(fetch / len(batches)),
                percent(off_core / fetch) if fetch else NOTHING,
                percent(queued / busy) if busy and with_queues(batches) else NOTHING,
                duration(fmean(batch.collate_s for batch in batches)),
                # of the loop's own batches, not all may have been looked into
                percent(min(1.0, busy / (end - begin))) if end > begin and worker >= 0 else NOTHING,
            ]
        )
    headings: list[Child] = ["Worker", "Batches", "A batch", "Fetch", "Waiting", "No core", "Collate", "Busy"]
    said = (
        "Waiting: the share of fetching in which it waited for files or locks. No core: the share of its "
        "work in which it was ready to run, but others had the cores; if not known, it is in Waiting."
    )
    return join(
        element("h3", "Workers"),
        table(headings, rows, caption="What each worker did"),
        element("p", said, class_="quiet"),
    )


def _shares(shares: Mapping[str, float], *, heading: str, caption: str) -> Html | None:
    if not shares:
        return None
    most = max(shares.values()) or 1.0
    ordered = sorted(shares.items(), key=lambda item: -item[1])[:_MAX_ROWS]
    rows: list[list[Child]] = [
        [element("code", name), count(number), share_bar(number / most, kind="cause")]
        for name, number in ordered
    ]
    return table([heading, "A step", ""], rows, caption=caption)


def _settings(loader: Loader) -> dict[str, Child]:
    def said(value: object) -> str:
        return NOTHING if value is None else str(value)

    return {
        "data set": loader.dataset + (" (iterable)" if loader.is_iterable else ""),
        "samples": "unknown" if loader.num_samples is None else count(loader.num_samples),
        "batches": "unknown" if loader.num_batches is None else count(loader.num_batches),
        "epochs seen": str(loader.num_epochs),
        "batch_size": said(loader.batch_size),
        "num_workers": said(loader.num_workers),
        "prefetch_factor": said(loader.prefetch_factor),
        "persistent_workers": said(loader.persistent_workers),
        "pin_memory": said(loader.pin_memory),
        "in_order": said(loader.in_order),
        "shuffle": said(loader.shuffles),
        "drop_last": said(loader.drop_last),
        "collate_fn": loader.collate,
        "start method": loader.start_method,
    }


def _pairs(pairs: Mapping[str, Child]) -> Html:
    return element(
        "dl",
        *(element("div", element("dt", key), element("dd", value)) for key, value in pairs.items()),
        class_="pairs",
    )
