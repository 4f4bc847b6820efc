"""Several real processes train as one does."""

from pathlib import Path
from typing import Any

import pytest
import torch

import stoker
from stoker.errors import TrainingInterruptedError
from support.ranks import run_ranks
from support.trained_ranks import equal_to_one, train_together
from support.training import SignalledTask, make_store

Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    return make_store(tmp_path_factory.mktemp("store") / "a.stoker")


@pytest.fixture(scope="module")
def alone(store: stoker.Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("alone")
    return equal_to_one(store, folder, 1), folder


@pytest.fixture(scope="module")
def cut(store: stoker.Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, left by one process in the middle of its second epoch and of an update."""
    folder = tmp_path_factory.mktemp("cut")
    with pytest.raises(TrainingInterruptedError, match="after step 8"):
        equal_to_one(store, folder, 1, task=SignalledTask(at_step=8), checkpoint_dir=folder)
    return folder / "last.pt"


@pytest.fixture(scope="module", params=[2, 3])
def together(
    store: stoker.Store, cut: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Ranks, Path]:
    """What every rank reports."""
    folder = tmp_path_factory.mktemp("ranks")
    return run_ranks(request.param, lambda: train_together(stoker.open(store.path), folder, cut)), folder


@pytest.mark.parametrize(("run", "weights"), [("equal_to_one", "weights.pt"), ("resumed", "resumed.pt")])
def test_ranks_learn_what_one_process_learns_from_the_same_global_batches(
    alone: tuple[dict[str, Any], Path], together: tuple[Ranks, Path], run: str, weights: str
) -> None:
    """From the start, and from the middle of an epoch and an update of that one process."""
    expected, folder_alone = alone
    ranks, folder = together
    for rank in ranks:
        found = rank[run]
        assert found["num_updates"] == expected["num_updates"]
        for row, expected_row in zip(found["history"], expected["history"], strict=True):
            assert row == pytest.approx(expected_row, rel=0, abs=1e-6)
        assert found["evaluated"] == pytest.approx(expected["evaluated"], rel=0, abs=1e-6)
    torch.testing.assert_close(
        torch.load(folder / weights), torch.load(folder_alone / "weights.pt"), rtol=0, atol=1e-6
    )


def test_a_signal_to_one_rank_stops_all_after_the_same_step(together: tuple[Ranks, Path]) -> None:
    reports = [rank["interrupted"] for rank in together[0]]
    assert len({report["stopped"] for report in reports}) == 1
    assert 3 <= reports[0]["stopped"] <= 4
    assert all("SIGTERM ended the training after step" in report["message"] for report in reports)
    for report in reports:
        for again, whole in zip(report["again"], report["whole"], strict=True):
            # with three ranks it depends on how DDP cuts its buckets in which order they are added
            assert again == (whole if len(reports) == 2 else pytest.approx(whole, rel=0, abs=1e-6))


def test_unequal_data_ends_the_epoch_and_hangs_nobody(together: tuple[Ranks, Path]) -> None:
    reports = [rank["unequal"] for rank in together[0]]
    assert [report["step"] for report in reports] == [6] * len(reports)
    assert [len(report["said"]) for report in reports] == [1] + [0] * (len(reports) - 1)
    assert "ranks have batches left" in reports[0]["said"][0]


def test_all_ranks_evaluate_with_the_statistics_that_the_first_would_save(
    together: tuple[Ranks, Path],
) -> None:
    means = [rank["batch_norm"] for rank in together[0]]
    assert means == [means[0]] * len(means)


def test_a_loader_made_for_one_process_is_refused(together: tuple[Ranks, Path]) -> None:
    for rank in together[0]:
        assert "was made for 1 processes and there are" in rank["foreign_loader"]


@pytest.mark.parametrize(
    ("environment", "is_first"),
    [
        ({}, True),
        ({"RANK": "3"}, True),  # some batch system's, and nobody to join
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, True),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, False),
    ],
)
def test_before_there_is_a_group_torchrun_says_who_is_first(
    environment: dict[str, str], is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert stoker.train.is_first() == is_first
