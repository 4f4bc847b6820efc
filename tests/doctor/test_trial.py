import itertools
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, SequentialSampler

from stoker.doctor.making import _purity, _trial
from stoker.doctor.making._purity import Checkpoint, digest
from stoker.doctor.making._trial import TrialError, try_samples


class Clock:
    """Stands still, but for what the data set says it takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Takes:
    """A transform that takes so long."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.clock.now += self.seconds
        return x + 1


class Flip(Takes):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x.flip(0) if random.random() < 0.01 else x)


class OwnNoise(Takes):
    """Random by a generator of its own, which nobody else sees."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__(clock, seconds)
        self.generator = np.random.default_rng()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x) + float(self.generator.random())


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x


class Items(Dataset[torch.Tensor]):
    def __init__(self, clock: Clock, *kinds: type[Takes], length: int = 1000) -> None:
        self.clock, self.length, self.asked = clock, length, list[int]()
        self.transform = Compose([kind(clock, 0.02) for kind in kinds])

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        self.asked.append(index)
        self.clock.now += 0.01
        return self.transform(torch.full((4,), float(index)))


def trial(dataset: Any, clock: Any, **settings: Any) -> Any:
    loader = DataLoader(dataset, **{"batch_size": 4, **settings})
    found, lines = try_samples(loader, name="train", budget_s=10.0, clock=clock)
    assert all(line.process == "trial" for line in lines)
    return found


class Groups(Dataset[torch.Tensor]):
    """Whose samples are asked for by lists of numbers."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __len__(self) -> int:
        return 100

    def __getitem__(self, numbers: list[int]) -> torch.Tensor:
        self.clock.now += 0.05
        return torch.tensor(numbers)


