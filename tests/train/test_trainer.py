"""Training on real data: known optima, equal results by different ways, and what is written and said."""

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

import stoker
from stoker.errors import DeviceMemoryError, MissingExtraError, UsageError
from stoker.train import Supervised, Task, Trainer, WarmupCosine, classification_metrics
from support.training import ListLoader, make_loader, make_model, make_store


def trainer_of(model: nn.Module, task: Any, **options: Any) -> Trainer:
    return Trainer(model, task, **{"device": "cpu", "progress": False, **options})


def sgd(lr: float, **options: Any) -> Callable[..., torch.optim.Optimizer]:
    return lambda weights: torch.optim.SGD(weights, lr=lr, **options)


def regression(count: int = 256) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 4, generator=generator)
    noise = 0.1 * torch.randn(count, 1, generator=generator)
    return x, x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]]) + noise


def batches_of(x: Tensor, y: Tensor, size: int) -> ListLoader:
    return ListLoader(
        {"x": part, "y": goal} for part, goal in zip(torch.split(x, size), torch.split(y, size), strict=True)
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    return make_store(tmp_path_factory.mktemp("store") / "a.stoker", 70)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-6), ("bf16", 1e-3), ("fp16", 1e-5)])
def test_a_regression_reaches_the_least_squares_optimum_in_each_precision(
    precision: Any, tolerance: float
) -> None:
    x, y = regression()
    best = torch.linalg.lstsq(x, y).solution
    expected = float(((x @ best - y) ** 2).mean())
    model = nn.Linear(4, 1, bias=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer = trainer_of(
            model,
            Supervised(nn.MSELoss()),
            precision=precision,
            optimizer=sgd(0.1),
            scheduler=WarmupCosine(),
        )
    assert [str(warning.message).split(" is ")[0] for warning in said] == (
        ["precision fp16 on the CPU"] if precision == "fp16" else []
    )
    trainer.fit(batches_of(x, y, 64), epochs=60)
    assert model.weight.dtype == torch.float32
    assert float(((model(x).detach() - y) ** 2).mean()) == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_classifier_learns_classes_that_are_not_linear(precision: Any) -> None:
    x = torch.randn(512, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * x[:, 1] > 0).long()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    task = Supervised(nn.CrossEntropyLoss(), inputs=0, targets=1, metrics=classification_metrics(2))
    train = DataLoader(TensorDataset(x, y), 64, shuffle=True)
    trainer = trainer_of(
        model, task, precision=precision, monitor="accuracy", ema=0.9, optimizer=sgd(0.5, momentum=0.9)
    )
    result = trainer.fit(train, train, epochs=25)
    assert result.best["accuracy"] > 0.97  # type: ignore[operator]
    probabilities = trainer.predict(DataLoader(TensorDataset(x, y), 100)).float()
    assert (probabilities.argmax(1) == y).float().mean() > 0.97


def test_a_plain_function_is_a_task() -> None:
    x, y = regression()
    model = nn.Linear(4, 1)
    trainer = trainer_of(
        model, lambda model, batch: ((model(batch["x"]) - batch["y"]) ** 2).mean(), optimizer=sgd(0.1)
    )
    trainer.fit(batches_of(x, y, 32), epochs=20)
    assert trainer.evaluate(batches_of(x, y, 50))["loss"] < 0.02  # type: ignore[operator]
    with pytest.raises(UsageError, match="gives the loss alone"):
        trainer.predict(batches_of(x, y, 50))


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_four_batches_of_16_are_one_of_64(store: stoker.Store, clip_norm: float | None) -> None:
    """Also in the last window of an epoch, which has 6 samples."""
    weights, losses = [], []
    for batch_size, accumulate in ((64, 1), (16, 4)):
        model = make_model()
        trainer = trainer_of(
            model,
            Supervised(nn.MSELoss()),
            accumulate=accumulate,
            clip_norm=clip_norm,
            optimizer=sgd(0.05, momentum=0.9),
            scheduler=WarmupCosine(),
        )
        with make_loader(store, batch_size) as train:
            result = trainer.fit(train, epochs=3)
        assert trainer.num_updates == 6
        weights.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
        losses.append([row["train_loss"] for row in result.history])
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=1e-6)
    assert losses[0][0] == pytest.approx(losses[1][0], rel=0.5)  # before and after an update they differ


