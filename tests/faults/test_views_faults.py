"""Makers of caches that are killed, and several processes that want the same one, all of them real."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.loader import _decoded, decoded
from stoker.loader._block_source import BlockSource
from stoker.loader._made_once import turn
from support.datasets import Signals, keys
from support.forked import Forked, forked
from support.slow_augment import watched
from support.viewing_rank import shown

COUNT = 64
TESTS = Path(__file__).parents[1]
RANK = TESTS / "support" / "viewing_rank.py"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    return stoker.pack(Signals(keys(COUNT)), tmp_path_factory.mktemp("store") / "a.stoker", workers=0)


@pytest.fixture(scope="module")
def undisturbed(store: stoker.Store, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The digests of the first two generations."""
    with stoker.ViewCache(store, watched, tmp_path_factory.mktemp("whole"), batch_size=8) as views:
        return [views.generation(number).content_digest for number in (0, 1)]


def started(store: stoker.Store, path: Path, **environment: Any) -> "subprocess.Popen[str]":
    """A program that trains on views of the store."""
    return subprocess.Popen(
        [sys.executable, str(RANK), str(store.path), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **{k: str(v) for k, v in environment.items()}},
    )


@pytest.mark.parametrize("victim", ["parent", "self"])
def test_a_killed_generation_is_made_again_to_the_same_bits(
    victim: str, store: stoker.Store, undisturbed: list[str], tmp_path: Path
) -> None:
    killed = Forked(lambda: shown(str(store.path), str(tmp_path)), STOKER_TEST_KILL=victim).wait()
    if victim == "parent":
        assert killed.returncode == -signal.SIGKILL
    else:
        assert "WorkerDiedError" in killed.stderr
    with stoker.ViewCache(store, watched, tmp_path, batch_size=8) as views:
        assert not views.is_ready(0)
        made = views.generation(0)
    assert made.content_digest == undisturbed[0]
    assert made.verify().ok
    assert not list(tmp_path.rglob(".writing*"))


def test_ranks_that_start_together_make_the_views_once(
    store: stoker.Store, undisturbed: list[str], tmp_path: Path
) -> None:
    alone = shown(str(store.path), str(tmp_path / "alone"), epochs=4)
    notes = tmp_path / "notes"

    def train(rank: int) -> None:
        sys.stdout.write(json.dumps(shown(str(store.path), str(tmp_path / "shared"), rank, 3, 4)))

    ranks = [Forked(partial(train, rank), STOKER_TEST_NOTES=notes, LOCAL_WORLD_SIZE=3) for rank in range(3)]
    ended = [rank.wait() for rank in ranks]
    assert [rank.returncode for rank in ended] == [0, 0, 0], [rank.stderr for rank in ended]
    found = [pair for rank in ended for pair in json.loads(rank.stdout)]
    # the last step of three ranks may show a sample twice
    assert {tuple(pair) for pair in found} == {tuple(pair) for pair in alone}
    made = [line.split() for line in notes.read_text().splitlines()]
    batches = [(epoch, index) for _, epoch, index in made if epoch in {"0", "1"}]
    assert len({maker for maker, epoch, _ in made if epoch in {"0", "1"}}) == 1
    assert len(batches) == len(set(batches)) == 2 * COUNT // 8
    with stoker.ViewCache(store, watched, tmp_path / "shared", batch_size=8) as views:
        assert views.is_ready(0)
        assert [views.generation(number).content_digest for number in (0, 1)] == undisturbed


def test_whoever_waits_goes_on_when_the_maker_is_killed(
    store: stoker.Store, undisturbed: list[str], tmp_path: Path
) -> None:
    gate, notes = tmp_path / "gate", tmp_path / "notes"
    os.mkfifo(gate)
    maker = started(store, tmp_path / "views", STOKER_TEST_GATE=gate, STOKER_TEST_NOTES=notes)
    with gate.open("w"):  # opens when a worker of the maker has come that far
        waiting = started(store, tmp_path / "views")
        assert waiting.stderr is not None
        for line in waiting.stderr:
            if "waiting for another process" in line:
                break
        maker.kill()
        maker.communicate()
    out, errors = waiting.communicate(timeout=200)
    assert waiting.returncode == 0, errors
    assert len(json.loads(out)) == COUNT
    with stoker.ViewCache(store, watched, tmp_path / "views", batch_size=8) as views:
        assert views.generation(0).content_digest == undisturbed[0]


