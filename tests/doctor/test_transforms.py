import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, Subset

from stoker.doctor.making._transforms import find_transforms


class Compose:
    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, x: float) -> float:
        for transform in self.transforms:
            x = transform(x)
        return x


class Add:
    def __init__(self, amount: float) -> None:
        self.amount = amount

    def __call__(self, x: float) -> float:
        return x + self.amount


def double(x: float) -> float:
    return 2 * x


class Numbers(Dataset[float]):
    def __init__(self, transform: Any, **others: Any) -> None:
        self.transform = transform
        self.__dict__.update(others)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        return float(self.transform(index))


def calls_timed(dataset: Any, use: Callable[[], Any]) -> list[str]:
    """Names of the transforms that were found and called."""
    chain = find_transforms(dataset)
    before = pickle.dumps(dataset)
    with chain.timed() as watch:
        use()
        spent = dict(zip(chain.names, watch.totals, strict=True))
    assert pickle.dumps(dataset) == before, "all is as it was"
    return [name for name, total in spent.items() if total > 0]


def test_members_of_a_chain_are_timed_by_name_and_numbered() -> None:
    dataset = Numbers(Compose([Add(1), double, Compose([Add(2)])]))
    assert calls_timed(dataset, lambda: dataset[0]) == ["Add", "double", "Add 2"]
    assert dataset[3] == 10.0


@pytest.mark.parametrize("wrap", [lambda data: Subset(data, [1, 2]), lambda data: ConcatDataset([data])])
def test_wrappers_are_looked_through(wrap: Callable[[Any], Any]) -> None:
    wrapped = wrap(Numbers(Compose([Add(1)])))
    assert calls_timed(wrapped, lambda: wrapped[0]) == ["Add"]


def test_tuples_lists_dicts_and_single_callables_are_found() -> None:
    dataset = Numbers(
        Compose((Add(1), double)),
        augmentations=[Add(5)],
        target_transform=partial(double),
        transforms_by_split={"train": Add(7), "val": Compose([Add(8)])},
        threshold=0.5,
        cache={number: number for number in range(1000)},
    )
    assert find_transforms(dataset).names == ["Add", "double", "Add 2", "double 2", "Add 3", "Add 4"]
    assert calls_timed(dataset, lambda: dataset[0]) == ["Add", "double"]


def test_one_transform_in_two_places_has_one_name() -> None:
    shared = Add(1)
    dataset = Numbers(shared, other_transform=shared)
    assert find_transforms(dataset).names == ["Add"]


def test_the_methods_of_a_data_set_and_of_a_scaler_are_found() -> None:
    class Scaler:
        def transform(self, x: float) -> float:
            return x / 2

    class Recordings(Dataset[float]):
        def __init__(self) -> None:
            self.scaler = Scaler()

        def __getitem__(self, index: int) -> float:
            return self.scaler.transform(self._augment(index))

        def _augment(self, x: float) -> float:
            return x + 1

    dataset = Recordings()
    chain = find_transforms(dataset)
    with chain.timed() as watch:
        assert dataset[1] == 1.0
    assert chain.names == ["Scaler.transform", "Recordings._augment"]
    assert min(watch.totals) > 0
    assert vars(dataset).keys() == {"scaler"}
    assert not vars(dataset.scaler)


def test_modules_in_a_sequential_are_timed() -> None:
    dataset = Numbers(nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh(), nn.ReLU())))
    names = calls_timed(dataset, lambda: dataset.transform(torch.ones(2)))
    assert names == ["ReLU", "Tanh", "ReLU 2"]
    with find_transforms(dataset).timed():
        assert not list(dataset.transform.parameters())


def test_a_model_that_a_data_set_holds_is_left_alone() -> None:
    dataset = Numbers(double, teacher=nn.Sequential(nn.Linear(1, 1)))
    assert find_transforms(dataset).names == ["double"]


def test_time_is_counted_once_where_transforms_call_one_another() -> None:
    class Outer:
        def __init__(self) -> None:
            self.compose = Compose([Add(1)])

        def __call__(self, x: float) -> float:
            return self.compose(x)

    dataset = Numbers(Outer())
    chain = find_transforms(dataset)
    with chain.timed() as watch:
        watch.reset()
        for index in range(4):
            _ = dataset[index]
    assert sorted(chain.names) == ["Add", "Outer"]
    assert sum(watch.totals) == watch.inner_ns  # of the outer calls, in all


def test_a_stand_in_is_taken_for_the_original() -> None:
    original = Add(1)
    dataset = Numbers(Compose([original]))
    with find_transforms(dataset).timed():
        member: Any = dataset.transform.transforms[0]
        assert member is not original
        is_one = isinstance(member, Add)
        assert is_one
        assert member == original
        assert hash(member) == hash(original)
        assert repr(member) == repr(original)
        assert bool(member)
        member.amount = 3
        assert original.amount == 3
        assert type(copy.deepcopy(member)) is Add
        assert type(copy.copy(member)) is Add
        assert type(pickle.loads(pickle.dumps(member))) is Add
        with pytest.raises(TypeError, match="has no len"):
            len(member)
        with pytest.raises(AttributeError, match="'Add' object has no attribute 'nothing'"):
            _ = member.nothing
    assert dataset.transform.transforms == [original]


def test_an_exception_passes_and_what_was_changed_inside_stays() -> None:
    def fail(_: float) -> float:
        raise LookupError("as always")

    dataset = Numbers(fail)
    chain = find_transforms(dataset)
    with chain.timed():
        with pytest.raises(LookupError, match="as always"):
            _ = dataset[0]
        dataset.transform = double  # the user's own doing
    assert dataset.transform is double


def test_a_data_set_that_can_not_be_looked_at_is_left_alone() -> None:
    class Secretive:
        @property
        def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
            raise RuntimeError("private")

    assert find_transforms(Secretive()).names == []
