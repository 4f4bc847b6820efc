"""Real scripts, measured in this process."""

import gc
import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torch_dataloader
from torch.utils.data._utils import worker

from doctor.loops import FakeClock, write_script
from stoker.doctor import LoaderOverride, Overrides, Record, examine
from stoker.doctor._record import STAGES, Phase, Stage
from stoker.doctor.analysis._lines import split_other

optimizers = importlib.import_module("torch.optim.optimizer")  # the class of that name hides it
clock = FakeClock()
sleep = clock.sleep


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As little noise as can be, the clock within the scripts' reach, and nothing kept alive."""
    monkeypatch.setitem(sys.modules, "known", sys.modules[__name__])
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def examined(folder: Path, body: str, **options: Any) -> Record:
    return examine(write_script(folder, body), **{"steps": 8, "warmup": 4, **options})


def milliseconds(record: Record, phase: Phase = "normal") -> dict[Stage, float]:
    steps = record.in_phase(phase)
    return {
        stage: median(1000 * step.stages[stage] for step in steps if stage in step.stages)
        for stage in STAGES
        if any(stage in step.stages for step in steps)
    }


KNOWN = """
from known import sleep

class Busy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        sleep(5)
        return gradient

class Slow(torch.optim.SGD):
    def step(self, closure=None):
        loss = super().step(closure)
        sleep(2)
        return loss

class Augment(nn.Module):
    def forward(self, x):
        sleep(0.5)
        return x * 2

loader = DataLoader(Rows(sleep=sleep), batch_size=4)
augment, model = Augment(), Net(sleep)
optimizer = Slow(model.parameters(), lr=0.1)
for epoch in range(9):
    for x, y in loader:
        x = Busy.apply(model(augment(x.to(torch.float64).to(torch.float32))))
        loss = nn.functional.cross_entropy(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sleep(1.5)
    raise AssertionError("it should have been stopped")
"""


def test_every_stage_takes_the_time_it_takes(tmp_path: Path) -> None:
    record = examined(tmp_path, KNOWN, clock=clock)
    assert record.ended == "stopped"
    assert record.error is None
    assert len(record.in_phase("normal")) == 8
    assert milliseconds(record) == pytest.approx(
        {
            "wait": 4.0,
            "copy": 0.0,
            "augment": 0.5,
            "forward": 3.0,
            "backward": 5.0,
            "optimizer": 2.0,
            "other": 1.5,
        }
    )
    assert milliseconds(record, "host")["wait"] == 0.0
    assert [step.seconds for step in record.in_phase("host")] == pytest.approx([0.012] * 8)
    assert len(record.in_phase("device")) == 8
    (loader,) = record.loaders
    assert (loader.name, loader.role, loader.num_batches) == ("loader", "train", 100)
    assert loader.made_at is not None
    assert loader.made_at.text.startswith("loader = DataLoader(")
    assert record.not_observed == {}
    assert record.operators is not None
    assert record.trials[0].loader == "loader"


PATCHED = [
    (DataLoader, "__init__"),
    (DataLoader, "__iter__"),
    (torch_dataloader._BaseDataLoaderIter, "__next__"),
    *((torch.Tensor, name) for name in ("to", "cuda", "copy_", "float", "half", "long", "backward", "item")),
    (torch.autograd, "backward"),
    (torch.autograd, "grad"),
    (torch.amp.GradScaler, "step"),
    (nn.Module, "__call__"),
    (nn.Linear, "__call__"),
    (worker, "_worker_loop"),
]


def state_of_torch() -> list[Any]:
    return [
        *((vars(owner).get(name, "absent"), getattr(owner, name)) for owner, name in PATCHED),
        len(optimizers._global_optimizer_pre_hooks),
        len(optimizers._global_optimizer_post_hooks),
        sys.getprofile(),
        sys.argv,
        list(sys.path),
        sys.modules["__main__"],
        Path.cwd(),
        threading.active_count(),
    ]


LINEAR = """
model, loader = nn.Linear(4, 2), DataLoader(Rows(), batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    step(model, optimizer, x.to(torch.float64).float(), y)
"""


