"""The trainer's pure parts, and those that wrap a model."""

import io
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from stoker.errors import DeviceMemoryError, UsageError
from stoker.train import (
    CsvLog,
    JsonLog,
    Supervised,
    Trainer,
    classification_metrics,
    find_batch_size,
    warmup_cosine,
)
from stoker.train._compiled import CompileGuard
from stoker.train._judge import Judge, is_higher_better
from stoker.train._measures import Measures, read_values
from stoker.train._memory import peak_memory_bytes
from stoker.train._progress import Display
from stoker.train._signals import StopSignals
from stoker.train._timing import StepTimes
from stoker.train._window import Window

CPU = torch.device("cpu")


def test_the_learning_rate_rises_in_a_line_and_falls_as_a_cosine() -> None:
    def factor(update: int) -> float:
        return warmup_cosine(update, num_warmup=4, num_updates=24, floor=0.1)

    assert [factor(update) for update in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert factor(14) == pytest.approx(0.55)
    assert factor(24) == factor(99) == pytest.approx(0.1)
    falls = [factor(update) for update in range(4, 25)]
    assert falls == sorted(falls, reverse=True)
    assert warmup_cosine(0, num_warmup=0, num_updates=1) == 1


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 3))
def test_a_window_weighs_every_sample_alike(sizes: list[int], missing: int) -> None:
    window = Window(len(sizes) + missing)
    weights = [window.weigh(size, size, 1) for size in sizes]
    assert window.is_full == (missing == 0)
    factor = window.close()
    for size, weight in zip(sizes, weights, strict=True):
        assert factor * weight / size == pytest.approx(1 / sum(sizes))
    assert window.count == 0


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3).filter(any), min_size=1, max_size=4))
def test_over_ranks_too(steps: list[list[int]]) -> None:
    windows = [Window(len(steps)) for _ in range(3)]
    weights = [
        [window.weigh(own, sum(sizes), 3) for window, own in zip(windows, sizes, strict=True)]
        for sizes in steps
    ]
    total = sum(map(sum, steps))
    for rank, window in enumerate(windows):
        factor = window.close()
        for sizes, by_rank in zip(steps, weights, strict=True):
            assert factor * by_rank[rank] / 3 == pytest.approx(sizes[rank] / total)


def test_the_judge_never_takes_what_is_no_number() -> None:
    judge = Judge(higher=True, patience=2, min_delta=0)
    assert [judge.is_improvement(value, epoch) for epoch, value in enumerate([math.nan, 1, 1, 2])] == [
        *(False, True, False, True),
    ]
    assert not judge.has_enough
    again = Judge(higher=True, patience=2, min_delta=0)
    again.load_state(judge.state())
    again.is_improvement(2, 4)
    again.is_improvement(0, 5)
    assert again.has_enough
    assert (again.best_value, again.best_epoch) == (2, 3)


def test_a_metric_says_what_is_better_or_its_name_or_the_user() -> None:
    assert is_higher_better("WER", "max", said=False)
    assert not is_higher_better("accuracy", "auto", said=False)
    assert is_higher_better("f1/2", "auto", None)
    assert is_higher_better("murmur/auroc", "auto", None)
    assert is_higher_better("f_score", "auto", None)
    assert not is_higher_better("rmse", "auto", None)
    with pytest.raises(UsageError, match="mode must be"):
        is_higher_better("loss", "best", None)


@pytest.mark.parametrize("room", [*range(1, 40), 100, 128, 1000])
def test_the_largest_size_is_found_in_few_trials(room: int) -> None:
    tried = []

    def fits(size: int) -> None:
        tried.append(size)
        if size > room:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    assert find_batch_size(fits, maximum=200) == min(room, 200)
    assert len(tried) <= 2 * math.log2(min(room, 200)) + 3
    if room >= 8:
        assert find_batch_size(fits, start=8, divisor=8, maximum=200) == min(room, 200) // 8 * 8


def test_nothing_fits_and_other_errors() -> None:
    def never(size: int) -> None:
        raise torch.OutOfMemoryError(str(size))

    with pytest.raises(DeviceMemoryError, match="not even a batch of 4 fits"):
        find_batch_size(never, start=4)
    with pytest.raises(ZeroDivisionError):
        find_batch_size(lambda size: size / 0)
    with pytest.raises(UsageError, match="start a multiple of divisor"):
        find_batch_size(never, start=4, divisor=3)


