"""Real DataLoaders with real workers. Modules at file level, so that spawned workers find them."""

import gc
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torch.utils.data._utils import fetch, worker

from stoker.doctor.making import _fetch
from stoker.doctor.making._workers import Board, MadeBatch

FETCH_S, TRANSFORM_S, COLLATE_S = 0.004, 0.003, 0.005


def wait_for(seconds: float) -> None:
    """Take this long, without the processor: a busy machine adds to it but does not multiply it."""
    time.sleep(seconds)  # the work whose length the probes must find


class Compose:
    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x


class Slow:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        wait_for(TRANSFORM_S)
        return x


class Noise:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3)


class Items(Dataset[torch.Tensor]):
    def __init__(self, length: int = 8) -> None:
        self.length = length
        self.transform = Compose(Slow(), Noise())

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        wait_for(FETCH_S)
        return self.transform(torch.full((3,), float(index)))


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self) -> None:
        self.transform = Slow()

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        for index in range(3 if info is None or info.id == 0 else 1):
            yield self.transform(torch.full((3,), float(index)))


def collate(samples: list[torch.Tensor]) -> torch.Tensor:
    wait_for(COLLATE_S)
    return torch.stack(samples)


def observe(folder: Path, loader: DataLoader[Any], *, epochs: int = 2) -> tuple[list[MadeBatch], list[Any]]:
    """Run the loader as a training loop does, prepared as the loop's probe prepares it."""
    batches = []
    with Board.create(folder) as board:
        with board.installed():
            for epoch in range(epochs):
                if epoch == 0 or not loader.persistent_workers:
                    board.prepare(loader, 7, epoch)
                batches += list(loader)
            loader._iterator = None
            gc.collect()
        made = board.read()
        assert board.num_lost == 0
    return made, batches


def loaded(**settings: Any) -> DataLoader[Any]:
    return DataLoader(Items(), batch_size=2, shuffle=True, collate_fn=collate, **settings)


