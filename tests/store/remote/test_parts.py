"""Few samples of a remote store come by range, and are what they are in the whole."""

import dataclasses
import gc
import itertools
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.errors import DamagedStoreError
from stoker.store._manifest import FieldSpec, ShardEntry, write_manifest
from stoker.store.remote import RemoteShards, _parts
from stoker.store.remote._parts import needed_spans, part_of
from support.datasets import assert_same
from support.fault_proxy import FAULTS, FaultProxy, FileServer

FEW = [3, 20, 21, 40]


class Long:
    """Samples of 8 kB, a label and a name."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> dict[str, object]:
        x = np.random.default_rng(i).standard_normal((1, 2048)).astype(np.float32)
        return {"x": x, "y": np.int64(i), "name": f"sample {i}"}


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of several shards, ``b.stoker``."""
    path = tmp_path_factory.mktemp("far")
    stoker.pack(Long(), path / "b.stoker", shard_bytes=1 << 17, workers=0, progress=False)
    return path


@pytest.fixture
def near(far: Path) -> stoker.Store:
    return stoker.open(far / "b.stoker")


@pytest.fixture
def ranged(far: Path) -> Iterator[FaultProxy]:
    with FileServer(far, ranges=True) as server, FaultProxy(server.port) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _cheap_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_parts, "_REQUEST_BYTES", 512)


def assert_few(remote: stoker.Store, near: stoker.Store) -> None:
    few = remote.select(FEW)
    for place, number in enumerate(FEW):
        assert_same(few[place], near[number])


def test_few_samples_come_by_range_and_once(
    ranged: FaultProxy, near: stoker.Store, cache: Path, far: Path
) -> None:
    remote = stoker.open(f"{ranged.url}/b.stoker")
    before = ranged.num_bytes
    assert_few(remote, near)
    fetched = ranged.num_bytes - before
    files = list((cache / "shards").iterdir())
    assert len(near.manifest.shards) > len(files) > 1
    shard_bytes = sum(path.stat().st_size for path in files)  # with holes: of the whole ones' size
    assert 4 * 8192 < fetched < shard_bytes / 2
    assert not {path.name for path in files} & {path.name for path in (far / "b.stoker/shards").iterdir()}
    assert_few(remote, near)
    assert_few(stoker.open(f"{ranged.url}/b.stoker"), near)
    assert ranged.num_bytes - before - fetched < 10_000  # another manifest


@pytest.mark.usefixtures("cache")
def test_memory_gives_ranges_too(far: Path, near: stoker.Store) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(f"{far}/b.stoker", "/parts/b.stoker", recursive=True)
    try:
        remote = stoker.open("memory://parts/b.stoker")
        assert remote.select(FEW).shards is not remote.shards
        assert_few(remote, near)
    finally:
        memory.rm("/parts", recursive=True)


def test_a_loader_of_few_samples_gives_those_of_the_local_store(
    ranged: FaultProxy, near: stoker.Store, cache: Path
) -> None:
    few = stoker.open(f"{ranged.url}/b.stoker").select(FEW)
    with stoker.Loader(few, 3) as remote, stoker.Loader(near.select(FEW), 3) as local:
        for left, right in zip(remote, local, strict=True):
            assert left["x"].equal(right["x"])
            assert left["y"].equal(right["y"])
            assert left["name"] == right["name"]
    assert len(list((cache / "shards").iterdir())) < len(near.manifest.shards)


def test_a_selection_of_a_selection_and_a_pickled_one_hold_what_they_should(
    ranged: FaultProxy, near: stoker.Store, cache: Path
) -> None:
    few = stoker.open(f"{ranged.url}/b.stoker").select(FEW)
    assert_same(few.select([2])[0], near[21])
    assert_same(pickle.loads(pickle.dumps(few))[3], near[40])
    assert list(cache.rglob("*.h5"))


def test_most_of_a_store_comes_whole(ranged: FaultProxy, near: stoker.Store, cache: Path, far: Path) -> None:
    many = stoker.open(f"{ranged.url}/b.stoker").select(range(40))
    assert_same(many[39], near[39])
    assert {path.name for path in (cache / "shards").iterdir()} <= {
        path.name for path in (far / "b.stoker/shards").iterdir()
    }