def test_a_second_press_stops_at_once_and_the_same_press_twice_does_not() -> None:
    now = [10.0]
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with StopSignals(clock=lambda: now[0]) as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.requested == signal.SIGINT
        now[0] += 0.1
        signal.raise_signal(signal.SIGINT)  # a launcher passes it on
        signal.raise_signal(signal.SIGTERM)
        now[0] += 1
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert {number: signal.getsignal(number) for number in before} == before


def test_signals_that_are_ignored_stay_so_and_other_threads_touch_none() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    seen = []

    def enter() -> None:
        with StopSignals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_a_forked_process_can_be_ended_and_outlives_a_ctrl_c() -> None:
    def wait() -> None:
        ready.set()
        while True:
            signal.pause()

    context = multiprocessing.get_context("fork")
    ready = context.Event()
    with StopSignals() as stop:
        child = context.Process(target=wait)
        child.start()
        assert child.pid is not None
        ready.wait()  # Python forgets signals that come while a process is being forked
        os.kill(child.pid, signal.SIGINT)
        child.terminate()
        child.join()
        assert child.exitcode == -signal.SIGTERM
        assert stop.requested == 0


def test_peak_memory_is_that_of_the_process_itself() -> None:
    before = peak_memory_bytes(CPU)
    taken = torch.ones(before // 4 + (16 << 20))  # as much again and 64 MiB
    assert peak_memory_bytes(CPU) >= before + (32 << 20)
    del taken


def test_times_are_shares_of_the_whole() -> None:
    times = StepTimes(data_s=1, copy_s=2, total_s=10, num_samples=50, num_steps=5)
    assert times.summary() == {
        "samples_per_s": 5,
        "data_wait_fraction": 0.1,
        "copy_fraction": 0.2,
        "compute_fraction": pytest.approx(0.7),
    }
    assert times.plus(times).since(times) == times == StepTimes.from_state(times.state())
    assert set(StepTimes().summary().values()) == {0}


def test_without_a_terminal_progress_is_a_line_now_and_then() -> None:
    now = [0.0]
    stream = io.StringIO()
    with Display(stream, clock=lambda: now[0]) as display:
        display.begin(100, 300)  # it goes on after 100
        for step in range(101, 151):
            now[0] += 0.5
            display.update(step, "loss 1")
        display.line("epoch 1")
    assert stream.getvalue().splitlines() == [
        "step 120 of 300: loss 1, 90 s left",
        "step 140 of 300: loss 1, 80 s left",
        "epoch 1",
    ]


def test_in_a_terminal_it_is_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with Display(stream) as display:
        display.begin(0, 10)
        display.update(5, "50 samples/s")
        display.line("epoch 1")
    assert "epoch 1" in stream.getvalue()
    assert "50 samples/s" in stream.getvalue()


def test_a_log_that_goes_on_drops_what_came_after(tmp_path: Path) -> None:
    rows = [
        {"kind": "interval", "epoch": 0, "step": 2, "loss": math.nan},
        {"kind": "epoch", "epoch": 0, "step": 3, "loss": 2.0},
        {"kind": "interval", "epoch": 1, "step": 4, "loss": 3.0},
        {"kind": "epoch", "epoch": 1, "step": 6, "loss": 4.0},
    ]
    for log in (JsonLog(tmp_path / "a.jsonl"), CsvLog(tmp_path / "a.csv")):
        log.begin(0, 0)
        for row in rows:
            log.write(row)
        log.close()
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"kind": "inte')  # killed here
    again = JsonLog(tmp_path / "a.jsonl")
    again.begin(6, 1)  # all steps of epoch 1 are done, its evaluation is not
    again.write(rows[3])
    again.close()
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert lines[0] == '{"kind": "interval", "epoch": 0, "step": 2, "loss": null}'
    assert len(lines) == 4
    table = CsvLog(tmp_path / "a.csv")
    table.begin(4, 1)
    table.write({**rows[3], "new": 1})
    assert (tmp_path / "a.csv").read_text() == "epoch,step,loss,new\n0,3,2.0,\n1,6,4.0,1\n"


def test_values_of_every_form_of_metrics_are_read_by_name() -> None:
    import torchmetrics

    def mae() -> Any:
        return torchmetrics.MeanAbsoluteError()

    target, prediction = torch.zeros(4), torch.tensor([1.0, 2.0, 3.0, 4.0])
    forms = {
        "MeanAbsoluteError": mae(),
        "a": {"a": mae()},
        "b": torchmetrics.MetricCollection({"b": mae(), "mse": torchmetrics.MeanSquaredError()}),
    }
    for name, metrics in forms.items():
        measures = Measures(metrics, CPU)
        measures.update(prediction, target)
        assert read_values(measures.compute())[name] == 2.5
        assert measures.higher_is_better(name) is False
        fresh = Measures(metrics.clone() if hasattr(metrics, "clone") else {"a": mae()}, CPU)
        fresh.reset()
        fresh.load_state(measures.state())
        fresh.update(prediction + 1, target)
        assert read_values(fresh.compute())[name] == 3.0
    assert not Measures(None, CPU)
    with pytest.raises(UsageError, match="got list; give several as a dict"):
        Measures([mae()], CPU)
    assert read_values({"v": torch.tensor([1.0, 2.0]), "n": 3}) == {"v": [1.0, 2.0], "n": 3.0}
    with pytest.raises(UsageError, match="update, compute and reset"):
        Measures({"a": len}, CPU)


def test_one_metric_of_many_values_has_their_names_and_several_stay_apart() -> None:
    import torchmetrics

    target, logits = torch.tensor([0, 1, 1, 0]), torch.tensor([-1.0, 2.0, -3.0, -4.0])

    def errors() -> Any:
        return torchmetrics.MetricCollection({"mae": torchmetrics.MeanAbsoluteError()})

    def computed(metrics: Any) -> dict[str, Any]:
        measures = Measures(metrics, CPU)
        measures.update(logits, target)
        resumed = Measures(metrics, CPU)
        state = measures.state()
        resumed.reset()
        resumed.load_state(state)
        assert read_values(resumed.compute()) == read_values(measures.compute())
        return read_values(measures.compute())

    assert computed(classification_metrics(2))["accuracy"] == 0.75
    named = computed(
        {"murmur": classification_metrics(2), "strict": classification_metrics(2, threshold=0.95)}
    )
    assert (named["murmur/accuracy"], named["strict/accuracy"]) == (0.75, 0.5)
    several = {"plain": errors(), "doubled": errors()}
    apart = Measures(several, CPU)
    assert apart.state().keys() == {"plain/mae", "doubled/mae"}
    assert apart.higher_is_better("doubled/mae") is False
    assert computed(several).keys() == {"plain/mae", "doubled/mae"}
    mae = torchmetrics.MeanAbsoluteError
    for same in ({"": classification_metrics(2), "accuracy": mae()}, {"loss": mae()}):
        with pytest.raises(UsageError, match="a metric's name must be its own"):
            computed(same)


@pytest.fixture
def _fresh_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if find_spec("tqdm"):  # the compiler shows its progress with it
        monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # else a thread of it would outlive the test
    torch._dynamo.reset()
    with torch._inductor.config.patch(compile_threads=1):  # likewise
        yield
    torch._dynamo.reset()


def _trained(compile_mode: Any) -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
    x = torch.randn(64, 4)
    data = [{"x": part, "y": part.sum(1, keepdim=True)} for part in torch.split(x, 16)]
    trainer = Trainer(
        model,
        Supervised(nn.MSELoss()),
        compile=compile_mode,
        device="cpu",
        progress=False,
        optimizer=lambda weights: torch.optim.SGD(weights, lr=0.05),
    )
    trainer.fit(data, epochs=3)
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")  # the compiler's own
@pytest.mark.usefixtures("_fresh_compiler")
def test_a_compiled_model_learns_what_the_plain_one_does() -> None:
    torch.testing.assert_close(_trained("default"), _trained("off"), rtol=1e-5, atol=1e-6)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
@pytest.mark.usefixtures("_fresh_compiler")
def test_a_compile_that_fails_falls_back_and_says_why_once() -> None:
    with (
        torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",), "fx_graph_cache": False}),
        pytest.warns(UserWarning, match="torch.compile failed, the model runs uncompiled: .*") as said,
    ):
        found = _trained("default")
    assert len([each for each in said if "torch.compile failed" in str(each.message)]) == 1
    torch.testing.assert_close(found, _trained("off"), rtol=0, atol=0)


def test_a_guarded_model_has_the_attributes_and_the_mode_of_its_model() -> None:
    model = nn.Linear(4, 1)
    guarded = CompileGuard("default").wrap(model)
    assert guarded is not model
    assert guarded.weight is model.weight
    model.eval()
    assert not guarded.training
    guarded.train()
    assert model.training
    assert CompileGuard("off").wrap(model) is model


def test_a_mistake_in_a_compiled_model_is_the_models_own() -> None:
    model = nn.Linear(4, 1)
    trainer = Trainer(model, Supervised(nn.MSELoss()), compile="default", device="cpu", progress=False)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        trainer.fit([{"x": torch.ones(2, 3), "y": torch.ones(2, 1)}], epochs=1)
    torch._dynamo.reset()
