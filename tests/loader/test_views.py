"""Views made ahead: which ones an epoch shows, that they are the same whoever makes them, and resuming."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker.errors import BadSampleError, SchemaError, StoreWriteError, TransformIdentityError, UsageError
from support.datasets import Signals, assert_same, keys
from support.slow_augment import noisy

COUNT = 37
OPTIONS: dict[str, Any] = {"batch_size": 8, "workers": 2, "ahead": False}

Batch = dict[str, Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    path = tmp_path_factory.mktemp("store") / "a.stoker"
    return stoker.pack(Signals(keys(COUNT)), path, workers=0, splits={"train": 0.7, "val": 0.3})


@pytest.fixture(scope="module")
def views(store: stoker.Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[stoker.ViewCache]:
    with stoker.ViewCache(store, noisy, tmp_path_factory.mktemp("views"), **OPTIONS) as cache:
        yield cache


def epoch_of(loader: stoker.Loader) -> dict[int, Batch]:
    """The samples of the next epoch, by number."""
    found: dict[int, Batch] = {}
    for batch in loader:
        for row, number in enumerate(batch["index"].tolist()):
            found[number] = {
                name: value[row].clone() if isinstance(value, torch.Tensor) else value[row]
                for name, value in batch.items()
            }
    return found


def assert_equal_epochs(left: dict[int, Batch], right: dict[int, Batch]) -> None:
    assert left.keys() == right.keys()
    for number, sample in right.items():
        for name, value in sample.items():
            same = torch.equal if isinstance(value, torch.Tensor) else (lambda a, b: a == b)
            assert same(left[number][name], value), (number, name)


def test_an_epoch_shows_one_view_of_every_sample_under_its_own_number(
    store: stoker.Store, views: stoker.ViewCache
) -> None:
    with stoker.Loader(views, 7, ragged="list") as loader:
        for epoch in range(7):
            shown = epoch_of(loader)
            first = epoch // 5 * 5
            assert sorted(shown) == list(range(COUNT))
            for number, view in shown.items():
                sample = store[number]
                made_in = int(view["made_in"])
                assert made_in in {first, first + 1}
                noise = view["x"] - torch.from_numpy(sample["x"]) - made_in
                assert noise.min() > -1e-3
                assert noise.max() < 3.001
                assert view["y"] == torch.as_tensor(sample["y"])
                assert view["group"] == sample["group"]
                assert torch.equal(view["tail"], torch.from_numpy(sample["tail"]) + made_in)


def test_the_views_are_those_that_the_plain_loader_makes_in_the_first_epochs(
    store: stoker.Store, tmp_path: Path
) -> None:
    def by_index(batch: Batch, *, index: torch.Tensor, epoch: int) -> Batch:
        return {**batch, "x": batch["x"] * (1 + index[:, None, None]) + epoch}

    with stoker.ViewCache(store, by_index, tmp_path, copies=3, refresh_epochs=4, **OPTIONS) as views:
        made = views.generation(1)
    for copy in range(3):
        with stoker.Loader(store, 8, augment=by_index) as plain:
            plain.set_epoch(4 + copy)
            for number, sample in epoch_of(plain).items():
                assert_same({"x": made[number * 3 + copy]["x"]}, {"x": sample["x"].numpy()})
                assert made.key(number * 3 + copy) == f"{store.key(number)}#{copy}"


@given(
    copies=st.integers(1, 6),
    more=st.integers(0, 7),
    seed=st.integers(0, 2**64),
    generation=st.integers(0, 9),
)
@settings(max_examples=50, deadline=None)
def test_a_generation_uses_the_copies_of_each_sample_evenly(
    store: stoker.Store, copies: int, more: int, seed: int, generation: int
) -> None:
    length = copies + more
    views = stoker.ViewCache(store, noisy, "nowhere", copies=copies, refresh_epochs=length, seed=seed)
    numbers = np.arange(1000)
    first = generation * length
    shown = np.stack([views.rows(numbers, epoch) for epoch in range(first, first + length)])
    assert (shown // copies == numbers).all()
    for number in range(0, 1000, 97):
        counts = Counter((shown[:, number] % copies).tolist())
        assert len(counts) == copies
        assert max(counts.values()) - min(counts.values()) <= 1


def test_the_choice_of_views_differs_by_seed_generation_and_sample(store: stoker.Store) -> None:
    numbers = np.arange(4000)
    choices = {
        (seed, epoch): stoker.ViewCache(store, noisy, "nowhere", copies=2, seed=seed).rows(numbers, epoch) % 2
        for seed in (0, 1)
        for epoch in (0, 2, 5, 10)
    }
    for name, chosen in choices.items():
        assert abs(chosen.mean() - 0.5) < 0.04, name
        for other, others in choices.items():
            if other != name:
                assert abs((chosen == others).mean() - 0.5) < 0.04, (name, other)


def test_views_are_the_same_whoever_makes_them(
    store: stoker.Store, views: stoker.ViewCache, tmp_path: Path
) -> None:
    expected = views.generation(1).content_digest
    torch.manual_seed(99)  # nothing of the process' own state counts
    with stoker.ViewCache(store, noisy, tmp_path, batch_size=8, workers=1, ahead=False) as other:
        made = other.generation(1)
        assert made.content_digest == expected
        assert made.verify().ok
        assert other.generation(0).content_digest == views.generation(0).content_digest != expected
    with stoker.ViewCache(store, noisy, tmp_path / "b", seed=1, **OPTIONS) as other:
        assert other.generation(1).content_digest != expected


def test_making_views_leaves_the_users_random_numbers_alone(store: stoker.Store, tmp_path: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with stoker.ViewCache(store, noisy, tmp_path, **OPTIONS) as views:
        views.generation(0)
    assert torch.equal(torch.rand(4), expected)


def test_resuming_at_every_step_gives_the_same_views(
    store: stoker.Store, views: stoker.ViewCache, tmp_path: Path
) -> None:
    with stoker.Loader(views, 10, seed=4) as loader:
        loader.set_epoch(6)
        states, batches = [loader.state_dict()], []
        for batch in loader:
            batches.append((batch["index"].clone(), batch["x"].clone()))
            states.append(loader.state_dict())
    # another machine: nothing of the views is there
    with stoker.ViewCache(store, noisy, tmp_path, batch_size=8, workers=1) as elsewhere:
        for step, state in enumerate(states):
            with stoker.Loader(elsewhere, 10, seed=4, num_workers=1) as resumed:
                resumed.load_state_dict(json.loads(json.dumps(state)))
                rest = [(batch["index"].clone(), batch["x"].clone()) for batch in resumed]
            assert len(rest) == len(batches) - step
            for (index, x), (expected_index, expected_x) in zip(rest, batches[step:], strict=True):
                assert torch.equal(index, expected_index)
                assert torch.equal(x, expected_x)
        assert not elsewhere.is_ready(0)  # which no epoch asked for


def test_ranks_share_the_views_of_one(views: stoker.ViewCache) -> None:
    with stoker.Loader(views, 5) as loader:
        loader.set_epoch(3)
        expected = epoch_of(loader)
    found: dict[int, Batch] = {}
    for rank in range(3):
        with stoker.Loader(views, 4, rank=rank, world_size=3) as loader:
            loader.set_epoch(3)
            found |= epoch_of(loader)
    for number, sample in expected.items():
        assert torch.equal(found[number]["x"], sample["x"])


def test_a_split_has_views_of_its_own(store: stoker.Store, tmp_path: Path) -> None:
    val = store.split("val")
    with (
        stoker.ViewCache(val, noisy, tmp_path, copies=1, **OPTIONS) as views,
        stoker.Loader(views, 4) as loader,
    ):
        assert len(views) == len(val)
        for number, view in epoch_of(loader).items():
            assert view["group"] == val[number]["group"]
            assert views.key(number) == val.key(number)


def change_sample(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"] + np.random.rand(), "name": sample["group"]}  # noqa: NPY002 - users' code


def test_single_samples_can_be_augmented_as_arrays(store: stoker.Store, tmp_path: Path) -> None:
    with stoker.ViewCache(store, change_sample, tmp_path, per_sample=True, workers=2, seed=3) as views:
        made = views.generation(0)
    assert list(made.fields) == ["x", "name"]
    originals = np.repeat(store.column("x"), 2, axis=0)
    shifts = set(np.median(made.column("x") - originals, axis=(1, 2)).tolist())
    assert len(shifts) == 2 * COUNT

    class Same:  # the same function in a plain Dataset draws the same numbers
        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, i: int) -> dict[str, Any]:
            return change_sample(store[i])

    with stoker.Loader(Same(), 8, seed=3, num_workers=0) as loader:
        loader.set_epoch(1)
        for number, sample in epoch_of(loader).items():
            assert_same({"x": made[2 * number + 1]["x"]}, {"x": sample["x"].numpy()})


def wait_for(views: stoker.ViewCache) -> None:
    """Until the process beside has ended, without taking its end away from it."""
    if views._beside is not None and views._beside.running:
        os.waitid(os.P_PID, views._beside._pid, os.WEXITED | os.WNOWAIT)


def generations(path: Path) -> list[int]:
    return sorted(int(file.name.split("-")[1]) for file in path.glob("generation-*"))


def test_the_next_generation_is_made_beside_and_two_are_kept(
    store: stoker.Store, views: stoker.ViewCache, tmp_path: Path
) -> None:
    options = {**OPTIONS, "ahead": True}
    with stoker.ViewCache(store, noisy, tmp_path, **options) as cache, stoker.Loader(cache, 16) as loader:
        for epoch in range(12):
            shown = epoch_of(loader)
            with stoker.Loader(views, 16) as plain:
                plain.set_epoch(epoch)
                assert_equal_epochs(shown, epoch_of(plain))
            wait_for(cache)
            assert generations(tmp_path) == [epoch // 5, epoch // 5 + 1]
            assert cache.is_ready(epoch // 5 + 1)


def test_without_looking_ahead_a_generation_is_made_when_its_first_epoch_begins(
    store: stoker.Store, tmp_path: Path
) -> None:
    with (
        stoker.ViewCache(store, noisy, tmp_path, refresh_epochs=2, **OPTIONS) as views,
        stoker.Loader(views, 16) as loader,
    ):
        found = []
        for _ in range(6):
            epoch_of(loader)
            found.append(generations(tmp_path))
    assert found == [[0], [0], [0, 1], [0, 1], [1, 2], [1, 2]]


def test_a_generation_that_was_removed_or_damaged_is_made_again(store: stoker.Store, tmp_path: Path) -> None:
    with stoker.ViewCache(store, noisy, tmp_path, **OPTIONS) as views:
        first = views.generation(0)
        shard = first.shards[0].path
        os.truncate(shard, shard.stat().st_size - 1)
        assert not views.is_ready(0)
        again = views.generation(0)
    assert again.content_digest == first.content_digest
    assert again.verify().ok


def test_a_generation_is_read_on_after_it_was_removed(store: stoker.Store, tmp_path: Path) -> None:
    with (
        stoker.ViewCache(store, noisy, tmp_path, **OPTIONS) as views,
        stoker.Loader(views, 4) as loader,
    ):
        batches = iter(loader)
        next(batches)
        other = stoker.ViewCache(store, noisy, tmp_path, **OPTIONS)
        other.generation(5)
        assert generations(tmp_path) == [5]
        assert sum(len(batch["index"]) for batch in batches) == COUNT - 4


def test_a_forgotten_cache_leaves_no_process(store: stoker.Store, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def blocked(batch: Batch, *, index: torch.Tensor, epoch: int) -> Batch:  # noqa: ARG001 - the contract
        if epoch >= 5:
            gate.read_text()
        return batch

    for how in ("close", "forget"):
        views = stoker.ViewCache(store, blocked, tmp_path / how, batch_size=8, workers=1, version="1")
        with stoker.Loader(views, 16) as loader:
            epoch_of(loader)
        assert views._beside is not None
        pid = views._beside._pid
        assert views._beside.running
        if how == "close":
            views.close()
        del views, loader
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)


def test_the_process_beside_ends_with_the_script(store: stoker.Store, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    code = (
        "import sys, pathlib, stoker\n"
        "def blocked(batch, *, index, epoch):\n"
        "    if epoch >= 5:\n"
        "        pathlib.Path('gate').read_text()\n"
        "    return batch\n"
        f"views = stoker.ViewCache(stoker.open({str(store.path)!r}), blocked, 'v', version='1')\n"
        "for batch in stoker.Loader(views, 8): pass\n"
        "assert views._beside.running\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )  # returns only when nobody holds its output any more
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"copies": 3}, "copies 2, this view cache has 3"),
        ({"refresh_epochs": 4}, "refresh_epochs 5"),
        ({"seed": 7}, "seed 0"),
        ({"batch_size": 9}, "batch_size 8"),
        ({"version": "2"}, "augment 'support.slow_augment.noisy"),
    ],
)
def test_a_state_of_other_views_is_refused_by_name(
    store: stoker.Store, views: stoker.ViewCache, change: dict[str, Any], name: str
) -> None:
    with stoker.Loader(views, 8) as loader:
        state = loader.state_dict()
    other = stoker.ViewCache(store, noisy, "nowhere", **{**OPTIONS, **change})
    with stoker.Loader(other, 8) as loader, pytest.raises(UsageError, match=name):
        loader.load_state_dict(state)


def test_a_state_of_another_store_or_of_no_views_is_refused(
    store: stoker.Store, views: stoker.ViewCache, tmp_path: Path
) -> None:
    with stoker.Loader(views, 8) as loader:
        state = loader.state_dict()
    changed = stoker.pack(Signals(keys(COUNT), salt=1), tmp_path / "b.stoker", workers=0)
    for other, why in ((changed, "made with store"), (store.select(range(5)), "made with samples")):
        with (
            stoker.Loader(stoker.ViewCache(other, noisy, tmp_path, **OPTIONS), 8) as loader,
            pytest.raises(UsageError, match=why),
        ):
            loader.load_state_dict(state)
    with stoker.Loader(store, 8) as plain, stoker.Loader(views, 8) as loader:
        with pytest.raises(UsageError, match="not of a loader of a view cache"):
            loader.load_state_dict(plain.state_dict())
        with pytest.raises(UsageError, match="has data"):
            plain.load_state_dict(state)


class Pipeline:
    """As a pipeline tells what it is."""

    def __init__(self, strength: float) -> None:
        self.strength = strength
        self.compiled = object()  # whatever it keeps beside its settings

    def to_config(self) -> dict[str, Any]:
        return {"strength": self.strength}

    def __call__(self, batch: Batch, *, index: torch.Tensor, epoch: int) -> Batch:  # noqa: ARG002
        return {**batch, "x": batch["x"] * self.strength}


def test_a_pipeline_is_known_by_its_settings(store: stoker.Store, tmp_path: Path) -> None:
    def made(strength: float) -> str:
        return stoker.ViewCache(store, Pipeline(strength), tmp_path).identity

    assert made(0.5) == made(0.5) != made(0.6)


class Opaque:
    __slots__ = ("handle",)

    def __call__(self, batch: Batch, **_: Any) -> Batch:
        return batch


def test_a_function_that_uses_a_pipeline_is_compared_by_the_pipelines_settings(
    store: stoker.Store, tmp_path: Path
) -> None:
    def identity(low: float) -> str:
        scale = stoker.augment.signal.AmplitudeScale(stoker.augment.Uniform(low, 1.2))
        pipeline = stoker.augment.Pipeline(scale, roles={"x": "signal"})

        def augment(batch: Batch, *, index: torch.Tensor, epoch: int) -> Batch:
            found: Batch = pipeline(batch, index=index, epoch=epoch)
            return found

        return stoker.ViewCache(store, augment, tmp_path).identity

    assert identity(0.8) == identity(0.8) != identity(0.9)


def test_augmentation_that_cannot_be_compared_needs_a_version(store: stoker.Store, tmp_path: Path) -> None:
    with pytest.raises(TransformIdentityError, match="pass version='1'"):
        stoker.ViewCache(store, Opaque(), tmp_path)
    assert stoker.ViewCache(store, Opaque(), tmp_path, version="1").identity


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"copies": 0}, "copies must be at least 1, got 0"),
        ({"refresh_epochs": 0}, "refresh_epochs must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"copies": 6}, r"copies must be at most refresh_epochs \(5\), got 6"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"augment": None}, "augment must be callable"),
        ({"store": [1, 2]}, "views are made of a store, got list"),
    ],
)
def test_a_wrong_argument_is_refused(
    store: stoker.Store, options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=why):
        stoker.ViewCache(**{"store": store, "augment": noisy, "path": tmp_path, **options})


def test_other_wrong_uses_are_refused(store: stoker.Store, views: stoker.ViewCache) -> None:
    with pytest.raises(UsageError, match="a split may be empty"):
        stoker.ViewCache(store.select([]), noisy, "nowhere")
    with pytest.raises(UsageError, match="generation must be at least 0, got -1"):
        views.generation(-1)
    with pytest.raises(UsageError, match="fields can be chosen of a store"):
        stoker.Loader(views, fields=["x"])
    assert "37 samples, 2 views each, made anew every 5 epochs" in repr(views)


@pytest.mark.parametrize(
    ("give", "error", "why"),
    [
        (lambda batch: batch["x"], UsageError, "augment must give a dict of tensors, got Tensor"),
        (lambda batch: {"x": batch["x"][:3]}, UsageError, r"each of 8 samples, field 'x' has \[3\]"),
        (lambda batch: {"x": batch["x"].sum()}, UsageError, r"field 'x' has \[\]"),
        (lambda batch: {"x": batch["x"].bfloat16()}, SchemaError, "bfloat16"),
        (
            lambda batch: batch["z"],
            BadSampleError,
            "sample 'sample-0000': augment failed of this sample and the 7 after it: KeyError: 'z'",
        ),
    ],
)
def test_augmentation_that_gives_nonsense_is_told(
    store: stoker.Store, give: Any, error: type[Exception], why: str, tmp_path: Path
) -> None:
    def augment(batch: Batch, *, index: torch.Tensor, epoch: int) -> Any:  # noqa: ARG001 - the contract
        return give(batch)

    with (
        stoker.ViewCache(store, augment, tmp_path, version="1", **OPTIONS) as views,
        stoker.Loader(views) as loader,
        pytest.raises(error, match=why),
    ):
        epoch_of(loader)


def test_the_disk_needed_is_known_before_and_checked(
    store: stoker.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stoker.ViewCache(store, noisy, tmp_path, **OPTIONS) as views:
        stated = views.num_bytes
        monkeypatch.setattr("stoker.loader._room.room_bytes", lambda _: stated - 1)
        with pytest.raises(StoreWriteError, match=r"generation 0 of ViewCache.*has room for"):
            views.generation(0)
        assert generations(tmp_path) == []
        monkeypatch.undo()
        made = views.generation(0)
    values = sum(shard.value_bytes for shard in made.manifest.shards)
    assert values <= stated <= made.manifest.num_bytes


def test_the_generation_before_goes_where_there_is_no_room_for_two(
    store: stoker.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def room(folder: Path) -> int:
        """Of a disk that holds one generation and a half."""
        size = made.manifest.num_bytes
        return int(1.5 * size) - size * len(list(folder.glob("generation-*/manifest.json")))

    options = {**OPTIONS, "ahead": True}
    with stoker.ViewCache(store, noisy, tmp_path, refresh_epochs=2, **options) as views:
        made = views.generation(0)
        monkeypatch.setattr("stoker.loader._room.room_bytes", room)
        with stoker.Loader(views, 16) as loader:
            for epoch in range(5):
                assert len(epoch_of(loader)) == COUNT
                wait_for(views)  # it found no room beside the one in use
                assert generations(tmp_path) == [epoch // 2]
