"""Packing on a real Dask cluster of processes gives the store that one process gives, to the bit."""

import importlib
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.errors import BadSampleError, MissingExtraError, UsageError
from stoker.store._feed import Feed
from stoker.store._identity import transform_entry
from stoker.store._workers import Job, Work
from stoker.store.dask._job import code_digest
from stoker.store.dask._packing import run_on_dask
from stoker.store.dask._ranges import Range, Ranges
from stoker.store.dask._tasks import Lease, leased, pack_range
from support.cluster_sources import COUNT, Arriving, Fixed, Holder, Noted, num_unfinished, spoil
from support.commands import call, run
from support.dask_cluster import cluster
from support.datasets import Signals, keys


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def address(scratch: Path) -> Iterator[str]:
    with cluster(2, scratch) as found:
        yield found


def described(store: stoker.Store) -> dict[str, Any]:
    """The manifest but for when it was written."""
    return store.manifest.model_dump(exclude={"created"})


@pytest.mark.parametrize(("compression", "batch_size"), [("none", None), ("none", 7), ("lz4", 7)])
def test_the_manifest_is_that_of_one_process(
    address: str, tmp_path: Path, compression: Any, batch_size: int | None
) -> None:
    """Shards too, whether a task makes a whole one or a piece that is joined to others."""
    options: dict[str, Any] = {
        "compression": compression,
        "shard_bytes": 9000,
        "splits": {"train": 0.7, "val": 0.3},
        "stratify": "y",
        "progress": False,
    }
    alone = stoker.pack(Fixed(), tmp_path / "alone", workers=0, **options)
    many = stoker.pack(Fixed(), tmp_path / "many", scheduler=address, batch_size=batch_size, **options)
    assert len(many.manifest.shards) > 4
    assert described(many) == described(alone)
    assert many.verify().ok
    assert sorted(file.name for file in (tmp_path / "many" / "shards").iterdir()) == sorted(
        f"{shard.digest}.h5" for shard in many.manifest.shards
    )


def test_samples_of_unequal_size_have_the_same_content(address: str, tmp_path: Path) -> None:
    alone = stoker.pack(Signals(keys(COUNT)), tmp_path / "alone", workers=0, shard_bytes=9000)
    many = stoker.pack(Signals(keys(COUNT)), tmp_path / "many", scheduler=address, shard_bytes=9000)
    assert many.content_digest == alone.content_digest
    assert many.fields == alone.fields
    assert many.verify().ok


def test_joined_pieces_of_unequal_size_are_the_shard_of_one_process(address: str, tmp_path: Path) -> None:
    alone = stoker.pack(Signals(keys(COUNT)), tmp_path / "alone", workers=0)
    many = stoker.pack(Signals(keys(COUNT)), tmp_path / "many", scheduler=address, batch_size=11)
    assert described(many) == described(alone)


def test_a_second_run_packs_only_what_is_new(address: str, tmp_path: Path) -> None:
    path, notes = tmp_path / "a.stoker", tmp_path / "notes"
    notes.mkdir()
    stoker.pack(Signals(keys(40)), path, workers=0)
    source = Noted(keys(60), notes)
    store = stoker.pack(source, path, scheduler=address)
    assert source.noted() == set(keys(20, start=40))
    assert store.content_digest == stoker.pack(Signals(keys(60)), tmp_path / "b", workers=0).content_digest


def test_a_client_of_the_users_is_used_and_stays_open(address: str, tmp_path: Path) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        store = stoker.pack(Fixed(), tmp_path / "a", scheduler=client, progress=False)
        assert client.status == "running"
        assert client.submit(sum, [1, 2], pure=False).result() == 3
    assert len(store) == COUNT


def test_few_tasks_are_under_way_at_a_time(address: str, tmp_path: Path) -> None:
    from distributed import Client

    (tmp_path / "shards").mkdir()
    job = made_job(tmp_path, Fixed())
    with (
        Client(address, set_as_default=False) as client,
        run_on_dask(job, Work(np.arange(COUNT), None), None, scheduler=client, batch_size=5) as dones,
    ):
        counted = [client.run_on_scheduler(num_unfinished) for _ in dones]
    assert len(counted) > COUNT // 5
    assert 2 <= max(counted) <= 2 * 3 + 1  # three a thread, and one that joins


