import ast
import os
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from stoker.doctor._record import Line, Stage
from stoker.doctor.sampling import _frames
from stoker.doctor.sampling._sampler import StackSampler

ROOT = str(Path(__file__).parent)


def spend(seconds: float) -> float:
    """Keep the processor busy in Python for so long, by the thread's own clock."""
    until, total = time.thread_time() + seconds, 0.0
    while time.thread_time() < until:
        total += 1.0
    return total


def sampled(body: object, *, stage: Stage | None = "other", interval_s: float = 0.001) -> list[Line]:
    sampler = StackSampler(interval_s=interval_s, stage=lambda: stage, user_root=ROOT)
    assert sampler.start()
    body()  # type: ignore[operator]
    return sampler.stop()


def share(lines: list[Line], function: str) -> float:
    total = sum(line.seconds for line in lines)
    return sum(line.seconds for line in lines if line.place.function == function) / total


def test_python_is_blamed_and_not_the_operator_after_it() -> None:
    """A thread that samples sees the main thread only where it lets go of the interpreter's lock."""
    weights = torch.rand(64, 64)

    def body() -> None:
        for _ in range(60):
            spend(0.003)
            torch.mm(weights, weights)

    lines = sampled(body)
    assert share(lines, "spend") > 0.8
    assert all(line.stage == "other" and line.process == "loop" for line in lines)


def test_an_operator_is_blamed_and_not_the_call_after_it() -> None:
    """The interpreter looks for signals at calls only: there the operator's time is over."""
    images, mean = np.ones(3_000_000), np.ones(3_000_000)

    def model(inputs: object) -> object:
        return inputs

    def body() -> None:
        for _ in range(20):
            inputs = (images - mean) / mean
            model(inputs)

    lines = sampled(body)
    total = sum(line.seconds for line in lines)
    (operator,) = [line for line in lines if line.place.text == "inputs = (images - mean) / mean"]
    assert operator.seconds > 0.8 * total
    assert operator.callee == ""


def test_times_add_up_to_what_has_passed() -> None:
    begin = time.perf_counter()
    lines = sampled(lambda: spend(0.2), interval_s=0.002)
    passed = time.perf_counter() - begin
    assert 0.7 * 0.2 < sum(line.seconds for line in lines) <= passed
    assert all(line.num_samples == max(1, round(line.seconds / 0.002)) for line in lines)


def test_a_call_into_a_library_is_named_by_its_public_path() -> None:
    def body() -> None:
        until = time.thread_time() + 0.15
        while time.thread_time() < until:
            statistics.quantiles(range(2000), n=10)

    (top, *_) = sampled(body)
    assert top.callee == "statistics.quantiles"
    assert "statistics.quantiles(range(2000)" in top.place.text
    assert top.place.file == __file__


def test_a_function_written_in_c_is_named_as_it_is_written() -> None:
    values = np.random.default_rng(0).random(200_000)

    def body() -> None:
        until = time.thread_time() + 0.15
        while time.thread_time() < until:
            values.argsort()

    (top, *_) = sampled(body)
    assert top.callee == "values.argsort"


def test_the_module_whose_forward_the_line_is_in_is_named() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            spend(0.1)
            return x

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            spend(0.05)
            result: torch.Tensor = self.inner(x)
            return result

    outer = Outer()
    lines = sampled(lambda: outer(torch.ones(1)), stage="forward")
    seconds: dict[str, float] = {}
    for line in lines:
        seconds[line.module] = seconds.get(line.module, 0.0) + line.seconds
    assert seconds["Inner"] > seconds["Outer"] > 0
    assert seconds["Inner"] > 0.5 * sum(seconds.values())


def test_a_generator_that_the_training_loop_waits_for_is_in_its_header() -> None:
    stage: list[Stage] = ["other"]

    def batches() -> Iterator[int]:
        for number in range(6):
            spend(0.02)
            yield number

    def metrics() -> None:
        for _ in batches_of_metrics():
            pass

    def batches_of_metrics() -> Iterator[int]:
        spend(0.02)
        yield 0

    def train() -> None:
        for _ in batches():
            stage[0] = "forward"
            spend(0.02)
            stage[0] = "other"
            metrics()

    sampler = StackSampler(interval_s=0.001, stage=lambda: stage[0], user_root=ROOT)
    assert sampler.start()
    train()
    lines = sampler.stop()
    other = [line for line in lines if line.stage == "other"]
    in_header = sum(line.seconds for line in other if line.in_loop_header)
    assert 0.3 < in_header / sum(line.seconds for line in other) < 0.7  # batches, not metrics
    assert not any(line.in_loop_header for line in lines if line.stage == "forward")


def test_while_it_pauses_nothing_is_counted() -> None:
    sampler = StackSampler(interval_s=0.001, stage=lambda: None, user_root=ROOT)
    assert sampler.start()
    sampler.pause()
    spend(0.05)
    sampler.resume()
    assert sampler.stop() == []


def test_only_code_under_the_root_is_the_users(tmp_path: Path) -> None:
    sampler = StackSampler(interval_s=0.001, stage=lambda: None, user_root=str(tmp_path))
    assert sampler.start()
    spend(0.03)
    assert sampler.stop() == []


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("/home/me/project/train.py", "user"),
        ("/home/me/elsewhere/train.py", "library"),
        ("/home/me/project/.venv/lib/python3.11/site-packages/torch/nn/functional.py", "library"),
        (os.__file__, "library"),
        ("<frozen runpy>", "library"),
        (_frames.__file__, "stoker"),
        ("train.py", "user"),
    ],
)
def test_files_have_owners(file: str, owner: str) -> None:
    assert _frames.owner_of(file, user_root="/home/me/project") == owner


def test_it_refuses_where_it_can_not_work() -> None:
    def sampler() -> StackSampler:
        return StackSampler(stage=lambda: None, user_root=ROOT)

    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(sampler().start()))
    thread.start()
    thread.join()
    assert answers == [False]  # not in the main thread
    before = signal.signal(signal.SIGURG, lambda *_: None)
    try:
        assert not sampler().start()  # somebody uses the signal
    finally:
        signal.signal(signal.SIGURG, before)


def test_afterwards_the_signal_is_as_before_and_sleep_is_not_cut_short() -> None:
    before = signal.getsignal(signal.SIGURG)
    begin = time.monotonic()
    sampled(lambda: threading.Event().wait(0.05))
    assert time.monotonic() - begin >= 0.05
    assert signal.getsignal(signal.SIGURG) == before


def test_loops_of_a_file_are_found(tmp_path: Path) -> None:
    file = tmp_path / "loops.py"
    file.write_text("for a in (\n    1,\n):\n    for b in a: pass\n    print(a)\nx = [c for c in 'abc']\n")
    assert ast.parse(file.read_text())
    assert _frames.for_statements(str(file)) == ((range(1, 4), range(4, 6)),)
    assert _frames.for_statements(str(tmp_path / "missing.py")) == ()


def test_the_compiler_does_not_meet_the_sampler() -> None:
    import torch._dynamo  # takes seconds

    compiled: list[object] = []

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> object:
        compiled.append(graph)
        return graph.forward

    @torch.compile(backend=backend)
    def step(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()  # so that Python runs between the compiled parts
        return x * 2

    def body() -> None:
        until = time.thread_time() + 0.3
        while time.thread_time() < until:
            step(x)

    x = torch.ones(3)
    step(x)
    before = len(compiled)
    seen = torch._dynamo.utils.counters["frames"].copy()
    assert sampled(body, interval_s=0.0005)
    assert len(compiled) == before == 2
    assert torch._dynamo.utils.counters["frames"] == seen