class Pairs(Sampler[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        return iter([[i, i + 1] for i in range(0, 100, 2)])

    def __len__(self) -> int:
        return 50


class Batches(Sampler[list[list[int]]]):
    def __iter__(self) -> Iterator[list[list[int]]]:
        return iter([list(Pairs())])


@pytest.mark.parametrize(
    "settings",
    [{"sampler": Pairs()}, {"batch_size": 1, "batch_sampler": Batches()}],
    ids=["samples", "batches"],
)
def test_a_sampler_of_ones_own_says_what_a_sample_is_asked_by(settings: dict[str, Any]) -> None:
    clock = Clock()
    found = trial(Groups(clock), clock, **settings)
    assert found.seconds_per_sample == pytest.approx(0.05)
    assert found.bytes_per_sample == 16
    assert found.is_deterministic is True


def test_a_deterministic_sample_costs_what_it_takes_and_can_be_kept_whole() -> None:
    clock = Clock()
    dataset = Items(clock, Takes, Takes)
    found = trial(dataset, clock)
    assert found.loader == "train"
    assert found.seconds_per_sample == pytest.approx(0.05)
    assert found.spread == pytest.approx(0, abs=1e-9)
    assert found.num_samples == pytest.approx(10.0 * 0.5 / 0.05, abs=2)
    assert list(found.transforms) == ["Takes", "Takes 2"]
    assert found.bytes_per_sample == 16
    assert found.is_deterministic is True
    assert found.deterministic_s_per_sample == pytest.approx(0.05)
    assert found.transfer_s_per_batch is not None
    assert len(set(dataset.asked[:100])) == 100  # spread over the set
    assert max(dataset.asked[:20]) - min(dataset.asked[:20]) > 900


@pytest.mark.parametrize("kind", [Flip, OwnNoise])
def test_a_sample_can_be_kept_up_to_its_first_random_transform(kind: type[Takes]) -> None:
    clock = Clock()
    found = trial(Items(clock, Takes, kind, Takes), clock)
    assert found.is_deterministic is False
    assert found.deterministic_s_per_sample == pytest.approx(0.03)


def test_functions_that_a_sample_is_made_by_tell_how_far_it_is_the_same() -> None:
    clock = Clock()

    def read(index: int) -> torch.Tensor:
        clock.now += 0.03
        return torch.full((4,), float(index))

    def augment(x: torch.Tensor) -> torch.Tensor:
        clock.now += 0.01
        return x + float(np.random.rand())  # noqa: NPY002 - as data sets do

    class Plain(Items):
        def __getitem__(self, index: int) -> torch.Tensor:
            return augment(read(index))

    found = trial(Plain(clock), clock)
    assert found.is_deterministic is False
    assert found.deterministic_s_per_sample == pytest.approx(0.03)
    assert sys.getprofile() is None


def test_randomness_before_the_first_transform_leaves_nothing_to_tell() -> None:
    class Cropped(Items):
        def __getitem__(self, index: int) -> torch.Tensor:
            start = int(np.random.rand() > 2)  # noqa: NPY002 - draws, and is always 0
            return super().__getitem__(index)[start:]

    class Shuffled(Items):
        def __getitem__(self, index: int) -> torch.Tensor:
            return self.transform(torch.rand(4))

    clock = Clock()
    assert trial(Cropped(clock, Takes), clock).deterministic_s_per_sample is None
    found = trial(Shuffled(clock, Takes), clock)
    assert found.is_deterministic is False
    assert found.deterministic_s_per_sample is None


def test_the_random_state_of_the_script_is_untouched() -> None:
    clock, generator = Clock(), torch.Generator()
    dataset = Items(clock, Flip)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1), torch.rand(1, generator=generator)  # noqa: NPY002
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    generator = torch.Generator()
    threads = torch.get_num_threads()
    trial(dataset, clock, shuffle=True, generator=generator)
    assert expected == (random.random(), np.random.rand(), torch.rand(1), torch.rand(1, generator=generator))  # noqa: NPY002
    assert torch.get_num_threads() == threads
    assert type(dataset.transform.transforms[0]) is Flip


def test_an_iterable_data_set_is_begun_anew() -> None:
    class Stream(IterableDataset[torch.Tensor]):
        num_begun = 0

        def __iter__(self) -> Iterator[torch.Tensor]:
            self.num_begun += 1
            for number in range(5):
                clock.now += 0.1
                yield torch.full((2,), float(number))

    clock, stream = Clock(), Stream()
    found = trial(stream, clock)
    assert found.seconds_per_sample == pytest.approx(0.1)
    assert found.is_deterministic is True
    assert found.bytes_per_sample == 8
    assert stream.num_begun >= 3


def test_samples_that_are_made_together_are_timed_together() -> None:
    class Together(Items):
        def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
            self.clock.now += 0.4
            return [torch.full((4,), float(index)) for index in indices]

    clock = Clock()
    found = trial(Together(clock), clock, batch_size=8)
    assert found.seconds_per_sample == pytest.approx(0.05)
    assert found.num_samples % 8 == 0


def test_without_automatic_batching_the_sampler_gives_the_indices() -> None:
    class Batches(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, indices: list[int]) -> torch.Tensor:
            clock.now += 0.1
            return torch.tensor(indices)

    clock, dataset = Clock(), Batches()
    sampler = BatchSampler(SequentialSampler(dataset), batch_size=5, drop_last=False)
    found = trial(dataset, clock, batch_size=None, sampler=sampler)
    assert found.seconds_per_sample == pytest.approx(0.1)
    assert found.bytes_per_sample == 40


def test_a_custom_batch_sampler_tells_the_size_of_a_batch() -> None:
    clock = Clock()
    dataset = Items(clock)
    loader = DataLoader(dataset, batch_sampler=[[0, 1, 2], [3, 4, 5]])
    sizes = []
    loader.collate_fn = lambda samples: sizes.append(len(samples)) or torch.stack(samples)  # type: ignore[func-returns-value]
    try_samples(loader, name="train", budget_s=1.0, clock=clock)
    assert set(sizes) == {3}


def test_a_data_set_that_fails_is_told_by_one_kind_of_error() -> None:
    class Broken(Items):
        def __getitem__(self, index: int) -> torch.Tensor:
            if len(self.asked) > 10:
                raise FileNotFoundError("recording 12 is gone")
            return super().__getitem__(index)

    clock = Clock()
    dataset = Broken(clock, Takes)
    with pytest.raises(TrialError, match="FileNotFoundError: recording 12 is gone"):
        trial(dataset, clock)
    assert type(dataset.transform.transforms[0]) is Takes


def test_a_batch_that_can_not_be_sent_has_no_transfer_time(capfd: pytest.CaptureFixture[str]) -> None:
    clock = itertools.count().__next__
    seconds = _trial._transfer(lambda _: threading.Lock(), [], clock=clock, timeout_s=0.1)
    assert seconds is None
    seconds = _trial._transfer(lambda _: [Unpicklable()], [], clock=clock, timeout_s=0.1)
    assert seconds is None
    assert capfd.readouterr().err == ""


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("not this one")

    def __deepcopy__(self, memo: object) -> "Unpicklable":
        return self


def test_sending_does_not_move_the_memory_of_the_data_set() -> None:
    data = torch.ones(1000)
    _trial._transfer(lambda _: data[:10], [], clock=itertools.count().__next__, timeout_s=10)
    assert not data.is_shared()  # type: ignore[no-untyped-call]


@hypothesis.given(st.integers(1, 5000), st.integers(1, 600))
def test_indices_are_spread_without_repetition(length: int, number: int) -> None:
    indices = _trial.spread(length, number)
    assert len(indices) == len(set(indices)) == min(length, number)
    assert all(0 <= index < length for index in indices)


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (torch.ones(3), torch.ones(3, 1)),
        (torch.tensor(1.0), torch.tensor(2.0)),
        (torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)),
        (np.arange(3), np.arange(3.0)),
        (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
        ({"x": [1, "a"]}, {"x": [1, "b"]}),
        ((1, None), (1, 0)),
        (1.0, True),
        (Checkpoint(1.0, None, is_drawn=False), Checkpoint(2.0, None, is_drawn=False)),
        ({1, 2}, {1, 3}),
    ],
)
def test_values_are_told_apart_by_their_content(value: Any, other: Any) -> None:
    import copy

    assert digest(value) == digest(copy.deepcopy(value)) is not None
    assert digest(value) != digest(other)


def test_what_can_not_be_compared_can_not_be_told() -> None:
    assert digest(threading.Lock()) is None
    same, drawn = Checkpoint(1.0, b"a", is_drawn=False), Checkpoint(1.0, b"a", is_drawn=True)
    assert _purity.num_agreeing([same, same], [same, drawn]) == 1
    unknown = Checkpoint(1.0, None, is_drawn=False)
    assert _purity.num_agreeing([unknown], [unknown]) == 0


def test_the_lines_of_a_trial_are_the_data_sets_own() -> None:
    import time

    class Busy(Items):
        def __getitem__(self, index: int) -> torch.Tensor:
            until = time.thread_time() + 0.002
            while time.thread_time() < until:
                pass
            return torch.ones(2)

    loader = DataLoader(Busy(Clock()), batch_size=4)
    found, lines = try_samples(loader, name="train", budget_s=0.5)
    assert found.cpu_s_per_sample >= 0.002
    assert lines[0].place.function == "Busy.__getitem__"
    assert {line.place.file for line in lines} == {__file__}
