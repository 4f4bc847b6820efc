"""How a stream divides itself among workers is found out by being each of them, in forked processes."""

import fcntl
import itertools
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ChainDataset, DataLoader, IterableDataset, get_worker_info

from stoker.doctor._record import Division
from stoker.doctor.making import _streams
from stoker.doctor.making._streams import Part, division, look_at_stream
from stoker.doctor.making._trial import TrialError, try_samples
from support.forked import Forked

WHOLE, AMONG_EIGHT, REPEATED = 40, Division(8, 40, is_whole=True), Division(1, 40, is_whole=True)


class Stream(IterableDataset[Any]):
    """Gives what a function of itself and the worker gives."""

    def __init__(self, give: Callable[["Stream", Any], Any]) -> None:
        self.give = give
        self.samples = list(range(WHOLE))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.give(self, get_worker_info()))


def by_steps(stream: Stream, info: Any) -> list[int]:
    return stream.samples if info is None else stream.samples[info.id :: info.num_workers]


def everything(stream: Stream, _info: Any) -> list[int]:
    return stream.samples


def shuffled_by_worker(stream: Stream, info: Any) -> list[int]:
    """Asks how many workers there are, but only for its seed."""
    seed = 0 if info is None else info.num_workers + info.id
    return random.Random(seed).sample(stream.samples, WHOLE)


def of_one_shard(stream: Stream, info: Any) -> list[int]:
    return stream.samples if info is None or info.id == 0 else []


def of_two_shards(stream: Stream, info: Any) -> list[int]:
    shards = [stream.samples[:20], stream.samples[20:]]
    return stream.samples if info is None else [*itertools.chain(*shards[info.id :: info.num_workers])]


def divided_after_the_first(stream: Stream, info: Any) -> Iterator[int]:
    yield -1
    yield from by_steps(stream, info)


def changing_itself(stream: Stream, info: Any) -> list[int]:
    stream.samples = by_steps(stream, info)
    return stream.samples


def refusing(stream: Stream, info: Any) -> list[int]:
    if info is not None:
        raise ValueError("one worker at most")
    return stream.samples


def leaving(stream: Stream, info: Any) -> list[int]:
    if info is not None:
        sys.stdout.write("one worker at most")
        sys.exit(3)
    return stream.samples


def endless_by_chance(_stream: Stream, _info: Any) -> Iterator[float]:
    while True:
        yield random.random()


def endless_by_steps(_stream: Stream, info: Any) -> Iterator[int]:
    number, step = (0, 1) if info is None else (info.id, info.num_workers)
    while True:
        yield number
        number += step


def endless(_stream: Stream, _info: Any) -> Iterator[torch.Tensor]:
    number = 0
    while True:
        yield torch.tensor(number)
        number += 1


@pytest.fixture(autouse=True)
def _not_cut_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_streams, "_MAX_SAMPLES", 100)
    monkeypatch.setattr(_streams, "_BUDGET_S", 60.0)


@pytest.mark.parametrize(
    ("give", "expected"),
    [
        (by_steps, AMONG_EIGHT),
        (everything, REPEATED),
        (shuffled_by_worker, REPEATED),
        (of_one_shard, None),
        (of_two_shards, Division(2, 40, is_whole=True)),
        (divided_after_the_first, None),
        (changing_itself, None),
        (refusing, None),
        (leaving, None),
        (endless_by_chance, None),
        (endless_by_steps, Division(8, 100, is_whole=False)),
        (endless, Division(1, 50, is_whole=False)),
    ],
)
def test_it_is_found_out_by_trying(
    give: Callable[[Stream, Any], Any], expected: Division | None, capfd: pytest.CaptureFixture[str]
) -> None:
    stream = Stream(give)
    assert look_at_stream(DataLoader(stream)) == (True, expected)
    assert stream.samples == list(range(WHOLE))
    assert get_worker_info() is None
    assert capfd.readouterr() == ("", "")


def test_what_was_found_is_what_two_workers_give() -> None:
    for give, repeats in ((by_steps, 1), (everything, 2), (shuffled_by_worker, 2)):
        given = sorted(int(one) for one in DataLoader(Stream(give), batch_size=None, num_workers=2))
        assert given == sorted(list(range(WHOLE)) * repeats)


