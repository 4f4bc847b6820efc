"""A run that was stopped after any step goes on as if it had not been."""

import json
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import stoker
from stoker.errors import CheckpointMismatchError, TrainingInterruptedError, UsageError
from stoker.train import FitResult, Supervised, Trainer
from support.training import SignalledTask, everything, make_loader, make_model, make_store, numbers

EPOCHS = 2
NUM_STEPS = 5  # of an epoch: windows of 2, 2 and 1 batches
BATCH_SIZE = 12


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    return make_store(tmp_path_factory.mktemp("store") / "a.stoker")


def run(
    train: Iterable[Any], val: Iterable[Any], task: Any, folder: Path, **options: Any
) -> tuple[Trainer, FitResult]:
    resume = options.pop("resume", None)
    trainer = Trainer(make_model(dropout=0.3), task, **everything(checkpoint_dir=folder, **options))
    return trainer, trainer.fit(train, val, epochs=EPOCHS, resume=resume)


def assert_same(found: tuple[Trainer, FitResult], expected: tuple[Trainer, FitResult]) -> None:
    """Equal to the bit: weights, averaged weights, the optimizer's and the scheduler's state, the history."""
    for part in ("model", "optimizer", "scheduler", "average"):
        mine, theirs = (getattr(trainer.engine, part).state_dict() for trainer, _ in (found, expected))
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert numbers(found[1].history) == numbers(expected[1].history)
    assert found[1].best == expected[1].best


def test_every_step_can_be_resumed_to_the_bit(store: stoker.Store, tmp_path: Path) -> None:
    _check_every_step(lambda: make_loader(store, BATCH_SIZE), store, tmp_path)