def test_a_task_at_the_disk_leaves_its_place_and_its_copy_of_the_source_to_the_next(
    address: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    store = stoker.pack(Arriving(keys(COUNT), notes), tmp_path / "a", scheduler=address, shard_bytes=2000)
    assert len(store.manifest.shards) > 10
    workers = [note.name.partition("-")[0] for note in notes.iterdir()]
    assert 1 <= len(workers) <= 2  # a copy for each thread of the cluster, however many tasks there were
    assert len(set(workers)) == len(workers)


def test_a_bad_sample_is_named(address: str, tmp_path: Path) -> None:
    with pytest.raises(BadSampleError) as raised:
        stoker.pack(Fixed(), tmp_path / "a", transform=spoil, scheduler=address)
    assert raised.value.why == "ValueError: spoilt"
    assert int(raised.value.key) % 3 == 1
    assert "spoil" in raised.value.__notes__[0]  # where it happened, on the worker


def test_bad_samples_are_skipped_and_listed(address: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"transform": spoil, "on_error": "skip", "progress": False}
    alone = stoker.pack(Fixed(), tmp_path / "alone", workers=0, **options)
    many = stoker.pack(Fixed(), tmp_path / "many", scheduler=address, batch_size=10, **options)
    assert many.content_digest == alone.content_digest
    assert len(many) == COUNT * 2 // 3
    assert (many.path / "statistics.json").read_text().count("ValueError: spoilt") == COUNT // 3


def test_what_cannot_be_pickled_is_named(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"transform\.settings\['lock'\], a lock, cannot be pickled"):
        stoker.pack(Fixed(), tmp_path / "a", transform=Holder(), scheduler=address)

    def closes_over(sample: Any, lock: Any = threading.Lock()) -> Any:  # noqa: B008 - it is the point
        return sample, lock, held

    held = threading.Lock()
    with pytest.raises(UsageError, match=r"transform\.held, a lock, cannot be pickled"):
        stoker.pack(Fixed(), tmp_path / "a", transform=closes_over, transform_version="1", scheduler=address)


def test_workers_with_other_code_are_refused(
    address: str, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(scratch)
    module = scratch / "edited.py"
    module.write_text("FACTOR = 2\ndef scale(sample):\n    return {'x': sample['x'] * FACTOR}\n")
    edited = importlib.import_module("edited")
    stoker.pack(Fixed(), tmp_path / "a", transform=edited.scale, scheduler=address)
    module.write_text("FACTOR = 30\ndef scale(sample):\n    return {'x': sample['x'] * FACTOR}\n")
    importlib.reload(edited)
    with pytest.raises(UsageError, match=r"another version of the code of the transform \(edited\.scale\)"):
        stoker.pack(Fixed(), tmp_path / "b", transform=edited.scale, scheduler=address)
    monkeypatch.delitem(sys.modules, "edited")


def test_a_module_that_workers_lack_is_named(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def same(sample):\n    return sample\n")
    monkeypatch.syspath_prepend(tmp_path)
    only_here = importlib.import_module("only_here")
    with pytest.raises(UsageError, match=r"cannot load .*No module named 'only_here'.*PYTHONPATH"):
        stoker.pack(Fixed(), tmp_path / "a", transform=only_here.same, scheduler=address)
    monkeypatch.delitem(sys.modules, "only_here")


def test_the_code_of_a_thing_is_followed_through_its_module() -> None:
    def made(factor: str) -> dict[str, Any]:
        space: dict[str, Any] = {"__name__": "made"}
        exec(f"def inner(x): return x in {{'a', {factor!r}}}\ndef outer(x): return inner(x)", space)
        return space

    assert code_digest(made("b")["outer"]) == code_digest(made("b")["outer"])
    assert code_digest(made("b")["outer"]) != code_digest(made("c")["outer"])
    assert code_digest(Fixed()) != code_digest(Signals([]))


def made_job(root: Path, source: Any) -> Job:
    return Job(
        feed=Feed(source, None, transform_entry(None, None).identity),
        root=root,
        transform=transform_entry(None, None).identity,
        compression="none",
        channel_axis={},
        asked_fields=(),
        skip_bad=False,
        shard_bytes=1 << 20,
    )


def test_a_worker_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    result = pack_range(Lease(tmp_path / "elsewhere" / "job", ""), Work(np.arange(3), None), None, 3)
    assert isinstance(result.error, UsageError)
    assert "does not see" in str(result.error)
    assert "elsewhere" in str(result.error)


def test_a_task_of_a_run_that_has_ended_publishes_nothing(tmp_path: Path) -> None:
    from stoker.store.dask._job import seal

    (tmp_path / "shards").mkdir()

    class Ending(Fixed):
        def __getitem__(self, i: int) -> dict[str, Any]:
            for lease in tmp_path.glob(".writing-*"):
                lease.unlink()
            return super().__getitem__(i)

    with leased(tmp_path, seal(made_job(tmp_path, Ending()))) as lease:
        result = pack_range(lease, Work(np.arange(9), None), None, 9)
    assert "has ended" in str(result.error)
    assert not list((tmp_path / "shards").iterdir())


def shard_ends(pieces: list[Range]) -> list[int]:
    """Where the shards end that come of the pieces of a cell, or of a range of whole cells."""
    first, last = pieces[0], pieces[-1]
    if len(pieces) > 1:
        assert last.stop - first.start == first.cell_size
        return [last.stop]
    return [*range(first.start + first.cell_size, first.stop, first.cell_size), first.stop]


def test_quick_cells_go_together_until_all_threads_can_finish_at_once() -> None:
    ranges = Ranges(10_000, shard_bytes=1000, batch_size=None)
    for _ in range(3):
        ranges.learn(num_packed=100, num_bytes=1000, num_samples=100, seconds=0.1)  # 0.1 s a cell
    taken = []
    while (piece := ranges.take(2)) is not None:
        taken.append(piece)
    num_cells = [(piece.stop - piece.start) / piece.cell_size for piece in taken]
    assert num_cells[0] == 10
    assert num_cells[-1] == 1
    assert num_cells == sorted(num_cells, reverse=True)


@given(
    num_samples=st.integers(1, 2000),
    num_threads=st.integers(1, 64),
    sample_bytes=st.integers(1, 500),
    seconds=st.sampled_from([1e-6, 1e-3, 0.1, 3.0, 50.0]),
    batch_size=st.none() | st.integers(1, 50),
    num_learned=st.integers(1, 4),
)
def test_ranges_follow_each_other_in_cells_that_fill_a_shard(
    num_samples: int,
    num_threads: int,
    sample_bytes: int,
    seconds: float,
    batch_size: int | None,
    num_learned: int,
) -> None:
    ranges = Ranges(num_samples, shard_bytes=1000, batch_size=batch_size)
    for _ in range(num_learned):
        ranges.learn(num_packed=3, num_bytes=3 * sample_bytes, num_samples=3, seconds=3 * seconds)
    taken = []
    while (piece := ranges.take(num_threads)) is not None:
        taken.append(piece)
    assert [piece.start for piece in taken] == [0, *(piece.stop for piece in taken[:-1])]
    assert taken[-1].stop == num_samples
    assert all(piece.start < piece.stop for piece in taken)
    cells = {piece.cell: [p for p in taken if p.cell == piece.cell] for piece in taken}
    assert all(len(pieces) == pieces[0].num_pieces for pieces in cells.values())
    ends = [end for pieces in cells.values() for end in shard_ends(pieces)]
    sizes = np.diff([0, *ends]).tolist()
    assert set(sizes[:-1]) <= {-(-1000 // sample_bytes)}
    assert sum(sizes) == num_samples
    if batch_size is not None:
        assert all(piece.stop - piece.start <= batch_size for piece in taken)
    elif seconds < 1:
        assert all((piece.stop - piece.start) * seconds <= 10.0 for piece in taken)


@pytest.mark.parametrize("scheduler", ["", "local:0", 7])
def test_what_can_be_no_scheduler_is_refused(scheduler: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="scheduler must be an address"):
        stoker.pack(Fixed(), tmp_path / "a", scheduler=scheduler)
    assert not (tmp_path / "a").exists()


def test_a_scheduler_brings_its_own_workers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not both"):
        stoker.pack(Fixed(), tmp_path / "a", scheduler="local:2", workers=2)


def test_without_the_library_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"stoker\[dask\]"):
        stoker.pack(Fixed(), tmp_path / "a", scheduler="local:2")


def test_a_scheduler_that_does_not_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.store.dask._cluster._CONNECT_S", 0.5)
    levels = logging.getLogger("distributed").level
    where = ("--scheduler", "tcp://127.0.0.1:9")
    done = call("pack", "support.cluster_sources:Fixed", "a.stoker", *where, cwd=tmp_path)
    assert done.returncode == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
    assert logging.getLogger("distributed").level == levels


def test_the_command_packs_on_a_cluster_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class Data:\n"
        "    def __len__(self): return 30\n"
        "    def __getitem__(self, i): return {'x': i}\n"
        "def double(sample): return {'x': 2 * sample['x']}\n"
    )
    common = ("--transform", "mine:double")
    many = ("--scheduler", "local:2")
    done = run("pack", "mine:Data", "many", *common, *many, cwd=tmp_path, options=["-W", "error"])
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    alone = call("pack", "mine:Data", "alone", *common, "--num-workers", "0", cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    assert described(stoker.open(tmp_path / "many")) == described(stoker.open(tmp_path / "alone"))


def test_packing_without_a_scheduler_imports_nothing_of_dask(tmp_path: Path) -> None:
    code = (
        "import sys, stoker; stoker.pack\n"
        "print(sorted({'dask', 'distributed', 'cloudpickle'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