def check(made: list[MadeBatch], *, num_workers: int) -> None:
    assert sorted((batch.epoch, batch.number) for batch in made) == [(e, n) for e in (0, 1) for n in range(4)]
    for batch in made:
        assert batch.loader_number == 7
        assert batch.worker == (batch.number % num_workers if num_workers else None)
        assert batch.num_samples == 2
        assert batch.num_bytes == 2 * 3 * 4
        assert list(batch.transforms) == ["Slow", "Noise"]
        assert batch.fetch_ns + batch.collate_ns == batch.end_ns - batch.begin_ns
        assert batch.collate_ns / 1e9 >= COLLATE_S
        assert batch.transforms["Slow"] >= 2 * TRANSFORM_S
        assert batch.fetch_ns / 1e9 >= 2 * FETCH_S + sum(batch.transforms.values())
        assert batch.fetch_cpu_ns < batch.fetch_ns  # it waits
        assert batch.queued_ns is not None
        assert 0 <= batch.queued_ns < batch.end_ns - batch.begin_ns
    # a busy machine delays single waits, not most of them
    middle = sorted(made, key=lambda batch: batch.fetch_ns)[len(made) // 4]
    assert middle.fetch_ns / 1e9 < 5 * (FETCH_S + TRANSFORM_S) * 2


@pytest.mark.parametrize(
    ("num_workers", "settings"),
    [
        pytest.param(0, {}, id="main process"),
        pytest.param(2, {}, id="fork"),
        pytest.param(2, {"persistent_workers": True}, id="persistent"),
        pytest.param(1, {"persistent_workers": True, "multiprocessing_context": "spawn"}, id="spawn"),
    ],
)
def test_every_batch_is_timed_where_it_is_made(
    tmp_path: Path, num_workers: int, settings: dict[str, Any]
) -> None:
    originals = (fetch._MapDatasetFetcher.fetch, fetch._BaseDatasetFetcher.__init__, worker._worker_loop)
    settings = {"num_workers": num_workers, **settings}
    is_repeatable = not settings.get("persistent_workers")  # else a second loader has other seeds
    torch.manual_seed(3)
    expected = [*loaded(**settings), *loaded(**settings), torch.rand(1)] if is_repeatable else []
    torch.manual_seed(3)
    loader = loaded(**settings)
    transform = loader.dataset.transform  # type: ignore[attr-defined]
    members = list(transform.transforms)
    made, batches = observe(tmp_path, loader)
    check(made, num_workers=num_workers)
    if is_repeatable:
        assert all(torch.equal(a, b) for a, b in zip(expected, [*batches, torch.rand(1)], strict=True))
    assert transform.transforms == members
    assert all(a is b for a, b in zip(transform.transforms, members, strict=True))
    assert originals == (
        fetch._MapDatasetFetcher.fetch,
        fetch._BaseDatasetFetcher.__init__,
        worker._worker_loop,
    )


def test_an_iterable_data_set_is_timed_and_its_end_is_no_batch(tmp_path: Path) -> None:
    made, batches = observe(tmp_path, DataLoader(Stream(), batch_size=2, num_workers=2), epochs=1)
    assert len(batches) == 3  # 2 and 1 of the first worker, 1 of the second
    assert sorted((batch.number, batch.worker, batch.num_samples) for batch in made) == [
        (0, 0, 2),
        (1, 1, 1),
        (2, 0, 1),
    ]
    assert all(batch.transforms["Slow"] >= TRANSFORM_S for batch in made)


class Broken(Items):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 7:
            raise LookupError(f"no sample {index}")
        return super().__getitem__(index)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_exception_reaches_the_loop_with_the_users_lines(tmp_path: Path, num_workers: int) -> None:
    loader = DataLoader(Broken(), batch_size=2, num_workers=num_workers)
    with Board.create(tmp_path) as board, board.installed():
        board.prepare(loader, 0, 0)
        iterator: Any = iter(loader)
        text = ""
        try:
            list(iterator)
        except LookupError as error:
            text = "".join(traceback.format_exception(error))
        if num_workers:
            iterator._shutdown_workers()
        assert [batch.number for batch in board.read()][:2] == [0, 1]
    assert "no sample 7" in text
    assert "in __getitem__" in text
    assert all(type(member) in {Slow, Noise} for member in loader.dataset.transform.transforms)  # type: ignore[attr-defined]


class Nested(Dataset[torch.Tensor]):
    """Makes each sample with a loader of its own."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return next(iter(DataLoader(torch.arange(4.0), batch_size=4))) + index  # type: ignore[arg-type]


def quick_batches(folder: Path, num_workers: int) -> list[int]:
    numbers: Any = range(80)
    loader: DataLoader[Any] = DataLoader(numbers, num_workers=num_workers)
    made, batches = observe(folder, loader, epochs=1)
    assert torch.cat(batches).tolist() == list(range(80))
    return [batch.number for batch in made]


def test_of_many_quick_batches_of_the_main_process_some_are_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(quick_batches(tmp_path / "worker", 1)) == list(range(80))  # no loop waits for these
    monkeypatch.setattr(_fetch, "_QUICK_NS", 1 << 62)
    looked_into = quick_batches(tmp_path / "quick", 0)
    assert looked_into[:32] == list(range(32))
    assert len(looked_into) - 32 == pytest.approx(48 / 8, abs=1)
    monkeypatch.setattr(_fetch, "_QUICK_NS", 0)
    assert quick_batches(tmp_path / "slow", 0) == list(range(80))


def looked_into(num_batches: int, *, slow: Callable[[int], bool]) -> list[int]:
    """Of batches that take no time, but for some: which the probe does not pass over."""
    probe = _fetch.Probe(
        SimpleNamespace(dataset=range(1), collate_fn=list, auto_collation=True), keep_in=False
    )
    found: list[int] = []
    probe.keep = lambda number, _figures, _transforms: found.append(number)
    for number in range(num_batches):
        spent = 2 * _fetch._QUICK_NS if slow(number) else 0
        if not probe.passes_over():
            probe.record(0, spent, 0, 0, [], [])
    return found


def test_a_slow_batch_now_and_then_does_not_make_all_be_looked_into() -> None:
    assert len(looked_into(8000, slow=lambda number: number % 500 == 0)) < 1500


def test_where_many_are_slow_all_are_looked_into() -> None:
    assert looked_into(400, slow=lambda number: number % 8 == 3) == list(range(400))
    turned = looked_into(400, slow=lambda number: number >= 200)
    assert turned[-130:] == list(range(270, 400))


@pytest.mark.parametrize("rhythm", [4, 8, 20, 40, 64, 100])
@pytest.mark.parametrize("beat", [0, 1, 3])
def test_no_rhythm_of_slow_batches_is_overlooked(rhythm: int, beat: int) -> None:
    found = looked_into(20_000, slow=lambda number: number % rhythm == beat)
    slow = [number for number in found if number % rhythm == beat]
    assert len(slow) / len(found) == pytest.approx(1 / rhythm, rel=0.2)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_inside_a_data_set_is_part_of_its_fetch(tmp_path: Path, num_workers: int) -> None:
    made, _ = observe(tmp_path, DataLoader(Nested(), num_workers=num_workers), epochs=1)
    assert [(batch.epoch, batch.number) for batch in made] == [(0, 0), (0, 1)]


def test_two_loaders_side_by_side_are_kept_apart(tmp_path: Path) -> None:
    first, second = loaded(), DataLoader(Items(4), batch_size=1)
    with Board.create(tmp_path) as board, board.installed():
        board.prepare(first, 0, 0)
        one = iter(first)
        board.prepare(second, 1, 0)
        two = iter(second)
        for _ in range(2):
            next(one), next(two)
        unannounced = iter(DataLoader(Items(2)))
        next(unannounced)
        made = board.read()
    assert [(batch.loader_number, batch.number) for batch in made] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [batch.num_samples for batch in made] == [2, 1, 2, 1]


def test_without_room_for_timings_the_workers_run_on(tmp_path: Path) -> None:
    folder = tmp_path / "board"
    loader = DataLoader(Items(2), num_workers=1)
    with Board.create(folder) as board, board.installed():
        board.prepare(loader, 0, 0)
        folder.rmdir()
        assert len(list(loader)) == 2
        assert board.read() == []


class Scaler:
    def transform(self, x: torch.Tensor) -> torch.Tensor:
        until = time.thread_time() + 0.003
        while time.thread_time() < until:
            x = x * 1.0
        return x


class Scaled(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.by = Scaler()

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.by.transform(torch.ones(2))


def test_the_lines_on_which_workers_spend_their_time_are_named(tmp_path: Path) -> None:
    loader = DataLoader(Scaled(), batch_size=10, num_workers=1)
    with Board.create(tmp_path, user_root=str(Path(__file__).parent)) as board:
        with board.installed():
            for epoch in range(2):
                board.prepare(loader, 0, epoch)
                list(loader)
        lines = board.read_lines()
    total = sum(line.seconds for line in lines)
    in_scaler = [line for line in lines if line.place.function == "Scaler.transform"]
    assert total > 0.2  # of 0.36 s
    assert sum(line.seconds for line in in_scaler) > 0.8 * total
    assert {line.process for line in lines} == {"workers"}
    assert {line.place.file for line in lines} == {__file__}
    assert "thread_time() < until" in "".join(line.place.text for line in in_scaler)