def test_batches_of_unequal_size_in_a_window_count_by_their_samples() -> None:
    x, y = regression(100)
    parts = [slice(0, 10), slice(10, 50), slice(50, 57), slice(57, 100)]
    models = [nn.Linear(4, 1, bias=False) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    pieces = ListLoader({"x": x[part], "y": y[part]} for part in parts)
    for model, train, accumulate in zip(models, (batches_of(x, y, 100), pieces), (1, 4), strict=True):
        trainer_of(model, Supervised(nn.MSELoss()), accumulate=accumulate, optimizer=sgd(0.1)).fit(
            train, epochs=5
        )
    torch.testing.assert_close(models[1].weight, models[0].weight)


class _CountReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts how often the host reads a number from a tensor, which on a GPU waits for it."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def _busy_trainer(model: nn.Module, **options: Any) -> Trainer:
    return trainer_of(
        model,
        Supervised(nn.MSELoss(), metrics={"mae": torchmetrics.MeanAbsoluteError()}),
        optimizer=sgd(0.1, momentum=0.9),
        scheduler=WarmupCosine(),
        accumulate=2,
        clip_norm=1.0,
        ema=0.9,
        measure_training=True,
        **options,
    )


def _reads(num_batches: int, log_every: int) -> int:
    x, y = regression(4 * num_batches)
    trainer = _busy_trainer(nn.Linear(4, 1), log_every=log_every)
    reads = _CountReads()  # type: ignore[no-untyped-call]
    with reads:
        trainer.fit(batches_of(x, y, 4), epochs=1)
    return int(reads.count)


def test_the_host_reads_nothing_between_two_log_intervals() -> None:
    assert _reads(40, 1000) == _reads(10, 1000)  # however many steps


def test_steps_run_on_a_device_that_cannot_be_read() -> None:
    """What reads there fails: the first that does is the log, at its own step."""
    batch = {"x": torch.empty(4, 4, device="meta"), "y": torch.empty(4, 1, device="meta")}
    trainer = _busy_trainer(nn.Linear(4, 1), log_every=7, device="meta")
    with pytest.raises(NotImplementedError, match="meta"):
        trainer.fit([batch] * 20, epochs=1)
    assert trainer.step == 7


def test_evaluation_equals_the_whole_and_changes_nothing() -> None:
    x, y = regression(100)
    model = nn.Sequential(nn.Linear(4, 1), nn.Dropout(0.5))
    task = Supervised(nn.MSELoss(), metrics=torchmetrics.MeanSquaredError())
    trainer = trainer_of(model, task, ema=0.5, optimizer=sgd(0.1))
    trainer.fit(batches_of(x, y, 32), epochs=2)
    before, random = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    found = trainer.evaluate(batches_of(x, y, 33))  # 33, 33, 33 and 1
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    average = trainer.engine.average
    assert average is not None
    with average.applied(), torch.no_grad():
        expected = float(((model.eval()(x) - y) ** 2).mean())
    assert found == pytest.approx({"loss": expected, "MeanSquaredError": expected}, rel=1e-6)


def test_averaged_weights_follow_their_formula() -> None:
    x, y = regression(64)
    model = nn.Linear(4, 1, bias=False)
    seen: list[Tensor] = [model.weight.detach().clone()]

    class Watching(Supervised):
        def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Any]:
            seen.append(model.weight.detach().clone())  # type: ignore[operator]
            return super().loss(model, batch)

    trainer = trainer_of(model, Watching(nn.MSELoss()), ema=0.3, optimizer=sgd(0.1))
    trainer.fit(batches_of(x, y, 8), epochs=1)
    expected = seen[0]
    for n, weight in enumerate([*seen[2:], model.weight.detach()]):
        decay = min(0.3, (1 + n) / (10 + n))
        expected = decay * expected + (1 - decay) * weight
    average = trainer.engine.average
    assert average is not None
    torch.testing.assert_close(average.state_dict()["average"]["weight"], expected)


def test_training_stops_when_nothing_improves_and_keeps_the_best(tmp_path: Path) -> None:
    values = iter([3.0, 2.0, 2.5, 1.95, 2.2, 9.0])

    class Scripted(Task):
        def loss(self, model: nn.Module, batch: Any) -> Tensor:
            if model.training:
                return model(batch["x"]).mean() * 0  # type: ignore[no-any-return]
            return torch.tensor(next(values))

    x, y = regression(8)
    data = batches_of(x, y, 8)
    trainer = trainer_of(
        nn.Linear(4, 1), Scripted(), early_stopping=2, min_delta=0.1, checkpoint_dir=tmp_path, log="csv"
    )
    result = trainer.fit(data, data, epochs=10)
    assert (result.best, result.best_epoch, result.num_epochs) == ({"loss": 2.0}, 1, 4)
    assert result.stopped_early
    assert stoker.train.load_checkpoint(tmp_path / "best.pt")["position"]["epoch"] == 2
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 5


