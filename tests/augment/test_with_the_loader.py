"""The same sample through a loader gets the same bits, whatever batch, rank or resumed run it is in."""

import itertools
import json
from typing import Any

import pytest

import stoker
from augment.examples import CASES, batch_of, make
from stoker.augment import Mixing, Pipeline, Role, registered
from support.augmented_ranks import Seen, digests, rest_and_next_epoch
from support.ranks import run_ranks

COUNT = 70
MAIN: dict[str, Role] = {"signal": "signal", "image": "image", "volume": "volume"}  # of each family
FAMILIES = sorted({name.partition(".")[0] for name in registered()} & MAIN.keys())


def roles_of(family: str) -> dict[str, Role]:
    return {"x": MAIN[family], "m": "mask"}


def everything(family: str) -> Pipeline:
    """All transforms of a family in a row, noise included; those that mix samples aside."""
    kinds = registered()
    chain = [
        make(case, p=0.5)
        for case in CASES
        if case[0].startswith(f"{family}.")
        and kinds[case[0]].keeps_shape
        and not issubclass(kinds[case[0]], Mixing)
    ]
    assert len(chain) > 3
    return Pipeline(*chain, roles=roles_of(family), seed=3)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def store(family: str, tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    fields = batch_of(roles_of(family), COUNT)
    samples = [{name: fields[name][i] for name in ("x", "m")} for i in range(COUNT)]
    return stoker.pack(samples, tmp_path_factory.mktemp("stores") / f"{family}.stoker", workers=0)


@pytest.fixture(scope="module")
def expected(store: stoker.Store, family: str) -> dict[int, set[tuple[int, str]]]:
    """What the samples of two epochs are when each is augmented alone, by epoch."""
    with stoker.Loader(store, 1, shuffle=False, augment=everything(family)) as loader:
        return {epoch: whole_epoch(loader) for epoch in range(2)}


def whole_epoch(loader: stoker.Loader) -> set[tuple[int, str]]:
    return {(number, digest) for batch in loader for _, number, digest in digests(batch, 0)}


def by_epoch(seen: Seen, epoch: int) -> list[tuple[int, str]]:
    return sorted((number, digest) for when, number, digest in seen if when == epoch)


def test_samples_do_change_and_differ_between_epochs(
    store: stoker.Store, expected: dict[int, set[tuple[int, str]]]
) -> None:
    with stoker.Loader(store, 64) as loader:
        plain = whole_epoch(loader)
    assert len(expected[0]) == COUNT
    assert not expected[0] & plain
    assert not expected[0] & expected[1]


@pytest.mark.parametrize(("batch_size", "order_seed"), [(1, 8), (7, 0), (7, 8), (64, 0), (64, 8)])
def test_batch_size_and_position_do_not_matter(
    store: stoker.Store,
    family: str,
    expected: dict[int, set[tuple[int, str]]],
    batch_size: int,
    order_seed: int,
) -> None:
    with stoker.Loader(store, batch_size, seed=order_seed, augment=everything(family)) as loader:
        assert whole_epoch(loader) == expected[0]
        assert whole_epoch(loader) == expected[1]


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_three_ranks_give_what_one_gives(
    store: stoker.Store, family: str, expected: dict[int, set[tuple[int, str]]], batch_size: int
) -> None:
    seen: set[tuple[int, str]] = set()
    for rank in range(3):
        with stoker.Loader(
            store, batch_size, seed=1, augment=everything(family), rank=rank, world_size=3
        ) as loader:
            seen |= whole_epoch(loader)
    assert seen == expected[0]


@pytest.mark.parametrize(("before", "after"), [(7, 64), (64, 1), (1, 7)])
def test_a_resumed_run_goes_on_with_the_same_bits(
    store: stoker.Store, family: str, expected: dict[int, set[tuple[int, str]]], before: int, after: int
) -> None:
    seen, state = started(store, everything(family), before, num_steps=1)
    with stoker.Loader(store, after, seed=1, augment=everything(family)) as loader:
        loader.load_state_dict(state)
        rest = whole_epoch(loader)
        assert whole_epoch(loader) == expected[1]
    first = set(by_epoch(seen, 0))
    assert first | rest == expected[0]
    assert not first & rest


def test_three_real_processes_resume_what_one_began(
    store: stoker.Store, family: str, expected: dict[int, set[tuple[int, str]]]
) -> None:
    pipeline = everything(family)
    seen, state = started(store, pipeline, 7, num_steps=3)
    config, state = json.loads(json.dumps([pipeline.to_config(), state]))  # as other programs get them
    for rank in run_ranks(3, lambda: rest_and_next_epoch(store.path, config, state)):
        mine = [(epoch, number, digest) for epoch, number, digest in rank]
        assert 0 < len(by_epoch(mine, 0)) < COUNT
        seen += mine
    assert set(by_epoch(seen, 0)) == expected[0]
    assert set(by_epoch(seen, 1)) == expected[1]


def started(store: stoker.Store, pipeline: Pipeline, batch_size: int, num_steps: int) -> tuple[Seen, Any]:
    """What a run saw before it was left, and its state then."""
    seen: Seen = []
    with stoker.Loader(store, batch_size, seed=1, augment=pipeline) as loader:
        for batch in itertools.islice(loader, num_steps):
            seen += digests(batch, loader.epoch)
        return seen, loader.state_dict()