def test_a_run_that_is_complete_says_so(
    store: stoker.Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with make_loader(store, BATCH_SIZE) as train, make_loader(store, 20, augmented=False) as val:
        expected = run(train, val, SignalledTask(), tmp_path, progress=True)
        assert "going on" not in capsys.readouterr().err
        assert_same(run(train, val, SignalledTask(), tmp_path, resume="auto", progress=True), expected)
    assert f"is complete after {EPOCHS} epochs" in capsys.readouterr().err


def test_a_loader_without_a_state_is_iterated_over_again(store: stoker.Store, tmp_path: Path) -> None:
    class Named(TensorDataset):
        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:  # type: ignore[override]
            return {"x": self.tensors[0][index], "y": self.tensors[1][index]}

    whole = store[list(range(len(store)))]
    data = Named(torch.as_tensor(whole["x"]), torch.as_tensor(whole["y"]))
    _check_every_step(lambda: DataLoader(data, BATCH_SIZE, shuffle=True), store, tmp_path)


def _check_every_step(make: Callable[[], Any], store: stoker.Store, tmp_path: Path) -> None:
    with make_loader(store, 20, augmented=False) as val:
        expected = run(make(), val, SignalledTask(), tmp_path / "whole")
        for step in range(1, EPOCHS * NUM_STEPS + 1):
            folder = tmp_path / str(step)
            with pytest.raises(TrainingInterruptedError, match=f"after step {step}: saved"):
                run(make(), val, SignalledTask(at_step=step), folder)
            found = run(make(), val, SignalledTask(), folder, resume="last")
            assert_same(found, expected)
            assert _log(folder) == _log(tmp_path / "whole")


def _log(folder: Path) -> list[dict[str, Any]]:
    return numbers([json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()])


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_signal_during_evaluation_saves_what_was_trained(
    store: stoker.Store, tmp_path: Path, batch: int
) -> None:
    with make_loader(store, BATCH_SIZE) as train, make_loader(store, 20, augmented=False) as val:
        expected = run(train, val, SignalledTask(), tmp_path / "whole")
        with pytest.raises(TrainingInterruptedError):
            run(train, val, SignalledTask(at_evaluated=batch), tmp_path / "a")
        assert_same(run(train, val, SignalledTask(), tmp_path / "a", resume="auto"), expected)


def test_a_loader_that_dies_of_the_signal_is_no_error(store: stoker.Store, tmp_path: Path) -> None:
    with make_loader(store, BATCH_SIZE) as train, make_loader(store, 20, augmented=False) as val:
        expected = run(train, val, SignalledTask(), tmp_path / "whole")

        class Dying:
            """As a DataLoader whose workers the same Ctrl-C has ended."""

            state_dict, load_state_dict, set_epoch = train.state_dict, train.load_state_dict, train.set_epoch

            def __len__(self) -> int:
                return len(train)

            def __iter__(self) -> Iterator[Any]:
                for number, batch in enumerate(train):
                    yield batch
                    if number == 2:
                        signal.raise_signal(signal.SIGINT)
                        raise RuntimeError("DataLoader worker exited unexpectedly")

        with pytest.raises(TrainingInterruptedError, match="SIGINT ended the training after step 3"):
            run(Dying(), val, SignalledTask(), tmp_path / "a")
        assert_same(run(train, val, SignalledTask(), tmp_path / "a", resume="auto"), expected)


def test_a_run_that_is_done_is_done(store: stoker.Store, tmp_path: Path) -> None:
    with make_loader(store, BATCH_SIZE) as train, make_loader(store, 20) as val:
        expected = run(train, val, SignalledTask(), tmp_path)
        task = SignalledTask()
        assert_same(run(train, val, task, tmp_path, resume="auto"), expected)
        assert task.count == {True: 0, False: 0}


def test_resuming_from_best_and_previous_gives_their_epoch(store: stoker.Store, tmp_path: Path) -> None:
    with make_loader(store, BATCH_SIZE) as train:
        Trainer(make_model(), SignalledTask(), **everything(checkpoint_dir=tmp_path)).fit(train, epochs=3)
        for resume in ("previous", tmp_path / "previous.pt", str(tmp_path / "previous.pt")):
            again = Trainer(make_model(), SignalledTask(), **everything())
            if resume == "previous":
                with pytest.raises(UsageError, match="needs a checkpoint_dir"):
                    again.fit(train, epochs=3, resume=resume)
                continue
            assert again.fit(train, epochs=2, resume=resume).num_epochs == 2


def test_a_checkpoint_of_other_options_is_refused_by_name(store: stoker.Store, tmp_path: Path) -> None:
    with make_loader(store, BATCH_SIZE) as train:
        with pytest.raises(TrainingInterruptedError):
            Trainer(make_model(), SignalledTask(at_step=3), **everything(checkpoint_dir=tmp_path)).fit(
                train, epochs=1
            )

        def resume(model: torch.nn.Module, **options: Any) -> None:
            Trainer(model, SignalledTask(), **everything(checkpoint_dir=tmp_path, **options)).fit(
                train, epochs=1, resume="last"
            )

        with pytest.raises(CheckpointMismatchError, match=r"last\.pt has a ema, this trainer no one"):
            resume(make_model(), ema=None)
        with pytest.raises(
            CheckpointMismatchError, match="accumulate=2 batches, this trainer has accumulate=3"
        ):
            resume(make_model(), accumulate=3)
        with pytest.raises(CheckpointMismatchError, match="does not fit this trainer's model"):
            resume(torch.nn.Linear(2, 2))


def test_a_folder_of_another_run_is_not_written_over(store: stoker.Store, tmp_path: Path) -> None:
    def fit(resume: str | None) -> int:
        with make_loader(store, BATCH_SIZE) as train:
            trainer = Trainer(make_model(), Supervised(torch.nn.MSELoss()), **_plain(tmp_path))
            trainer.fit(train, epochs=1, resume=resume)
        return trainer.step

    assert fit(None) == NUM_STEPS
    with pytest.raises(UsageError, match="is of an earlier run; pass resume='auto'"):
        fit(None)
    assert fit("fresh") == NUM_STEPS


def _plain(folder: Path) -> dict[str, Any]:
    return {"checkpoint_dir": folder, "progress": False, "device": "cpu"}


def test_a_trainer_left_in_an_epoch_says_so(store: stoker.Store) -> None:
    with make_loader(store, BATCH_SIZE) as train:
        trainer = Trainer(make_model(), SignalledTask(at_step=2), device="cpu", progress=False)
        with pytest.raises(TrainingInterruptedError, match="nothing is saved") as stopped:
            trainer.fit(train, epochs=1)
        assert stopped.value.code == 143
        with pytest.raises(UsageError, match="left in the middle of epoch 0"):
            trainer.fit(train, epochs=1)