@pytest.mark.parametrize("ending", ["", "raise ValueError('no')", "raise KeyboardInterrupt"])
@pytest.mark.parametrize("full", [False, True])
def test_everything_is_as_it_was_afterwards(tmp_path: Path, ending: str, full: bool) -> None:
    before = state_of_torch()
    body = f"import os\nos.chdir({str(tmp_path)!r})\n" + LINEAR.replace(
        "\n    step(", "\n    step(" if not ending else f"\n    if x[0, 0] == 40: {ending}\n    step("
    )
    if "Keyboard" in ending:
        with pytest.raises(KeyboardInterrupt):
            examined(tmp_path, body, full=full)
    else:
        record = examined(tmp_path, body, full=full)
        assert record.ended == ("crashed" if ending else "finished" if full else "stopped")
        assert record.exit_code == (1 if ending else 0)
    assert state_of_torch() == before


def test_while_it_is_measured_a_model_is_itself(tmp_path: Path) -> None:
    record = examined(
        tmp_path,
        """
        import copy, pickle
        model, loader = Net(), DataLoader(Rows(), batch_size=4)
        before = type(model), list(vars(model)), list(model.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, (x, y) in enumerate(loader):
            step(model, optimizer, x, y)
            if number == 6:
                assert before == (type(model), list(vars(model)), list(model.state_dict()))
                again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
                assert torch.equal(again(x), model(x))
                assert not model._forward_hooks and not nn.modules.module._has_any_global_hook()
                print("compared")
        """,
    )
    assert record.error is None
    assert "forward" in milliseconds(record)


def test_a_stop_that_is_swallowed_comes_again_and_finally_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = examined(
        tmp_path,
        """
        model, loader = Net(), DataLoader(Rows(4000), batch_size=4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        swallowed = 0
        try:
            for epoch in range(3):
                try:
                    for x, y in loader:
                        step(model, optimizer, x, y)
                except:
                    swallowed += 1
            print("swallowed", swallowed)
            next(iter(loader))
            print("not reached")
        finally:
            print("cleaned up")
        """,
    )
    assert record.ended == "stopped"
    assert capsys.readouterr().out == "swallowed 3\ncleaned up\n"


def test_accumulated_batches_and_skipped_scaler_steps(tmp_path: Path) -> None:
    record = examined(
        tmp_path,
        """
        model, loader = Net(), DataLoader(Rows(4000), batch_size=4, shuffle=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for number, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            if number % 8 < 2:
                loss = loss * float("inf")  # the scaler skips the optimizer's step
            scaler.scale(loss / 2).backward()
            if number % 2:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        """,
    )
    steps = record.in_phase("normal")
    assert {step.num_batches for step in steps} == {2}
    assert {step.num_samples for step in steps} == {8}
    assert record.loaders[0].shuffles


def test_models_called_side_by_side_teachers_and_losses_are_forward(tmp_path: Path) -> None:
    record = examined(
        tmp_path,
        """
        from known import sleep
        class Encoder(nn.Linear):
            def forward(self, x):
                sleep(1)
                return super().forward(x)
        class Loss(nn.CrossEntropyLoss):
            def forward(self, *args):
                sleep(2)
                return super().forward(*args)
        class Metric(nn.Module):
            def forward(self, x, y):
                sleep(7)
                return (x.argmax(1) == y).float().mean()
        parts = nn.ModuleDict({"encoder": Encoder(4, 4), "head": Encoder(4, 2)})
        teacher, criterion, metric = Encoder(4, 2), Loss(), Metric()
        optimizer = torch.optim.SGD(parts.parameters(), lr=0.1)
        for x, y in DataLoader(Rows(4000), batch_size=4):
            with torch.no_grad():
                soft = teacher(x)
            out = parts["head"](parts["encoder"](x))
            loss = criterion(out, y) + (out - soft).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metric(out, y)
        """,
        clock=clock,
    )
    assert milliseconds(record)["forward"] == pytest.approx(5.0)
    assert milliseconds(record)["other"] == pytest.approx(7.0)


