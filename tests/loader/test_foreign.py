"""Any map-style Dataset through the loader: processes, seeds, errors, kills."""

import gc
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker.errors import BadSampleError, UsageError, WorkerDiedError


class Noisy:
    """Random in all three ways that people use."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, i: int) -> dict[str, Any]:
        noise = [random.random(), np.random.rand(), torch.rand(1).item()]  # noqa: NPY002
        return {"x": np.full(3, i, np.float32), "noise": np.array(noise), "name": f"n{i}", "y": i}


class Failing(Noisy):
    def key(self, i: int) -> str:
        return f"file-{i}.wav"

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i in {5, 11}:
            raise OSError("disk on fire")
        return super().__getitem__(i)


class Deadly(Noisy):
    def __getitem__(self, i: int) -> dict[str, Any]:
        if i == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(i)


class Pairs:
    """Tuples of unequal size, as people give them."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.arange(i + 1), i


def epoch_of(loader: stoker.Loader) -> dict[int, list[float]]:
    """Each sample's noise, by number."""
    found: dict[int, list[float]] = {}
    for batch in loader:
        assert batch["x"][:, 0].tolist() == batch["index"].tolist() == batch["y"].tolist()
        assert batch["name"] == [f"n{i}" for i in batch["index"].tolist()]
        found |= dict(zip(batch["index"].tolist(), batch["noise"].tolist(), strict=True))
    return found


def test_random_numbers_depend_on_seed_epoch_and_sample_alone() -> None:
    runs = []
    for batch_size, workers in ((4, 2), (7, 1), (5, 0)):
        with stoker.Loader(Noisy(), batch_size, num_workers=workers, seed=3) as loader:
            runs.append([epoch_of(loader), epoch_of(loader)])
    assert runs[0] == runs[1] == runs[2]
    first, second = runs[0]
    assert sorted(first) == list(range(23))
    assert first != second
    assert len({noise for values in first.values() for noise in values}) == 3 * 23
    with stoker.Loader(Noisy(), 4, num_workers=0, seed=4) as other:
        assert epoch_of(other) != first


def test_loading_in_place_leaves_the_users_random_numbers_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    with stoker.Loader(Noisy(), 4, num_workers=0) as loader:
        epoch_of(loader)
    assert torch.equal(torch.rand(2), expected)


def test_a_dataset_resumes_at_every_step() -> None:
    with stoker.Loader(Noisy(), 4, num_workers=0) as loader:
        whole, states = [], [loader.state_dict()]
        for batch in loader:
            whole += batch["index"].tolist()
            states.append(loader.state_dict())
    for step, state in enumerate(states):
        with stoker.Loader(Noisy(), 5, num_workers=0) as resumed:
            resumed.load_state_dict(state)
            assert [i for batch in resumed for i in batch["index"].tolist()] == whole[4 * step :]


def test_tuples_of_unequal_size_are_padded() -> None:
    with stoker.Loader(Pairs(), 3, shuffle=False, num_workers=1) as loader:
        batch = next(iter(loader))
    assert batch["x"].tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 2]]
    assert batch["x_length"].tolist() == [1, 2, 3]
    assert batch["y"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_a_worker_names_the_sample_and_the_cause(workers: int) -> None:
    with (
        stoker.Loader(Failing(), 4, shuffle=False, num_workers=workers) as loader,
        pytest.raises(BadSampleError, match=r"sample 'file-5.wav': OSError: disk on fire") as caught,
    ):
        list(loader)
    assert "in __getitem__" in caught.value.__notes__[0]


def test_bad_samples_of_a_dataset_can_be_skipped() -> None:
    with stoker.Loader(Failing(), 1, shuffle=False, num_workers=2, on_bad_sample="skip") as loader:
        seen = [int(batch["index"][0]) for batch in loader]
        assert loader.state_dict()["consumed"] == 23
    assert seen == [i for i in range(23) if i not in {5, 11}]
    assert [error.key for error in loader.bad_samples] == ["file-5.wav", "file-11.wav"]


def test_a_killed_worker_is_told_and_nothing_hangs() -> None:
    with (
        stoker.Loader(Deadly(), 4, shuffle=False, num_workers=1) as loader,
        pytest.raises(WorkerDiedError, match="was killed"),
    ):
        list(loader)


def test_workers_live_across_epochs_and_end_with_the_loader(tmp_path: Path) -> None:
    class Where(Noisy):
        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"pid": os.getpid()}

    with stoker.Loader(Where(), 4, num_workers=2) as loader:
        first = {int(pid) for batch in loader for pid in batch["pid"]}
        second = {int(pid) for batch in loader for pid in batch["pid"]}
    assert first == second
    assert os.getpid() not in first
    assert not any(Path(f"/proc/{pid}").exists() for pid in first)
    assert tmp_path.exists()


def test_what_is_no_dataset_is_refused() -> None:
    with pytest.raises(UsageError, match="got generator"):
        stoker.Loader(i for i in range(3))
    with pytest.raises(UsageError, match="fields can be chosen of a store"):
        stoker.Loader(Noisy(), fields=["x"])


@pytest.mark.parametrize("keeps", [True, False], ids=["used by the child", "dropped by the child"])
def test_a_loader_with_workers_survives_a_fork(keeps: bool) -> None:
    loader = stoker.Loader(Noisy(), 4, num_workers=2, seed=1)
    with stoker.Loader(Noisy(), 4, num_workers=0, seed=1) as plain:
        expected = [epoch_of(plain), epoch_of(plain)]
    batches = iter(loader)
    first = next(batches)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            del batches, first
            if keeps:
                loader.set_epoch(0)
                code = 0 if epoch_of(loader) == expected[0] else 2
                loader.close()
            else:
                del loader
                gc.collect()
                code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    rest = [*batches]  # by the workers that there were
    numbers = torch.cat([batch["index"] for batch in [first, *rest]]).tolist()
    assert sorted(numbers) == list(range(23))
    assert epoch_of(loader) == expected[1]
    loader.close()
