"""A cache whose processes are killed, whose bytes are damaged, whose disk is full."""

import contextlib
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from stoker.errors import StoreMismatchError, StoreWriteError
from stoker.loader import Cached, _cache_files
from support.killed_cache import PAGE, assert_sound, open_cache

SCRIPT = Path(__file__).parents[1] / "support" / "killed_cache.py"


def in_child(work: Callable[[], None]) -> int:
    """Run it in a fork of this process; its exit code, negative for a signal."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode


@pytest.mark.parametrize(("work", "least"), [("memory", 100), ("folder", 100), ("opening", 50)])
def test_a_process_killed_at_any_line_of_a_write_or_of_opening_leaves_the_cache_sound(
    work: str, least: int, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), work, str(tmp_path / "c")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > least


def test_a_killed_run_leaves_nothing_behind() -> None:
    def fill_and_die() -> None:
        cached = open_cache(None, budget=1000, count=50)
        for i in range(50):
            cached[i]
        assert cached.stats().num_samples == 50
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(fill_and_die) == -signal.SIGKILL
    assert not list(Path("/dev/shm").glob("*stoker-cache*"))


def hammer(cached: Cached, seed: int, barrier: Barrier) -> None:
    barrier.wait()
    for i in np.random.default_rng(seed).integers(0, len(cached), 600).tolist():
        assert (cached[i] == i).all()
        assert cached.stats().num_bytes <= 10 * PAGE


@pytest.mark.parametrize("place", ["memory", "folder"])
def test_processes_that_miss_at_once_are_all_served_and_keep_the_budget(place: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with open_cache(None if place == "memory" else tmp_path / "c") as cached:
        barrier = context.Barrier(3)
        children = [
            context.Process(target=hammer, args=(cached, seed // 2, barrier))  # two ask for the same
            for seed in range(3)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0, 0, 0]
        stats = cached.stats()
        assert stats.hits + stats.misses == 3 * 600
        assert stats.evictions > 0
        assert_sound(cached)


def open_and_read(folder: Path, barrier: Barrier) -> None:
    barrier.wait()
    with open_cache(folder) as cached:
        assert_right(cached)


def assert_right(cached: Cached) -> None:
    for i in range(len(cached)):
        assert (cached[i] == i).all()


def test_ranks_that_open_a_new_folder_at_once_share_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    children = [context.Process(target=open_and_read, args=(tmp_path / "c", barrier)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    with open_cache(tmp_path / "c") as cached:
        assert_sound(cached)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_bytes_are_computed_anew_and_never_served(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    with open_cache(tmp_path / "c", budget=40) as cached:
        assert_sound(cached, budget=40)
    path = tmp_path / "c" / "stoker-cache.samples"
    content = np.fromfile(path, np.uint8)
    page = int(rng.integers(len(content) // PAGE)) * PAGE
    content[page + int(rng.integers(PAGE - 600))] ^= np.uint8(1 << rng.integers(8))
    content.tofile(path)
    with open_cache(tmp_path / "c", budget=40) as cached:
        assert_right(cached)
        assert (cached.stats().hits, cached.stats().misses) == (11, 1)
        assert_sound(cached, budget=40)
        assert cached.stats().misses == 1  # the new one is good


@pytest.mark.parametrize("num_bytes", [0, 1, 5 * PAGE, 5 * PAGE + 1, 20 * PAGE])
def test_a_file_that_lost_its_end_loses_those_samples_only(num_bytes: int, tmp_path: Path) -> None:
    with open_cache(tmp_path / "c", budget=40) as cached:
        assert_right(cached)
    os.truncate(tmp_path / "c" / "stoker-cache.samples", num_bytes)
    with open_cache(tmp_path / "c", budget=40) as cached:
        assert_right(cached)
        assert cached.stats().hits < 12
        assert_sound(cached, budget=40)
        os.ftruncate(cached._arena.index.files.samples, num_bytes)  # and while it is in use
        assert_right(cached)


@pytest.mark.parametrize("seed", range(40))
def test_an_index_that_lies_never_makes_a_wrong_sample(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    with open_cache(tmp_path / "c", budget=40) as cached:
        assert_right(cached)
    path = tmp_path / "c" / "stoker-cache.index"
    words = np.fromfile(path, np.uint64)
    records = words[_cache_files.FIRST_RECORD :]
    for _ in range(6):
        value = rng.integers(0, 2**63, dtype=np.uint64) >> np.uint64(rng.integers(63))
        records[rng.integers(len(records))] = rng.choice([value, records[rng.integers(len(records))]])
    words[_cache_files.POSITION : _cache_files.NUM_SAMPLES + 1] = rng.integers(0, 2**63, 3)
    words.tofile(path)
    with open_cache(tmp_path / "c", budget=40) as cached:
        for _ in range(2):
            assert_right(cached)
        assert cached.stats().num_bytes <= 40 * PAGE


def test_an_index_that_was_never_finished_is_made_anew_and_a_short_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "c" / "stoker-cache.index"
    with open_cache(tmp_path / "c") as cached:
        assert_right(cached)
    content = path.read_bytes()
    path.write_bytes(content[:-8])
    with pytest.raises(StoreMismatchError, match=r"has lost its end: .* delete that folder"):
        open_cache(tmp_path / "c")
    path.write_bytes(bytes(8) + content[8:])
    with open_cache(tmp_path / "c") as cached:
        assert cached.stats().num_samples == 0
        assert_sound(cached)


@contextlib.contextmanager
def mounted(folder: Path, kind: str, options: str) -> Iterator[Path]:
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", kind, "-o", options, kind, str(folder)], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip(f"mounting a {kind} is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_on_a_full_disk_caching_stops_with_one_warning_and_samples_still_come(tmp_path: Path) -> None:
    with (
        mounted(tmp_path / "small", "tmpfs", "size=64k") as mount,
        open_cache(mount / "c", budget=100, count=40) as cached,
    ):
        with pytest.warns(
            UserWarning, match=r"no more samples are cached, (\d) of 40 are: .*No space"
        ) as told:
            assert_right(cached)
        assert len(told) == 1
        num_samples = cached.stats().num_samples
        assert 0 < num_samples < 10
        assert_right(cached)
        assert cached.stats().hits == num_samples
        assert_sound(cached, budget=100)


def test_workers_on_a_full_disk_warn_once_together(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with (
        mounted(tmp_path / "small", "tmpfs", "size=64k") as mount,
        open_cache(mount / "c", budget=100, count=40) as cached,
    ):
        loader: DataLoader[Any] = DataLoader(
            cached,  # type: ignore[arg-type]
            batch_size=1,
            num_workers=2,
            collate_fn=list,
            worker_init_fn=functools.partial(write_warnings_down, told),
        )
        for number, (sample,) in enumerate(loader):
            assert (sample == number).all()
    assert told.read_text().count("no more samples are cached") == 1


def write_warnings_down(path: Path, worker: int) -> None:  # noqa: ARG001 - PyTorch's signature
    def show(message: Warning | str, *_: object) -> None:
        with path.open("a") as file:
            file.write(f"{message}\n")

    warnings.simplefilter("always")
    warnings.showwarning = show  # type: ignore[assignment]  # it takes whatever it is given


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreWriteError, match="cannot write"):
        open_cache(tmp_path / "file" / "c")
    with (
        mounted(tmp_path / "full", "tmpfs", "size=8k") as mount,
        pytest.raises(StoreWriteError, match=r"No space left on device; free some space"),
    ):
        open_cache(mount / "c", count=1000)
    with (
        mounted(tmp_path / "fixed", "tmpfs", "ro,size=64k") as mount,
        pytest.raises(StoreWriteError, match="choose another folder"),
    ):
        open_cache(mount / "c")


def test_where_holes_cannot_be_punched_what_is_cached_stays(tmp_path: Path) -> None:
    with mounted(tmp_path / "plain", "ramfs", "") as mount:
        with pytest.warns(UserWarning, match=r"cannot free a part of a file: .* local disk"):
            cached = open_cache(mount / "c", budget=10)
        with cached:
            for _ in range(2):
                assert_right(cached)
            assert cached.stats().evictions == 0
            assert 8 * PAGE <= cached.stats().num_bytes <= 10 * PAGE
            num_samples = cached.stats().num_samples
            assert cached.stats().hits == num_samples
        with pytest.warns(UserWarning, match="cannot free"):
            cached = open_cache(mount / "c", budget=3)
        with cached:
            assert cached.stats().num_samples == 0  # all or nothing is all that can be given back there
            assert_right(cached)