def test_a_compiled_model_stays_compiled(tmp_path: Path) -> None:
    record = examined(
        tmp_path,
        """
        import torch._dynamo
        torch._dynamo.utils.counters.clear()
        model, loader = torch.compile(Net(), backend="eager"), DataLoader(Rows(), batch_size=4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, (x, y) in enumerate(loader):
            step(model, optimizer, x.float(), y)
            if number == 13:
                counters = torch._dynamo.utils.counters
                assert counters["stats"]["unique_graphs"] == 1, counters
                assert not counters["graph_break"] and not counters["recompiles"], counters
                print("compared")
        """,
    )
    torch._dynamo.reset()
    assert record.error is None
    assert "forward" in milliseconds(record)
    assert [event.kind for event in record.events] == ["compile"]


def test_a_script_without_a_loader_is_measured_by_its_optimizer(tmp_path: Path) -> None:
    record = examined(
        tmp_path,
        """
        from known import sleep
        model = Net(sleep)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(1000):
            sleep(6)
            step(model, optimizer, torch.ones(4, 4), torch.zeros(4, dtype=torch.long))
        """,
        clock=clock,
    )
    assert record.ended == "stopped"
    assert [step.seconds for step in record.in_phase("normal")] == pytest.approx([0.009] * 8)
    assert milliseconds(record) == pytest.approx({"forward": 3, "backward": 0, "optimizer": 0, "other": 6})
    assert record.loaders == []
    assert {"loaders", "wait", "host replay", "trial"} <= set(record.not_observed)


def test_a_script_without_a_loader_that_updates_by_hand_is_measured_by_its_backward_passes(
    tmp_path: Path,
) -> None:
    record = examined(
        tmp_path,
        """
        from known import sleep
        model = Net(sleep)
        for number in range(1000):
            sleep(6)
            model.zero_grad()
            model(torch.ones(4, 4)).sum().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
        raise AssertionError("it should have been stopped")
        """,
        clock=clock,
    )
    assert (record.ended, record.error) == ("stopped", None)
    assert [step.seconds for step in record.in_phase("normal")] == pytest.approx([0.009] * 8)
    assert milliseconds(record) == pytest.approx({"forward": 3, "backward": 0, "other": 6})