def test_a_shard_that_is_there_is_used_whole(ranged: FaultProxy, near: stoker.Store, cache: Path) -> None:
    remote = stoker.open(f"{ranged.url}/b.stoker")
    remote[3]
    before = ranged.num_bytes
    assert_same(remote.select([4])[0], near[4])
    assert ranged.num_bytes == before
    assert len(list((cache / "shards").iterdir())) == 1


def test_a_server_that_knows_no_ranges_is_asked_once_for_each_shard(
    far: Path, near: stoker.Store, cache: Path
) -> None:
    with FileServer(far) as server, FaultProxy(server.port) as proxy:
        assert_few(stoker.open(f"{proxy.url}/b.stoker"), near)
        assert proxy.num_gets("/shards/") == len(list((cache / "shards").iterdir()))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_passing_fault_costs_only_time(
    ranged: FaultProxy, near: stoker.Store, cache: Path, fault: str
) -> None:
    remote = stoker.open(f"{ranged.url}/b.stoker", stall_s=0.5)
    ranged.break_("/shards/", [fault])
    assert_few(remote, near)
    assert list(cache.rglob("*.h5"))


def test_wrong_bytes_are_never_given_and_the_object_is_named(ranged: FaultProxy, cache: Path) -> None:
    few = stoker.open(f"{ranged.url}/b.stoker").select(FEW)
    ranged.break_for_ever("/shards/", "wrong")
    with pytest.raises(DamagedStoreError, match=r"/shards/[0-9a-f]{32}\.h5.*"):
        few[0]
    assert not list((cache / "shards").iterdir())


def test_the_budget_counts_what_is_there_and_not_the_holes(
    ranged: FaultProxy, near: stoker.Store, cache: Path
) -> None:
    remote = stoker.open(f"{ranged.url}/b.stoker", cache_bytes=2 * near.manifest.shards[0].num_bytes)
    assert len({int(near.index.shard[number]) for number in FEW}) > 2
    with stoker.Loader(remote.select(FEW), 2) as loader:
        for _ in range(2):
            assert sum(len(batch["index"]) for batch in loader) == len(FEW)
    assert len(list((cache / "shards").iterdir())) > 2


@st.composite
def layouts(draw: st.DrawFn) -> tuple[ShardEntry, list[FieldSpec], list[int]]:
    """A shard of two fields of fixed size and a ragged one, anywhere in its file, and rows of it."""
    num_rows = draw(st.integers(1, 30))
    sizes = draw(st.tuples(st.integers(1, 300), st.integers(1, 300)))
    gaps = draw(st.tuples(*[st.integers(0, 2000)] * 3))
    offsets = {"a": gaps[0], "b": gaps[0] + num_rows * sizes[0] + gaps[1]}
    num_bytes = offsets["b"] + num_rows * sizes[1] + gaps[2]
    entry = ShardEntry(
        digest="0" * 32, num_bytes=num_bytes, num_samples=num_rows, value_bytes=0, offsets=offsets
    )
    fields = [
        FieldSpec(name=name, kind="array", dtype="uint8", shape=(size,), channel_axis=None)
        for name, size in zip("ab", sizes, strict=True)
    ]
    fields.append(FieldSpec(name="c", kind="array", dtype="uint8", shape=(None,), channel_axis=None))
    rows = draw(st.lists(st.integers(0, num_rows - 1), min_size=1, unique=True))
    return entry, fields, sorted(rows)


@given(layouts())
def test_all_is_fetched_but_values_of_other_rows(
    layout: tuple[ShardEntry, list[FieldSpec], list[int]],
) -> None:
    entry, fields, rows = layout
    spans = needed_spans(entry, fields, np.array(rows))
    fetched = np.zeros(entry.num_bytes, int)
    for start, stop in spans:
        fetched[start:stop] += 1
    assert fetched.max(initial=0) <= 1
    may_lack = np.zeros(entry.num_bytes, bool)
    for field in fields[:2]:
        size, begin = int(field.shape[0] or 0), entry.offsets[field.name]
        for row in set(range(entry.num_samples)) - set(rows):
            may_lack[begin + row * size : begin + (row + 1) * size] = True
    assert fetched[~may_lack].all()
    assert not any(left[1] == right[0] for left, right in itertools.pairwise(spans))