def test_a_chain_is_divided_only_if_all_of_it_is() -> None:
    for parts in ([by_steps, everything], [endless_by_steps, everything]):
        mixed = ChainDataset([Stream(part) for part in parts])
        assert look_at_stream(DataLoader(mixed)) == (True, None)
    alike = ChainDataset([Stream(by_steps), Stream(by_steps)])
    assert look_at_stream(DataLoader(alike)) == (True, Division(8, 80, is_whole=True))


def take_my_part(worker: int) -> None:
    info: Any = get_worker_info()
    info.dataset.samples = info.dataset.samples[worker :: info.num_workers]


def test_an_initialiser_of_workers_may_divide_it() -> None:
    loader = DataLoader(Stream(everything), worker_init_fn=take_my_part)
    assert look_at_stream(loader) == (True, AMONG_EIGHT)


def part(samples: list[int]) -> Part:
    digests: list[bytes | None] = [bytes([number]) for number in samples]
    return Part(digests, has_ended=False, num_again=None, first_again=digests[0])


def few_of(whole: Part, worker: int) -> list[int]:
    return [digest[0] for digest in whole.digests[worker::2] if digest]


def test_of_a_beginning_only_what_is_shown_counts() -> None:
    whole = part([*range(20)])
    assert division(whole, part([*range(0, 20, 2)]), part([*range(1, 20, 2)])) is not None
    assert division(whole, part([*range(10)]), part([*range(50, 60)])) is None  # other shards, or other seeds
    assert division(part([0, 1]), part([0]), part([1])) is None
    few = part([number % 8 for number in range(20)])  # which come again and again
    assert division(few, part(few_of(few, 0)), part(few_of(few, 1))) is not None
    fewer = part([number % 3 for number in range(20)])
    assert division(fewer, part(few_of(fewer, 0)), part(few_of(fewer, 1))) is None
    elsewhere = replace(part([*range(1, 20, 2)]), first_again=b"another")  # where another pass begins
    assert division(whole, part([*range(0, 20, 2)]), elsewhere) is None


def test_a_stream_that_fails_in_a_forked_process_may_still_be_read_in_ours() -> None:
    def only_here(stream: Stream, _info: Any) -> list[int]:
        if os.getpid() != here:
            raise RuntimeError("cannot be used in a forked process")
        return stream.samples

    here = os.getpid()
    loader = DataLoader(Stream(only_here), batch_size=4)
    assert look_at_stream(loader) == (True, None)
    found, _ = try_samples(loader, name="train", budget_s=0.2)
    assert found.division is None
    assert found.num_samples > 3


class Locked(IterableDataset[int]):
    """Nobody else may read it while somebody does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[int]:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield from range(WHOLE)
        finally:
            os.close(descriptor)


def test_a_stream_that_cannot_be_read_twice_at_once_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_streams, "_BUDGET_S", 0.1)
    monkeypatch.setattr(_streams, "_PATIENCE_S", 0.5)
    loader = DataLoader(Locked(tmp_path / "lock"))
    held = iter(loader)
    next(held)
    with pytest.raises(TrialError, match="a second time"):
        try_samples(loader, name="train", budget_s=1.0)
    del held


class Telling(IterableDataset[int]):
    """Tells that it was begun, and then waits for ever."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def __iter__(self) -> Iterator[int]:
        os.write(self.pipe, b"begun")
        signal.pause()
        yield 0


def test_processes_that_wait_for_ever_end_though_nobody_is_left_to_end_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_streams, "_BUDGET_S", 0.2)
    monkeypatch.setattr(_streams, "_PATIENCE_S", 0.7)
    begun, tells = os.pipe()
    examiner = Forked(lambda: look_at_stream(DataLoader(Telling(tells))))
    os.read(begun, 5)
    os.kill(examiner.pid, signal.SIGKILL)
    assert examiner.wait().returncode == -signal.SIGKILL  # which also waits for its own children
    os.close(begun)
    os.close(tells)
