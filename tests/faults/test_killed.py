"""SIGKILL at random lines of the packer: the store is the old one or the new; a new run ends it."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import stoker
from stoker.errors import StoreNotFoundError
from support.datasets import Signals, keys
from support.killed_pack import killed_pack

KILLS = 36
FIRST, GROWN = 40, 60


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kill" in metafunc.fixturenames:
        kills = metafunc.config.getoption("--kills") or KILLS
        metafunc.parametrize("kill", range(kills))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Digests of stores that nobody disturbed, by number of samples."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return {
        count: stoker.pack(Signals(keys(count)), folder / f"{count}").content_digest
        for count in (FIRST, GROWN)
    }


@pytest.fixture(scope="module")
def num_lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How many lines of the package a packing process runs; about as many in parent and worker."""
    done = killed_pack(tmp_path_factory.mktemp("count") / "a.stoker", FIRST, "parent", 0)
    assert done.returncode == 0, done.stderr
    total = int(done.stdout)
    return {"parent": total, "worker": total}


def test_a_killed_packer_loses_nothing_that_was_finished(
    kill: int, undisturbed: dict[int, str], num_lines: dict[str, int], tmp_path: Path
) -> None:
    rng = random.Random(kill)
    path = tmp_path / "a.stoker"
    who = ("parent", "worker")[kill % 2]
    had = kill % 3 == 2  # every third store existed before and is being extended
    count = GROWN if had else FIRST
    if had:
        stoker.pack(Signals(keys(FIRST)), path, workers=0)
    line = rng.randrange(1, num_lines[who])

    killed = killed_pack(path, count, who, line)
    if who == "parent" and not had:  # how many lines it runs depends on which worker is done when
        assert killed.returncode == -signal.SIGKILL or int(killed.stdout) < line, killed.stderr
    elif killed.returncode not in (0, -signal.SIGKILL):
        assert "WorkerDiedError" in killed.stderr

    try:
        found = stoker.open(path)
    except StoreNotFoundError:
        assert not had
    else:
        assert found.content_digest == undisturbed[len(found)]
        assert found.verify().ok

    store = stoker.pack(Signals(keys(count)), path, workers=0, progress=False)
    assert store.content_digest == undisturbed[count]
    assert store.verify().ok
    expected = {f"{shard.digest}.h5" for shard in store.manifest.shards}
    assert {file.name for file in (path / "shards").iterdir()} == expected
    assert not list(path.glob(".writing*"))


def test_a_resumed_run_packs_only_what_was_not_finished(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    source = Signals(keys(FIRST))

    class Interrupted(Signals):
        def __getitem__(self, i: int) -> dict[str, object]:
            if i == 30:
                raise KeyboardInterrupt
            return super().__getitem__(i)

    with pytest.raises(KeyboardInterrupt):
        stoker.pack(Interrupted(keys(FIRST)), path, workers=0, shard_bytes=2000)
    store = stoker.pack(source, path, workers=0, shard_bytes=2000)
    assert sorted(source.reads) == keys(10, start=30)
    assert store.verify().ok


def test_a_forced_run_that_was_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    stoker.pack(Signals(keys(FIRST)), path, workers=0)

    class Interrupted(Signals):
        def __getitem__(self, i: int) -> dict[str, object]:
            if i == 30:
                raise KeyboardInterrupt
            return super().__getitem__(i)

    with pytest.raises(KeyboardInterrupt):
        stoker.pack(Interrupted(keys(FIRST), salt=1), path, workers=0, shard_bytes=2000, force=True)
    source = Signals(keys(FIRST), salt=1)
    stoker.pack(source, path, workers=0, force=True)
    assert sorted(source.reads) == keys(10, start=30)


def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    code = (
        "import os, sys, time, stoker\n"
        "class Slow(list):\n"
        "    def __getitem__(self, i):\n"
        "        print(os.getpid(), flush=True)\n"
        "        time.sleep(600)\n"
        f"stoker.pack(Slow([1] * 8), {str(tmp_path / 'a.stoker')!r}, workers=1)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        assert parent.stdout.read() == ""  # at the end only when the worker's copy is closed too
    assert worker != parent.pid