def test_what_saves_little_is_not_fetched_by_range(near: stoker.Store) -> None:
    entry, fields = near.manifest.shards[0], near.manifest.fields
    assert part_of(entry, fields, np.arange(1)) is not None
    assert part_of(entry, fields, np.arange(entry.num_samples)) is None
    assert part_of(entry, fields, np.arange(0, entry.num_samples, 2)) is None


@pytest.mark.parametrize("nothing", [[], slice(0, 0), np.zeros(64, bool)])
@pytest.mark.usefixtures("cache")
def test_a_selection_of_nothing_is_an_empty_view(
    ranged: FaultProxy, near: stoker.Store, nothing: Any
) -> None:
    none = stoker.open(f"{ranged.url}/b.stoker").select(nothing)
    assert len(none) == len(near.select(nothing)) == 0
    assert none[[]]["x"].shape == near.select(nothing)[[]]["x"].shape


def test_a_row_beyond_its_shard_is_told_as_of_a_local_store(
    far: Path, near: stoker.Store, cache: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong" / "b.stoker"
    shutil.copytree(far / "b.stoker", wrong)
    row = near.index.row.copy()
    row[3] = 5000
    index = dataclasses.replace(near.index, row=row).publish(wrong)
    write_manifest(wrong, near.manifest.model_copy(update={"index": index}))
    with FileServer(wrong.parent, ranges=True) as server:
        few = stoker.open(f"http://127.0.0.1:{server.port}/b.stoker").select([3])
        with pytest.raises(DamagedStoreError, match=r"names row 5000 of \d+"):
            few[0]
    assert cache.exists()


@pytest.mark.skipif(
    not Path("/dev/shm").is_dir(), reason="needs a tmpfs, of which holes that are read take memory"
)
def test_a_loader_of_few_samples_leaves_the_holes_alone(ranged: FaultProxy) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        few = stoker.open(f"{ranged.url}/b.stoker", cache=folder).select(FEW)
        with stoker.Loader(few, 2) as loader:
            assert sum(len(batch["index"]) for batch in loader) == len(FEW)
        files = [path.stat() for path in (Path(folder) / "shards").iterdir()]
        assert sum(512 * file.st_blocks for file in files) < sum(file.st_size for file in files) / 2
        del few, loader
        gc.collect()


def test_a_part_takes_no_more_room_than_was_reckoned(
    ranged: FaultProxy, near: stoker.Store, cache: Path
) -> None:
    few = stoker.open(f"{ranged.url}/b.stoker").select(FEW)
    for place in range(len(FEW)):
        few[place]
    shards = few.shards
    assert isinstance(shards, RemoteShards)
    for number in np.unique(near.index.shard[FEW]).tolist():
        file = cache / "shards" / f"{shards.entries[number].digest}.h5"
        assert shards.is_part(number)
        assert 512 * file.stat().st_blocks <= shards.room_bytes(number)


def test_holes_are_whole_pages(near: stoker.Store) -> None:
    entry, fields = near.manifest.shards[0], near.manifest.fields
    spans = needed_spans(entry, fields, np.array([2]))
    assert len(spans) > 1
    assert all(start % 4096 == 0 for start, _ in spans)
    assert all(stop % 4096 == 0 for _, stop in spans[:-1])


@pytest.mark.usefixtures("cache")
def test_a_part_whose_description_was_spoilt_on_the_way_is_fetched_again(
    far: Path, near: stoker.Store, serve: Callable[..., str]
) -> None:
    spoilt: list[int] = []

    def answer(request: Any) -> bool:
        body = request.content[slice(*request.span)]
        at = body.find(b'"dtype": "string"')
        if at < 0 or spoilt:
            return False
        spoilt.append(at)
        request.give(206, body[: at + 11] + bytes([body[at + 11] ^ 1]) + body[at + 12 :])
        return True

    url = f"{serve(far, answer)}/b.stoker"
    assert_same(stoker.open(url).select([3])[0], near[3])
    assert spoilt