def test_many_backward_passes_before_the_first_update_are_one_step(tmp_path: Path) -> None:
    record = examined(
        tmp_path,
        """
        from known import sleep
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(100):
            for part in range(50):
                sleep(1)
                model(torch.ones(4, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
        clock=clock,
    )
    steps = record.in_phase("warmup", "normal")
    assert [step.seconds for step in steps] == pytest.approx([0.05] * len(steps))
    assert len(record.in_phase("normal")) == 8


def test_a_test_batch_amid_training_does_not_hinder_the_replay(tmp_path: Path) -> None:
    record = examined(
        tmp_path,
        """
        train_loader = DataLoader(Rows(4000), batch_size=4)
        test_loader = DataLoader(Rows(40), batch_size=4)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, (x, y) in enumerate(train_loader):
            step(model, optimizer, x, y)
            if number % 7 == 0:
                x, y = next(iter(test_loader))
                nn.functional.cross_entropy(model(x), y)  # gradients are enabled, as they should not be
        """,
    )
    assert "host replay" not in record.not_observed
    assert {step.loader for step in record.in_phase("normal")} == {"train_loader"}
    assert record.in_phase("host")


def test_waiting_for_a_validation_batch_is_no_data_of_the_training_loop(tmp_path: Path) -> None:
    """Its loop calls the model too, and is told from the training's by what it lies beside: the steps."""
    record = examined(
        tmp_path,
        """
        import time
        def spend(seconds):
            until = time.thread_time() + seconds
            while time.thread_time() < until:
                pass
        class Slow(Rows):
            def __getitem__(self, index):
                spend(0.01)
                return super().__getitem__(index)
        class Busy(Net):
            def forward(self, x):
                spend(0.004)
                return super().forward(x)
        def evaluate():
            with torch.no_grad():
                for x, y in valid_loader:
                    model(x)
        train_loader, valid_loader = DataLoader(Rows(4000), batch_size=4), DataLoader(Slow(16), batch_size=4)
        model = Busy()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, (x, y) in enumerate(train_loader):
            step(model, optimizer, x, y)
            spend(0.002)
            if number % 4 == 3:
                evaluate()
        """,
        steps=24,
    )
    found = split_other(record)
    assert (found.header, found.header_lines) == (0, [])
    assert found.host > 0


def test_batches_taken_by_another_thread_are_no_wait_of_the_loop(tmp_path: Path) -> None:
    record = examined(
        tmp_path,
        """
        import queue, threading
        batches, is_over = queue.Queue(2), threading.Event()
        def fetch():
            for batch in DataLoader(Rows(4000), batch_size=4):
                while not is_over.is_set():
                    try:
                        batches.put(batch, timeout=0.05)
                        break
                    except queue.Full:
                        pass
        thread = threading.Thread(target=fetch)
        thread.start()
        try:
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(900):
                step(model, optimizer, *batches.get())
        finally:
            is_over.set()
            thread.join()
        """,
    )
    assert record.ended == "stopped"
    assert len(record.in_phase("normal")) == 8
    assert "another thread" in record.not_observed["wait"]
    assert "wait" not in milliseconds(record)


@pytest.mark.parametrize(
    ("body", "subject", "reason"),
    [
        ("print('nothing to see')", "steps", "trains nothing"),
        ("for batch in DataLoader(Rows(), batch_size=4): pass", "steps", "trains nothing"),
        (LINEAR.replace("Rows()", "Rows(8)"), "measured steps", "ended before"),
        (LINEAR.replace("Rows()", "Rows(48)"), "host replay", "ended before"),
    ],
)
def test_what_a_short_script_does_not_show_is_said(
    tmp_path: Path, body: str, subject: str, reason: str
) -> None:
    record = examined(tmp_path, body)
    assert (record.ended, record.exit_code) == ("finished", 0)
    assert reason in record.not_observed[subject]


def test_epochs_go_on_until_all_phases_are_through(tmp_path: Path) -> None:
    record = examined(
        tmp_path,
        """
        model, epochs = Net(), 0
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(90):
            seen = [step(model, optimizer, x, y) for x, y in DataLoader(Rows(14), batch_size=4)]
            assert len(seen) == 4, "also where batches are given again"
            with torch.no_grad():
                for x, y in DataLoader(Rows(8), batch_size=4):
                    model(x)
        """,
        steps=12,
    )
    assert record.ended == "stopped", record.error
    assert {step.phase for step in record.steps} == {"warmup", "normal", "host"}
    assert [(loader.role, loader.num_batches) for loader in record.loaders] == [
        ("train", 4),
        ("validation", 2),
    ]
    assert {pause.kind for pause in record.pauses} == {"epoch start", "validation", "other"}
    assert record.loaders[0].num_epochs > 4
    assert [loader.is_made_anew for loader in record.loaders] == [True, True]


def test_loaders_that_one_line_makes_one_after_another_are_one(tmp_path: Path) -> None:
    record = examined(
        tmp_path,
        """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows, tasks = Rows(16), []
        for size in (8, 8):
            task = DataLoader(Rows(size), batch_size=4)
            tasks.append(task)
            list(task)  # looked through, and kept
        for epoch in range(90):
            loader = DataLoader(rows, batch_size=4)  # the last one is still there
            for x, y in [*loader, *tasks[0], *tasks[1]]:
                step(model, optimizer, x, y)
            loader = DataLoader(rows, batch_size=2)
            for x, y in loader:
                step(model, optimizer, x, y)
                break
        """,
        steps=40,
    )
    assert record.ended == "stopped", record.error
    assert [(loader.num_batches, loader.is_made_anew) for loader in record.loaders] == [
        (2, False),
        (2, False),
        (4, True),
        (8, True),
    ]


def test_workers_batches_are_joined_with_when_they_were_taken(tmp_path: Path) -> None:
    record = examined(
        tmp_path,
        """
        model = Net()
        train_loader = DataLoader(Rows(80), batch_size=4, num_workers=2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(400):
            for x, y in train_loader:
                step(model, optimizer, x, y)
        """,
        steps=24,
    )
    assert record.ended == "stopped"
    taken = [batch for batch in record.batches if batch.taken_s is not None and batch.phase == "normal"]
    assert len(taken) >= 20
    for batch in taken:
        assert batch.worker in {0, 1}
        assert batch.asked_s is not None
        assert batch.taken_s is not None
        assert batch.begin_s <= batch.end_s <= batch.taken_s
        assert batch.asked_s <= batch.taken_s
        assert batch.num_samples == 4
    starts = [pause for pause in record.pauses if pause.kind == "epoch start"]
    assert len(starts) == 2
    assert {start.loader for start in starts} == {"train_loader"}
    firsts = [step for step in record.in_phase("warmup", "normal") if "wait" not in step.stages]
    assert len(firsts) == 2


def test_a_crash_in_a_worker_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch waits so long for a worker that has crashed, with or without us
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.5)
    record = examined(
        tmp_path,
        """
        class Broken(Rows):
            def __getitem__(self, index):
                if index == 30:
                    raise ValueError("sample 30 is broken")
                return super().__getitem__(index)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(Broken(), batch_size=4, num_workers=1):
            step(model, optimizer, x, y)
        """,
    )
    assert (record.ended, record.exit_code) == ("crashed", 1)
    assert record.error is not None
    assert "sample 30 is broken" in record.error
    assert "stoker/doctor/" not in record.error.split("Original Traceback")[0]
    assert capsys.readouterr().err == record.error
    kinds = {event.kind: event for event in record.events}
    assert set(kinds) == {"worker died", "crash"}
    assert kinds["crash"].place is not None
    assert kinds["crash"].place.text.startswith("for x, y in DataLoader(")
    assert len(record.in_phase("warmup")) > 2


