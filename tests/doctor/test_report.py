import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from statistics import median
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.example_records import (
    EXAMPLES,
    HOSTILE,
    Example,
    Shape,
    compute_bound,
    hostile,
    input_bound,
    long_run,
    nothing_observed,
    python_bound,
    run_of,
)
from stoker.doctor._diagnosis import Interval
from stoker.doctor._record import Pause, Phase, Record, Step
from stoker.doctor._words import count, duration, percent, size, times, times_range
from stoker.doctor.report import render_page, write_report
from stoker.doctor.report._markup import Html, element, join
from stoker.doctor.report._over_time import (
    MAX_BATCH_GROUPS,
    MAX_MOMENTS,
    MAX_STEP_GROUPS,
    MAX_WAITS,
    group_steps,
    over_time,
    stalled,
)
from stoker.doctor.report._words import place_name, plain


class Reader(HTMLParser):
    """What a browser would make of the page: its elements, and its text outside of script and style."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._open = "" if tag == self._open else self._open

    def handle_data(self, data: str) -> None:
        if self._open in self.raw:
            self.raw[self._open].append(data)
        else:
            self.text += data


def page_of(example: Example) -> str:
    return render_page(example.record, example.diagnosis, comparison=example.comparison)


@pytest.fixture(scope="module", params=sorted(EXAMPLES))
def page(request: pytest.FixtureRequest) -> str:
    return page_of(EXAMPLES[request.param]())


def test_the_page_refers_to_nothing_outside_of_itself(page: str) -> None:
    for tag, attributes in Reader(page).elements:
        for name, value in attributes.items():
            assert name not in {"src", "srcset", "action", "style"}, f"{tag} {name}"
            assert not name.startswith("on"), f"{tag} {name}"
            if name == "href":
                assert (value or "").startswith(("#", "data:"))


def test_the_policy_allows_the_one_style_and_the_one_script_only(page: str) -> None:
    read = Reader(page)
    policy = next(a["content"] for _, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for kind in ("style", "script"):
        digest = b64encode(sha256(read.raw[kind][0].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_every_menu_entry_leads_to_a_part_of_the_page(page: str) -> None:
    elements = Reader(page).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [str(a["href"])[1:] for tag, a in elements if tag == "a"]
    assert set(targets) <= set(ids)


def test_hostile_strings_stay_text() -> None:
    read = Reader(page_of(hostile()))
    tags = [tag for tag, _ in read.elements]
    assert tags.count("script") == 2
    assert "img" not in tags
    assert "<img src=x onerror=alert(2)>" in read.text
    assert "\x1b" not in read.text
    assert "\u202e" not in read.text
    data = json.loads(read.raw["script"][1])
    assert data["lanes"][0]["loader"] == HOSTILE + "train"


def test_the_page_says_the_answer_and_its_figures() -> None:
    example = input_bound()
    text = Reader(page_of(example)).text
    for said in (
        example.diagnosis.sentence,
        "93 % sure",
        "41.2 ms",
        "388 /s",
        times(3.46),
        "12.3 µs",
        "augment.py:41",
        "Give the training loader 7 workers",
        times_range(Interval(2.74, 2.41, 2.93)),
        "1.4 GB more memory",
        "changes training",
        "stoker fix applies it",
        "num_workers=7, persistent_workers=True",
        "as predicted",
        "RandomElastic",
        "not observed: no augmentation ran on the device",
        "The first 10 steps are warm-up and count for nothing.",
        "persistent_workers",
        "2.13.0",
    ):
        assert said in text, said
    assert "/home/ada" not in text


def test_a_patch_can_be_copied_as_it_is() -> None:
    example = input_bound()
    page = page_of(example)
    shown = re.search(r'<pre id="patch-1"[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert shown is not None
    assert Reader(f"<pre>{shown[1]}</pre>").text == example.diagnosis.advice[0].patch


def test_what_was_not_observed_is_never_shown_as_zero() -> None:
    text = Reader(page_of(python_bound())).text
    assert "not observed: the run stays on the CPU" in text
    assert "Not measured: the loader is a generator, so its batches could not be kept" in text
    assert "not replayed" in text


def test_a_run_without_steps_shows_only_what_there_is() -> None:
    read = Reader(page_of(nothing_observed()))
    ids = {attributes.get("id") for _, attributes in read.elements}
    assert {"verdict", "notes", "machine"} <= ids
    assert not {"stages", "ceiling", "advice", "run"} & ids
    assert "no optimizer step was taken" in read.text


def test_a_compute_bound_run_is_left_alone() -> None:
    assert "Leave the loader alone" in Reader(page_of(compute_bound())).text


def test_a_result_outside_the_prediction_says_so() -> None:
    record, diagnosis, comparison = input_bound()
    assert comparison is not None
    missed = replace(comparison, achieved=Interval(1.1, 1.05, 1.15))
    text = Reader(render_page(record, diagnosis, comparison=missed)).text
    assert "outside the predicted range" in text


def test_a_long_run_stays_small_and_keeps_its_extremes() -> None:
    example = long_run()
    assert len(example.record.batches) > 50_000
    page = page_of(example)
    assert len(page.encode()) < 3_000_000
    data = json.loads(Reader(page).raw["script"][1])
    lengths = [round(step.seconds * 1e6) for step in example.record.steps]
    assert max(data["steps"]["longest"]) == max(lengths)
    assert min(data["steps"]["shortest"]) == min(lengths)
    assert sum(data["steps"]["count"]) == len(lengths)
    assert sum(sum(lane["count"]) for lane in data["lanes"]) == len(example.record.batches)
    moments = example.record.moments
    assert len(data["moments"]["time"]) <= MAX_MOMENTS
    assert max(data["moments"]["high"]) == max(moment.memory_bytes for moment in moments)
    assert min(data["moments"]["low"]) == min(moment.memory_bytes for moment in moments)
    assert len(data["waits"]["begin"]) == MAX_WAITS
    assert sum(len(lane["count"]) for lane in data["lanes"]) <= MAX_BATCH_GROUPS + len(data["lanes"])
    assert len(data["steps"]["count"]) <= MAX_STEP_GROUPS + len(example.record.pauses) + 4


def test_a_short_run_is_shown_step_by_step() -> None:
    record = input_bound().record
    data = over_time(record)
    assert data["steps"]["count"] == [1] * len(record.steps)
    stalls = set(data["steps"]["stalls"])
    usual = median(step.seconds for step in record.in_phase("normal"))
    assert stalls == stalled(record.steps)
    assert all(record.steps[index].seconds > 2 * usual for index in stalls)
    assert len(stalls) == 3


PHASES: list[Phase] = ["warmup", "normal", "host", "device"]


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Step], list[Pause]]:
    steps, pauses, now = [], [], 0.0
    for phase in sorted(draw(st.lists(st.sampled_from(PHASES), max_size=120)), key=PHASES.index):
        if draw(st.integers(0, 9)) == 0:
            pauses.append(Pause("other", now, now + 0.1, None))
            now += 0.1
        length = draw(st.floats(0.001, 2.0))
        steps.append(Step(phase, now, now + length, {"other": length}, 1, 1, None, (), 0.0))
        now += length
    return steps, pauses


@given(runs(), st.integers(1, 50))
def test_groups_of_steps_are_all_steps_in_order_and_cross_no_border(
    run: tuple[list[Step], list[Pause]], limit: int
) -> None:
    steps, pauses = run
    groups = group_steps(steps, pauses, limit=limit)
    assert [index for group in groups for index in group] == list(range(len(steps)))
    assert all(len(group) for group in groups)
    assert len(groups) <= limit + len(pauses) + len(PHASES)
    for group in groups:
        assert len({steps[index].phase for index in group}) == 1
        begin, end = steps[group.start].begin_s, steps[group.stop - 1].end_s
        assert not [pause for pause in pauses if begin < pause.begin_s and pause.end_s < end]


@given(st.text())
def test_text_comes_back_as_it_went_in(text: str) -> None:
    read = Reader(element("p", text, title=text))
    shown = plain(text, keep="\n\t\f")
    assert read.text == shown
    assert read.elements[0][1]["title"] == text.replace("\r\n", "\n") or "\r" in text or "\0" in text


def test_finished_markup_is_not_escaped_again() -> None:
    assert join("<", element("b", "x"), None, Html("&amp;")) == "&lt;<b>x</b>&amp;"


def test_a_report_is_three_files_and_nothing_else(tmp_path: Path) -> None:
    record, diagnosis, comparison = input_bound()
    folder = tmp_path / "a" / "report"
    paths = write_report(folder, record, diagnosis, comparison=comparison)
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json", "trace.json"]
    assert json.loads(paths.json.read_text())["verdict"] == "input-bound"
    assert json.loads(paths.trace.read_text())["traceEvents"]
    assert paths.html.read_text().startswith("<!doctype html>")
    assert paths.html.stat().st_mode & 0o044 == tmp_path.joinpath("a").stat().st_mode & 0o044


def test_a_report_that_fails_leaves_the_earlier_one_whole(tmp_path: Path) -> None:
    record, diagnosis, _ = input_bound()
    paths = write_report(tmp_path, record, diagnosis)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    broken = replace(record, moments=[*record.moments, cast(object, None)])  # type: ignore[list-item]
    with pytest.raises(AttributeError):
        write_report(tmp_path, broken, diagnosis)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert paths.html.exists()


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 ms"),
        (12.3e-6, "12.3 µs"),
        (0.0009996, "1.00 ms"),
        (0.0412, "41.2 ms"),
        (0.9996, "1.00 s"),
        (61.25, "61.2 s"),
        (99.96, "1 min 40 s"),
        (3723.0, "62 min 03 s"),
        (float("nan"), "unknown"),
    ],
)
def test_durations_read_well(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_figures_read_well() -> None:
    assert [percent(share) for share in (0, 0.00001, 0.0003, 0.027, 0.711, 1.0)] == [
        "0 %", "< 0.01 %", "0.03 %", "2.7 %", "71 %", "100 %",
    ]  # fmt: skip
    assert [size(number) for number in (0, 999, 1_420_000_000)] == ["0 B", "999 B", "1.4 GB"]
    assert [times(speedup) for speedup in (1.0, 2.741, 31.2)] == ["1.00×", "2.74×", "31×"]  # noqa: RUF001
    assert [count(number) for number in (4, 82.94, 10_482.0)] == ["4", "82.9", "10,482"]


def test_a_place_is_counted_from_the_users_own_folder() -> None:
    record = run_of(Shape({"wait": 0.1, "forward": 0.1}, {}, num_steps=1, num_replayed=0))
    loader = record.loaders[0]
    assert loader.made_at is not None
    assert place_name(loader.made_at, record) == "train.py:88"
    elsewhere = replace(loader.made_at, file="/usr/lib/x.py")
    assert place_name(elsewhere, record) == "/usr/lib/x.py:88"
    assert place_name(elsewhere, Record(command=[], machine=record.machine)) == "/usr/lib/x.py:88"
