import errno
import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import StoreBusyError, StoreNotFoundError, StoreWriteError, WorkerDiedError
from stoker.store._lock import exclusive
from support.datasets import Signals, keys
from support.forked import forked


def limited_pack(path: Path, workers: int, limit: int) -> "subprocess.CompletedProcess[str]":
    """Pack in a process whose files may not grow beyond ``limit`` bytes."""
    code = (
        "import sys, stoker\n"
        "from support.datasets import Signals, keys\n"
        f"stoker.pack(Signals(keys(400)), {str(path)!r}, workers={workers}, progress=False)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_full_disk_is_told_and_leaves_no_half_file(workers: int, tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    done = limited_pack(path, workers, 40_000)
    assert done.returncode == 1
    assert "StoreWriteError: cannot write" in done.stderr
    assert "ulimit -f" in done.stderr
    assert not list(path.rglob(".writing*"))
    with pytest.raises(StoreNotFoundError, match="run `stoker pack` again"):
        stoker.open(path)
    assert len(stoker.pack(Signals(keys(400)), path, workers=0)) == 400


def test_a_real_full_disk_is_told(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        with pytest.raises(StoreWriteError, match="No space left on device; free some space"):
            stoker.pack(Signals(keys(400)), mount / "a.stoker", workers=0)
        assert not list(mount.rglob(".writing*"))
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_the_next_sample_is_read_while_a_shard_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_is_read = threading.Event()

    class Watched(Signals):
        def __getitem__(self, i: int) -> dict[str, Any]:
            if i == 1:
                second_is_read.set()
            return super().__getitem__(i)

    def slow_disk(descriptor: int) -> None:
        if threading.current_thread().name == "stoker-publisher":
            assert second_is_read.wait(120)
        to_disk(descriptor)

    to_disk = os.fsync
    monkeypatch.setattr(os, "fsync", slow_disk)
    store = stoker.pack(Watched(keys(3)), tmp_path / "a.stoker", workers=0, shard_bytes=1)
    assert len(store) == 3
    assert store.verify().ok


def test_killed_while_a_shard_waits_for_the_disk_the_next_run_goes_on(tmp_path: Path) -> None:
    path, source = tmp_path / "a.stoker", Signals(keys(4))

    def pack_until_the_second_shard() -> None:
        to_disk, num_waiting = os.fsync, itertools.count()

        def deadly_disk(descriptor: int) -> None:
            if threading.current_thread().name == "stoker-publisher" and next(num_waiting) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            to_disk(descriptor)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", deadly_disk)
            stoker.pack(source, path, workers=0, shard_bytes=1)

    assert forked(pack_until_the_second_shard).returncode == -signal.SIGKILL
    assert len(list((path / "shards").glob("*.h5"))) == 1
    store = stoker.pack(source, path, workers=0, shard_bytes=1)
    assert store.content_digest == stoker.pack(source, tmp_path / "b.stoker", workers=0).content_digest
    assert store.verify().ok
    assert not list(path.rglob(".writing*"))


def test_a_disk_that_fails_while_samples_are_read_is_told_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing_disk(descriptor: int) -> None:
        if threading.current_thread().name == "stoker-publisher":
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        to_disk(descriptor)

    to_disk = os.fsync
    path = tmp_path / "a.stoker"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing_disk)
        with pytest.raises(StoreWriteError, match="your disk quota is used up"):
            stoker.pack(Signals(keys(3)), path, workers=0, shard_bytes=1)
    assert not list(path.rglob(".writing*"))
    assert len(stoker.pack(Signals(keys(3)), path, workers=0)) == 3


def test_a_read_only_target_is_told(tmp_path: Path) -> None:
    mount = tmp_path / "fixed"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(mount)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        with pytest.raises(StoreWriteError, match="choose another folder"):
            stoker.pack(Signals(keys(4)), mount / "a.stoker", workers=0)
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_target_below_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreWriteError, match="cannot write"):
        stoker.pack(Signals(keys(4)), tmp_path / "file" / "a.stoker", workers=0)


def test_the_second_packer_is_told_who_holds_the_store(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from stoker.store._lock import exclusive\n"
        f"with exclusive(Path({str(path)!r}), 'pack'):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    stoker.pack(Signals(keys(4)), path, workers=0)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreBusyError, match=f"`stoker pack`, process {holder.pid} on "):
            stoker.pack(Signals(keys(5)), path, workers=0)
        assert len(stoker.open(path)) == 4  # readers do not mind
        holder.kill()
        holder.wait()
    assert len(stoker.pack(Signals(keys(5)), path, workers=0)) == 5


def test_a_lock_is_free_again_after_use(tmp_path: Path) -> None:
    for _ in range(2):
        with exclusive(tmp_path, "pack"):
            pass


class Deadly(Signals):
    """The worker that reads sample 17 is killed, as the kernel does when memory runs out."""

    def __getitem__(self, i: int) -> dict[str, object]:
        if i == 17:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(i)


def test_a_killed_worker_is_told_and_the_next_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    with pytest.raises(WorkerDiedError, match=r"killed by signal 9 .*run again"):
        stoker.pack(Deadly(keys(40)), path, workers=2, shard_bytes=1000)
    assert stoker.pack(Signals(keys(40)), path, workers=2).verify().ok


def test_ctrl_c_keeps_what_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    code = (
        "import os, sys, signal, stoker\n"
        "from support.datasets import Signals, keys\n"
        "class Interrupting(Signals):\n"
        "    def __getitem__(self, i):\n"
        "        if i == 30:\n"
        "            os.killpg(0, signal.SIGINT)\n"
        "        return super().__getitem__(i)\n"
        f"stoker.pack(Interrupting(keys(2000)), {str(path)!r}, workers=2, progress=False)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr
    source = Signals(keys(2000))
    store = stoker.pack(source, path, workers=0)
    assert 0 < len(source.reads) < 2000
    assert store.verify().ok