SEEDED = """
import random
import numpy as np
class Noisy(Rows):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.randn(4) + random.random() + np.random.rand(), y
random.seed(0); np.random.seed(0); torch.manual_seed(0)
model = nn.Sequential(Net(), nn.Dropout(0.3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(Noisy(64), batch_size=4, shuffle=True, num_workers={workers})
losses = []
for epoch in range(2):
    for x, y in loader:
        losses.append(step(model, optimizer, x.double().float(), y).item().hex())
with open({file!r}, "w") as file:
    file.write(" ".join(losses))
sys.exit(3)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_seeded_script_gives_the_same_bits_when_it_is_watched(tmp_path: Path, workers: int) -> None:
    import runpy

    found = []
    for number in range(2):
        file = tmp_path / f"losses{number}"
        target = write_script(tmp_path, SEEDED.format(workers=workers, file=str(file)))
        if number == 0:
            with pytest.raises(SystemExit):
                runpy.run_path(target[0], run_name="__main__")
        else:
            record = examine(target, full=True)
            assert (record.ended, record.exit_code) == ("finished", 3)
            assert len(record.steps) == 32
        gc.collect()
        found.append(file.read_text())
    assert found[0] == found[1]


def test_settings_are_applied_where_the_loader_is_made(tmp_path: Path) -> None:
    target = write_script(
        tmp_path,
        """
        model = Net()
        def make(count, **options):
            return DataLoader(Rows(count), 4, **options)
        train = make(400, num_workers=2, prefetch_factor=3, persistent_workers=True)
        other = make(8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in train:
            assert x[0, 0] >= 1000
            step(model, optimizer, x, y)
        """,
    )
    line = 1 + (tmp_path / "train.py").read_text().splitlines().index(
        "    return DataLoader(Rows(count), 4, **options)"
    )
    override = LoaderOverride(
        file=target[0], line=line, keywords={"num_workers": 0}, wrap_dataset=Shifted, name="train"
    )
    threads = torch.get_num_threads()
    record = examine(target, steps=8, warmup=4, settings=Overrides((override,), torch_threads=threads + 1))
    assert record.error is None
    train, other = record.loaders
    assert (train.name, train.num_workers, train.prefetch_factor) == ("train", 0, None)
    assert (train.dataset, train.role) == ("Shifted", "train")
    assert (other.name, other.dataset, other.role) == ("other", "Rows", "unused")
    assert record.machine.num_torch_threads == threads
    assert torch.get_num_threads() == threads


class Shifted:
    """Adds 1000 to what a data set gives."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        x, y = self.dataset[index]
        return x + 1000, y
