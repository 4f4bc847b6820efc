"""Watching a loop in one's own process, plain and inside frameworks."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from doctor.loops import write_script
from stoker.doctor import DoctorCallback, examine, watch
from stoker.errors import MissingExtraError, UsageError


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    gc.collect()


def make_loader(count: int = 48, **options: Any) -> "DataLoader[Any]":
    rows = TensorDataset(torch.randn(count, 4), torch.arange(count) % 2)
    return DataLoader(rows, batch_size=4, **options)


def train(
    loader: Any, model: nn.Module, optimizer: Any, backward: Any = Tensor.backward, epochs: int = 1
) -> None:
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()


def parts() -> tuple[nn.Module, Any]:
    model = nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_a_loop_is_watched_from_first_to_last() -> None:
    model, optimizer = parts()
    with watch() as record:
        train_loader = make_loader()
        train(train_loader, model, optimizer, epochs=2)
        assert record.steps == []
    assert len(record.steps) == 24
    assert len(record.in_phase("normal")) == 20
    assert record.in_phase("host", "device") == []
    assert {"wait", "forward", "backward", "optimizer", "other"} == set(record.steps[-1].stages)
    assert [(loader.name, loader.num_epochs) for loader in record.loaders] == [("train_loader", 2)]
    assert record.loaders[0].made_at is not None
    assert record.loaders[0].made_at.file == __file__
    assert (record.ended, record.seconds > 0, record.overhead_s_per_step > 0) == ("finished", True, True)
    assert "host replay" not in record.not_observed
    assert len(record.batches) == 24


def test_a_loader_and_an_iterator_from_before_are_seen_too() -> None:
    model, optimizer = parts()
    loader = make_loader()
    running = iter(make_loader())
    next(running)
    with watch() as record:
        train(loader, model, optimizer)
        train(running, model, optimizer)
    assert len(record.steps) == 23
    assert [loader.name for loader in record.loaders] == ["train", "train-2"]
    assert record.loaders[0].made_at is None


def test_only_so_many_steps_are_measured_and_the_loop_runs_on() -> None:
    model, optimizer = parts()
    with watch(steps=5) as record:
        train(make_loader(), model, optimizer)
    assert len(record.in_phase("normal")) == 5


def test_one_watch_at_a_time(tmp_path: Path) -> None:
    script = write_script(tmp_path, "print('never run')")
    with watch():
        with pytest.raises(UsageError, match="watched already"), watch():
            pass
        with pytest.raises(UsageError, match="watched already"):
            examine(script)
    with pytest.raises(UsageError, match="steps must be at least 1"), watch(steps=0):
        pass
    with watch() as record:
        pass
    assert record.not_observed["steps"] == "the script trains nothing"


def test_an_error_inside_goes_up_and_is_kept() -> None:
    model, optimizer = parts()
    records = []

    def fail() -> None:
        with watch() as record:
            records.append(record)
            train(make_loader(), model, optimizer)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    (record,) = records
    assert record.ended == "crashed"
    assert record.error is not None
    assert "ZeroDivisionError" in record.error
    assert len(record.steps) == 12


def test_losses_are_the_same_bits_when_watched() -> None:
    found = []
    for is_watched in (False, True):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2))
        optimizer = torch.optim.Adam(model.parameters())
        loader = make_loader(shuffle=True)
        if is_watched:
            with watch():
                train(loader, model, optimizer, epochs=2)
        else:
            train(loader, model, optimizer, epochs=2)
        found.append([parameter.detach().clone() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.filterwarnings("ignore")  # Accelerate's own
def test_accelerates_loaders_go_by_the_users_name() -> None:
    accelerate = pytest.importorskip("accelerate", reason="pip install 'stoker[frameworks]'")
    model, optimizer = parts()
    with watch() as record:
        loader = make_loader()
        accelerator = accelerate.Accelerator(cpu=True)
        model, optimizer, prepared = accelerator.prepare(model, optimizer, loader)
        train(prepared, model, optimizer, backward=accelerator.backward, epochs=2)
    assert len(record.steps) == 24
    assert [(each.name, each.role) for each in record.loaders] == [("loader", "train")]
    normal = record.in_phase("normal")
    assert {"wait", "forward", "backward", "optimizer", "other"} <= set(normal[3].stages)
    assert sum(step.num_batches == 1 for step in normal) >= len(normal) - 2  # it fetches one ahead


@pytest.mark.filterwarnings("ignore")  # Lightning's own, about PyTorch and about few workers
def test_lightning_has_a_callback(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="pip install 'stoker[frameworks]'")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 2)

        def training_step(self, batch: Any, _: int) -> Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch: Any, _: int) -> None:
            self.net(batch[0])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    doctor = DoctorCallback()
    assert isinstance(doctor, lightning.Callback)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[doctor],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(Module(), make_loader(), make_loader(8))
    record = doctor.record
    assert record is not None
    assert len(record.steps) == 24
    assert [(each.role, each.num_batches) for each in record.loaders] == [("validation", 2), ("train", 12)]
    assert {"wait", "forward", "backward", "optimizer", "other"} <= set(record.steps[-1].stages)
    assert {"validation", "epoch start"} <= {pause.kind for pause in record.pauses}
    with watch():  # it was left
        pass


def test_without_lightning_the_callback_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] in {"lightning", "pytorch_lightning"}:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="lightning"):
        DoctorCallback()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_an_accelerator_stages_are_in_its_own_time() -> None:
    model = nn.Linear(4096, 4096).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = TensorDataset(torch.randn(2048, 4096))
    with watch() as record:
        for (x,) in DataLoader(rows, batch_size=64):
            on_device = x.cuda()
            for _ in range(50):
                on_device = model(on_device)
            optimizer.zero_grad()
            on_device.sum().backward()
            optimizer.step()
    torch.cuda.synchronize()
    step = record.in_phase("normal")[-1]
    assert sum(step.stages.values()) == pytest.approx(step.seconds)
    assert step.stages["forward"] > step.stages["copy"] > 0
    assert record.machine.device.startswith("cuda")
