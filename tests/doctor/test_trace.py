import json
from itertools import groupby
from typing import Any

import pytest

from doctor.example_records import EXAMPLES, hostile, input_bound, python_bound
from stoker.doctor._record import Record
from stoker.doctor.report import trace_events
from stoker.doctor.report._trace import LOOP, OWN_BATCHES, STAGE_ROW, STEPS, WAITS, trace_chunks


def spans(record: Record, process: int | None = None, row: int | None = None) -> list[dict[str, Any]]:
    return [
        event
        for event in trace_events(record)
        if event["ph"] == "X"
        and (process is None or event["pid"] == process)
        and (row is None or event["tid"] == row)
    ]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_file_holds_the_events_as_json(name: str) -> None:
    record = EXAMPLES[name]().record
    read = json.loads("".join(trace_chunks(record)))
    assert read["traceEvents"] == json.loads(json.dumps(list(trace_events(record))))
    assert read["displayTimeUnit"] == "ms"


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_span_lies_in_a_named_row_and_none_is_negative(name: str) -> None:
    record = EXAMPLES[name]().record
    events = list(trace_events(record))
    rows = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    for event in spans(record):
        assert event["dur"] >= 0
        assert event["ts"] >= 0
        assert (event["pid"], event["tid"]) in rows


def test_steps_are_there_with_their_stages_inside() -> None:
    record = input_bound().record
    steps, stages = spans(record, LOOP, STEPS), spans(record, LOOP, STAGE_ROW)
    assert len(steps) == len(record.steps)
    for step, recorded in zip(steps, record.steps, strict=True):
        inside = [
            stage
            for stage in stages
            if step["ts"] <= stage["ts"] + 0.01
            and stage["ts"] + stage["dur"] <= step["ts"] + step["dur"] + 0.01
        ]
        assert len(inside) == len(recorded.stages)
        assert sum(stage["dur"] for stage in inside) == pytest.approx(step["dur"], abs=0.1)


def test_each_worker_is_a_thread_whose_spans_nest() -> None:
    record = input_bound().record
    events = list(trace_events(record))
    names = {
        event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] > LOOP
    }
    assert names == {"worker 0", "worker 1"}
    in_workers = [event for event in spans(record) if event["pid"] > LOOP]
    for _, batch in groupby(in_workers, key=lambda event: event["name"] == "batch"):
        assert list(batch)
    batches = [event for event in in_workers if event["name"].startswith("batch ")]
    assert len(batches) == len(record.batches)
    assert batches[0]["args"]["transforms_ms"].keys() == {
        "RandomElastic",
        "RandomCrop",
        "ColorJitter",
        "ToTensor",
    }


def test_arrows_lead_from_a_batch_to_where_it_was_taken() -> None:
    events = list(trace_events(input_bound().record))
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert starts
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
        assert (ends[number]["pid"], ends[number]["tid"]) == (LOOP, WAITS)


def test_batches_made_in_the_loop_lie_in_the_loop() -> None:
    record = python_bound().record
    made = [event for event in spans(record, LOOP, OWN_BATCHES) if event["name"].startswith("batch ")]
    assert len(made) == len(record.batches)


def test_memory_and_cores_are_counters() -> None:
    record = input_bound().record
    counters = [event for event in trace_events(record) if event["ph"] == "C"]
    assert {event["name"] for event in counters} == {"memory (bytes)", "cores in use", "use of each core"}
    first = next(event for event in counters if event["name"] == "memory (bytes)")
    assert sum(first["args"].values()) == record.moments[0].memory_bytes


def test_any_name_survives() -> None:
    record = hostile().record
    read = json.loads("".join(trace_chunks(record)))
    assert any("onerror" in str(event["args"]) for event in read["traceEvents"] if "args" in event)
