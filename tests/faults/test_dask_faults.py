"""Workers, client and scheduler of a real cluster are killed while it packs: nothing is lost or doubled."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from stoker.errors import WorkerDiedError
from support.cluster_sources import Deadly, Lethal, Noted
from support.dask_cluster import cluster
from support.datasets import Signals, keys

COUNT = 120
SHARD_BYTES = 9000  # about twenty samples
SEEDS = (0, 1)
DEATHS = 3  # of workers in a run
LINES = 1500  # about as many of the package's run while a worker packs a shard


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(2, tmp_path_factory.mktemp("scratch")) as found:
        yield found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return stoker.pack(Signals(keys(COUNT)), tmp_path_factory.mktemp("a"), workers=0).content_digest


def assert_whole(store: stoker.Store, digest: str) -> None:
    """The store is the undisturbed one, and beside its files there is nothing."""
    assert store.content_digest == digest
    assert store.verify().ok
    expected = {f"{shard.digest}.h5" for shard in store.manifest.shards}
    assert {file.name for file in (store.path / "shards").iterdir()} == expected
    assert not list(store.path.glob(".writing*"))


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_killed_at_random_cost_only_time(
    seed: int, address: str, undisturbed: str, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    deaths = {sample: rng.randrange(1, LINES) for sample in rng.sample(range(3, COUNT), DEATHS)}
    notes = tmp_path / "notes"
    notes.mkdir()
    source = Deadly(keys(COUNT), notes, deaths)
    batch_size = rng.choice([None, 8])
    store = stoker.pack(
        source,
        tmp_path / "a",
        scheduler=address,
        shard_bytes=SHARD_BYTES,
        batch_size=batch_size,
        progress=False,
    )
    assert {int(note.name) for note in notes.iterdir()} == set(deaths)
    assert_whole(store, undisturbed)


@pytest.mark.parametrize("again_on_dask", [False, True])
def test_a_killed_client_is_gone_on_with_from_another_process(
    again_on_dask: bool, address: str, undisturbed: str, tmp_path: Path
) -> None:
    path, notes = tmp_path / "a", tmp_path / "notes"
    notes.mkdir()
    code = (
        "import os, sys, stoker\n"
        "from pathlib import Path\n"
        "from support.cluster_sources import Lethal\n"
        "from support.datasets import keys\n"
        f"source = Lethal(keys({COUNT}), 100, victim=os.getpid(), once=Path({str(tmp_path / 'once')!r}))\n"
        f"options = dict(scheduler={address!r}, shard_bytes={SHARD_BYTES}, batch_size=10)\n"
        f"stoker.pack(source, {str(path)!r}, **options)\n"
    )
    tests = str(Path(__file__).parents[1])
    killed = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": tests}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    finished = list((path / "shards").glob("*.h5"))
    assert finished

    source = Noted(keys(COUNT), notes)
    scheduler = address if again_on_dask else None
    store = stoker.pack(source, path, scheduler=scheduler, shard_bytes=SHARD_BYTES, progress=False)
    assert len(source.noted()) < COUNT - 10  # all that was finished was used
    assert_whole(store, undisturbed)


def test_samples_that_kill_every_worker_are_named(tmp_path: Path) -> None:
    failures = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with cluster(1, scratch, **failures) as lone:
        source = Lethal(keys(60), 47)
        with pytest.raises(WorkerDiedError, match="'sample-0040' to 'sample-0049' ended every"):
            stoker.pack(source, tmp_path / "a", scheduler=lone, batch_size=10, progress=False)

        from distributed import Client

        with Client(lone, set_as_default=False) as client:
            host = client.run_on_scheduler(os.getpid)
        gone = Lethal(keys(60), 30, victim=host)  # the process of the scheduler
        with pytest.raises(WorkerDiedError, match="scheduler is gone"):
            stoker.pack(gone, tmp_path / "b", scheduler=lone, batch_size=10, progress=False)
    store = stoker.pack(Signals(keys(60)), tmp_path / "b", workers=0, progress=False)
    assert store.verify().ok


def test_ctrl_c_ends_a_cluster_of_our_own_and_keeps_what_was_finished(tmp_path: Path) -> None:
    began, go_on = tmp_path / "began", tmp_path / "go_on"
    os.mkfifo(began)
    os.mkfifo(go_on)
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\n"
        "from support.cluster_sources import Signalling\n"
        "from support.datasets import keys\n"
        f"source = Signalling(keys(40), Path({str(began)!r}), Path({str(go_on)!r}))\n"
    )
    words = ("pack", "mine:source", "a", "--scheduler", "local:2", "--batch-size", "5")
    with subprocess.Popen(
        [sys.executable, "-m", "stoker", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        began.read_text()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
        out, errors = process.communicate()  # at the end only when the workers are gone as well
    assert process.returncode == 130
    assert out == ""
    assert errors == "error: interrupted; what was finished is kept: run again to go on\n"
    assert list((tmp_path / "a" / "shards").glob("*.h5"))
    assert not list((tmp_path / "a").glob(".writing*"))