def test_a_run_leaves_metrics_and_logs_for_other_programs(tmp_path: Path, capsys: Any) -> None:
    x, y = regression(64)
    data = batches_of(x, y, 16)
    task = Supervised(nn.MSELoss(), metrics={"mae": torchmetrics.MeanAbsoluteError()})
    trainer = trainer_of(
        nn.Linear(4, 1), task, checkpoint_dir=tmp_path, log=["jsonl", "csv"], log_every=2, progress=True
    )
    trainer.fit(data, data, epochs=2)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["schema_version"] == 1
    assert metrics["epochs"] == 2
    assert metrics["best"].keys() == {"loss", "mae"}
    assert metrics["samples_per_s"] > 0
    assert 0 <= metrics["data_wait_fraction"] <= 1
    assert metrics["peak_memory_bytes"] > 0
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["kind"], row["step"]) for row in rows] == [
        *(("interval", 2), ("interval", 4), ("epoch", 4), ("interval", 6), ("interval", 8), ("epoch", 8)),
    ]
    mean = (rows[0]["loss"] + rows[1]["loss"]) / 2
    assert rows[2]["train_loss"] == pytest.approx(mean)
    for row in rows[2::3]:
        shares = row["data_wait_fraction"] + row["copy_fraction"] + row["compute_fraction"]
        assert shares == pytest.approx(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("epoch 1/2: train_loss ")
    assert "samples/s; time: data " in lines[0]


def test_what_is_no_number_is_null_in_metrics_json(tmp_path: Path) -> None:
    data = ListLoader([{"x": torch.ones(4, 4), "y": torch.zeros(4, dtype=torch.int64)}])
    task = Supervised(nn.CrossEntropyLoss(), metrics=classification_metrics(2))  # one class: no area
    trainer_of(nn.Linear(4, 2), task, checkpoint_dir=tmp_path).fit(data, data, epochs=1)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    for line in [(tmp_path / "metrics.json").read_text(), *(tmp_path / "log.jsonl").read_text().splitlines()]:
        json.loads(line, parse_constant=refuse)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["best"]["auroc"] is None
    assert metrics["last"]["val_auroc"] is None
    assert metrics["best"]["accuracy"] is not None


def test_tensorboard_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(MissingExtraError, match=r"stoker\[tensorboard\]"):
        trainer_of(nn.Linear(4, 1), Supervised(nn.MSELoss()), checkpoint_dir=tmp_path, log="tensorboard")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")  # its own
def test_tensorboard_has_every_number_once_after_a_run_went_on(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    x, y = regression(32)
    for resume, epochs in ((None, 2), ("previous", 3)):  # which was saved after step 6 of 8
        trainer = trainer_of(
            nn.Linear(4, 1),
            Supervised(nn.MSELoss()),
            checkpoint_dir=tmp_path,
            checkpoint_every=3,
            log="tensorboard",
            log_every=2,
        )
        trainer.fit(batches_of(x, y, 8), epochs=epochs, resume=resume)
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    names = set(found.Tags()["scalars"])
    assert {"interval/loss", "interval/learning_rate", "epoch/train_loss", "epoch/samples_per_s"} <= names
    assert [event.step for event in found.Scalars("interval/loss")] == [2, 4, 6, 8, 10, 12]
    history = [row["train_loss"] for row in trainer.history]
    assert [event.value for event in found.Scalars("epoch/train_loss")] == pytest.approx(history)


def test_the_learning_rate_follows_the_samples_in_an_update(store: stoker.Store) -> None:
    trainer = trainer_of(
        make_model(), Supervised(nn.MSELoss()), lr_scaling=8, accumulate=2, optimizer=sgd(0.01)
    )
    with make_loader(store, 16) as train:
        result = trainer.fit(train, epochs=1)
    assert result.history[0]["learning_rate"] == pytest.approx(0.04)


class _Hungry(Supervised):
    """A task on a device with room for so many samples."""

    def __init__(self, room: int) -> None:
        super().__init__(nn.MSELoss())
        self.room = room

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Any]:
        if len(batch["x"]) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().loss(model, batch)


def test_out_of_memory_says_what_helps() -> None:
    x, y = regression(64)
    trainer = trainer_of(nn.Linear(4, 1), _Hungry(10))
    with pytest.raises(DeviceMemoryError) as raised:
        trainer.fit(batches_of(x, y, 32), epochs=1)
    message = str(raised.value)
    assert "CUDA out of memory. Tried to allocate" in message
    assert "batch_size=16 with accumulate=2" in message
    assert isinstance(raised.value.__cause__, torch.OutOfMemoryError)


@pytest.mark.parametrize(("room", "expected"), [(1, 1), (23, 23), (64, 64), (1000, 70)])
def test_the_largest_batch_that_fits_is_found_and_nothing_is_changed(
    store: stoker.Store, room: int, expected: int
) -> None:
    model = make_model(dropout=0.5)
    trainer = trainer_of(model, _Hungry(room))
    before, random = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    found = trainer.find_batch_size(lambda size: make_loader(store, size, augmented=False))
    assert found == expected
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random)
    assert not trainer.engine.optimizer.state_dict()["state"]
    with make_loader(store, found) as train:
        trainer.fit(train, epochs=1)


