import threading
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker.augment import Pipeline
from stoker.augment.signal import GaussianNoise, TimeMask, TimeShift
from stoker.errors import UsageError

COUNT = 50


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    rng = np.random.default_rng(0)
    samples = [{"x": rng.standard_normal((1, 64)).astype(np.float32), "y": i} for i in range(COUNT)]
    return stoker.pack(samples, tmp_path_factory.mktemp("a") / "a.stoker", workers=0, progress=False)


def loader(
    store: stoker.Store, *, ahead: bool | int | None, augment: Any = None, **options: Any
) -> stoker.Loader:
    noisy = Pipeline(TimeShift(0.2), GaussianNoise((10, 20)), TimeMask(9), roles={"x": "signal"}, seed=5)
    return stoker.Loader(store, 8, seed=1, augment=augment or noisy, augment_ahead=ahead, **options)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("stoker-augment")]


several = pytest.mark.parametrize("num_ahead", [1, 2, 5])


@several
def test_batches_and_states_are_those_without(store: stoker.Store, num_ahead: int) -> None:
    with loader(store, ahead=num_ahead) as far, loader(store, ahead=False) as near:
        for _ in range(3):
            num_steps = 0
            for a, b in zip(far, near, strict=True):
                assert far.state_dict() == near.state_dict()
                assert a.keys() == b.keys()
                assert all(torch.equal(a[name], b[name]) for name in a)
                num_steps += 1
            assert num_steps == len(far)


@several
def test_every_step_can_be_resumed(store: stoker.Store, num_ahead: int) -> None:
    with loader(store, ahead=False) as plain:
        whole = [batch["x"].clone() for batch in plain]
    for left_at in range(1, len(whole)):
        with loader(store, ahead=num_ahead) as first, loader(store, ahead=num_ahead) as second:
            batches = iter(first)
            for _ in range(left_at):
                next(batches)
            second.load_state_dict(first.state_dict())
            rest = [batch["x"].clone() for batch in second]
        assert all(torch.equal(a, b) for a, b in zip(rest, whole[left_at:], strict=True))


def test_the_next_batch_is_made_while_one_is_used(store: stoker.Store) -> None:
    second = threading.Event()
    names: list[str] = []

    def augment(batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        names.append(threading.current_thread().name)
        if len(names) == 2:
            second.set()
        return batch

    with loader(store, ahead=True, augment=augment) as ahead:
        for batch in ahead:
            assert second.wait(60)
            assert len(batch["index"])
    assert len(names) == len(ahead)
    assert all(name.startswith("stoker-augment") for name in names)
    assert threads() == []


def test_several_are_made_at_once_and_given_in_order(store: stoker.Store) -> None:
    together = threading.Barrier(3)
    first: list[int] = []

    def augment(batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        if len(first) < 3:
            first.append(1)
            together.wait(60)  # nobody goes on alone
        return batch

    with loader(store, ahead=3, augment=augment) as ahead, loader(store, ahead=False) as plain:
        for a, b in zip(ahead, plain, strict=True):
            assert torch.equal(a["index"], b["index"])
    assert threads() == []


def test_nobody_waits_for_the_batches_behind_one_that_is_ready(store: stoker.Store) -> None:
    used = threading.Event()
    calls: list[int] = []

    def augment(batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        calls.append(1)
        if len(calls) > 1:
            assert used.wait(60)
        return batch

    with loader(store, ahead=2, augment=augment) as ahead:
        for _ in ahead:
            used.set()
    assert len(calls) == len(ahead)


@pytest.mark.parametrize("number", [-1, 2.5, "2"])
def test_what_is_no_number_of_batches_is_refused(store: stoker.Store, number: Any) -> None:
    with pytest.raises(UsageError, match=rf"must be True, False or a number of batches, got {number!r}"):
        loader(store, ahead=number)


@pytest.mark.parametrize("num_ahead", [0, 1, 2])
def test_an_augmentation_that_runs_out_is_an_error(store: stoker.Store, num_ahead: int) -> None:
    def augment(batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**batch, "n": next(numbers)}

    numbers = iter(range(3))
    with loader(store, ahead=num_ahead, augment=augment) as some, pytest.raises(RuntimeError):
        list(some)


def test_every_thread_has_as_many_threads_of_torch_as_the_loop(store: stoker.Store) -> None:
    seen: list[int] = []

    def augment(batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        seen.append(torch.get_num_threads())
        return batch

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with loader(store, ahead=2, augment=augment) as some:
            list(some)
    finally:
        torch.set_num_threads(before)
    assert seen == [3] * len(seen)


def test_on_a_cpu_alone_it_is_not_done_unless_asked(
    store: stoker.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_there in (False, True):
        monkeypatch.setattr(torch.accelerator, "is_available", lambda found=is_there: found)
        with loader(store, ahead=None) as some:
            batches = iter(some)
            next(batches)
            assert bool(threads()) == is_there
    assert threads() == []


@several
def test_an_error_comes_with_its_own_batch(store: stoker.Store, num_ahead: int) -> None:
    with loader(store, ahead=False) as plain:
        third = [batch["index"] for batch in plain][2]

    def augment(batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        if torch.equal(batch["index"], third):
            raise ZeroDivisionError("of the third")
        return batch

    with loader(store, ahead=num_ahead, augment=augment) as ahead:
        batches = iter(ahead)
        next(batches)
        next(batches)
        with pytest.raises(ZeroDivisionError, match="of the third"):
            next(batches)
        assert ahead.state_dict()["consumed"] == 16
    assert threads() == []


@several
def test_it_may_be_left_begun_anew_and_closed_at_any_time(store: stoker.Store, num_ahead: int) -> None:
    with loader(store, ahead=False) as plain:
        plain.set_epoch(1)
        expected = [batch["x"].clone() for batch in plain]
    ahead = loader(store, ahead=num_ahead)
    left = iter(ahead)
    next(left)
    found = [batch["x"].clone() for batch in ahead]  # the second epoch, with the first one still held
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    with pytest.raises(StopIteration):
        next(left)
    held = iter(ahead)
    next(held)
    ahead.close()
    assert threads() == []


@several
def test_a_batch_that_is_kept_never_changes(store: stoker.Store, num_ahead: int) -> None:
    with loader(store, ahead=num_ahead, num_workers=1) as ahead:
        kept, copies = [], []
        for _ in range(3):
            for batch in ahead:
                kept.append(batch["x"])
                copies.append(batch["x"].clone())
    assert all(torch.equal(a, b) for a, b in zip(kept, copies, strict=True))