def test_the_process_beside_dies_with_a_killed_training(
    store: stoker.Store, undisturbed: list[str], tmp_path: Path
) -> None:
    """Its lock is free at once, and what it had finished is gone on with."""
    code = (
        "import os, signal, sys, stoker\n"
        "from pathlib import Path\n"
        "from support.slow_augment import watched\n"
        "class Gated:\n"
        "    version = '1'\n"
        "    def __call__(self, batch, *, index, epoch):\n"
        "        if epoch == 6 and index[0] == 32:\n"
        "            Path(sys.argv[3]).read_text()\n"
        "        return watched(batch, index=index, epoch=epoch)\n"
        "views = stoker.ViewCache(stoker.open(sys.argv[1]), Gated(), sys.argv[2], batch_size=8, workers=1)\n"
        "for batch in stoker.Loader(views, 8): pass\n"
        "print('trained', flush=True)\n"
        "sys.stdin.read()\n"
    )
    gate, path = tmp_path / "gate", tmp_path / "views"
    os.mkfifo(gate)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(store.path), str(path), str(gate)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    ) as training:
        assert training.stdout is not None
        assert training.stdout.readline() == "trained\n"
        with gate.open("w"):  # the process beside is at work
            training.kill()
            training.wait()
            assert training.stdout.read() == ""  # all of its processes are gone
    (lock,) = path.glob(".views-*.lock")
    with turn(lock, wait=False) as held:
        assert held
    (first,) = path.glob("generation-0-*.stoker")
    assert stoker.open(first).content_digest == undisturbed[0]
    assert not list(path.glob("generation-1-*.stoker/manifest.json"))


def test_processes_that_start_together_decode_once(tmp_path: Path) -> None:
    store = stoker.pack(
        Signals(keys(2000)), tmp_path / "a.stoker", workers=0, compression="lz4", shard_bytes=100_000
    )
    cache = tmp_path / "cache"

    def decode() -> None:
        made = decoded(stoker.open(store.path), cache)
        sys.stdout.write(f"{made.path.stat().st_ino} {made.content_digest}")

    several = [process.wait() for process in [Forked(decode) for _ in range(3)]]
    assert [process.returncode for process in several] == [0, 0, 0], [each.stderr for each in several]
    (path,) = cache.glob("*.stoker")
    assert {process.stdout for process in several} == {f"{path.stat().st_ino} {store.content_digest}"}
    assert (path / "pack.log").read_text().count("done in") == 1


def test_a_killed_decoder_is_gone_on_with(tmp_path: Path) -> None:
    store = stoker.pack(
        Signals(keys(400)), tmp_path / "a.stoker", workers=0, compression="gzip", shard_bytes=20_000
    )
    cache = tmp_path / "cache"
    make = BlockSource.__getitem__

    def deadly(self: Any, i: int) -> Any:
        if i == 300:
            os.kill(os.getpid(), signal.SIGKILL)
        return make(self, i)

    def decode_and_die() -> None:  # in a process of its own, which alone is changed
        _decoded.pack = partial(_decoded.pack, shard_bytes=20_000)  # type: ignore[attr-defined]
        BlockSource.__getitem__ = deadly  # type: ignore[method-assign]
        decoded(stoker.open(store.path), cache)

    assert forked(decode_and_die).returncode == -signal.SIGKILL
    assert list(cache.glob("*/shards/*.h5"))
    made = decoded(store, cache)
    assert made.content_digest == store.content_digest
    assert made.verify().ok
    kept = [line for line in (made.path / "pack.log").read_text().splitlines() if "done in" in line]
    assert " 0 kept" not in kept[-1]