def test_a_loss_that_is_no_number_is_said_once() -> None:
    x, y = regression(64)
    trainer = trainer_of(nn.Linear(4, 1), Supervised(nn.MSELoss()), optimizer=sgd(1e30), log_every=2)
    with pytest.warns(UserWarning, match="the loss is (nan|inf) at step") as said:
        trainer.fit(batches_of(x, y, 8), epochs=2)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "fp8"}, "precision must be one of auto, fp32, bf16, fp16, got 'fp8'"),
        ({"compile": "fast"}, "compile must be one of auto, off, default"),
        ({"accumulate": 0}, "accumulate must be a number of batches of at least 1, got 0"),
        ({"clip_norm": 0}, "clip_norm must be above 0"),
        ({"ema": 1}, "ema must be a decay between 0 and 1"),
        ({"monitor": "wer"}, "nobody says whether more of 'wer' is better; pass mode='min' or mode='max'"),
        ({"early_stopping": 0}, "early_stopping must be a number of epochs of at least 1"),
        ({"log": "csv"}, "needs a folder to write to; pass checkpoint_dir"),
        ({"log": "xml"}, "log must be one of auto, jsonl, csv, tensorboard"),
        ({"log_every": 0}, "log_every and checkpoint_every must be at least 1"),
        ({"device": "abacus"}, "device must be 'auto' or one that PyTorch knows"),
        ({"optimizer": 3}, "optimizer must be a torch optimizer, or make one of parameters"),
        ({"optimizer": lambda weights: weights}, "must give one, it gave list"),
    ],
)
def test_an_option_that_cannot_be_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        trainer_of(nn.Linear(4, 1), Supervised(nn.MSELoss()), **options)


def test_loaders_and_tasks_that_cannot_be_are_named() -> None:
    x, y = regression(8)
    data = batches_of(x, y, 8)
    with pytest.raises(UsageError, match=r"stoker\.train\.Supervised"):
        trainer_of(nn.Linear(4, 1), nn.MSELoss())
    trainer = trainer_of(nn.Linear(4, 1), Supervised(nn.MSELoss()), monitor="f1")
    with pytest.raises(UsageError, match="monitor must be one of loss, got 'f1'"):
        trainer.fit(data, epochs=1)
    trainer = trainer_of(nn.Linear(4, 1), Supervised(nn.MSELoss()))
    with pytest.raises(UsageError, match="iterable anew for every epoch, got list_iterator"):
        trainer.fit(iter(data), epochs=1)
    with pytest.raises(UsageError, match="gave no batch"):
        trainer.fit([], epochs=1)
    with pytest.raises(UsageError, match="gave no batch"):
        trainer.evaluate([])
    with pytest.raises(UsageError, match="epochs must be at least 1"):
        trainer.fit(data, epochs=0)
    with pytest.raises(UsageError, match="define num_samples"):
        trainer_of(nn.Linear(4, 1), Supervised(nn.MSELoss())).fit([{"x": 1}], epochs=1)
    other = trainer_of(
        nn.Linear(4, 1), lambda model, batch: model(batch["x"]).mean(), scheduler=WarmupCosine()
    )
    with pytest.raises(UsageError, match="give the loader a __len__"):
        other.fit(_Endless(data), epochs=1)


class _Endless:
    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        return iter(self.batches)
