import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

import stoker
from stoker.errors import (
    DamagedStoreError,
    StoreNotFoundError,
    StoreUnreachableError,
    StoreWriteError,
    UsageError,
)
from stoker.store import push
from support.commands import call
from support.datasets import Signals, assert_same, keys
from support.fault_proxy import FaultProxy


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> str:
    return f"memory://{abs(hash(request.node.name))}/a.stoker"


@pytest.mark.usefixtures("cache")
def test_what_was_pushed_is_the_store_and_is_sent_once(bucket: str, local: stoker.Store) -> None:
    num_files = len(local.manifest.shards) + 1
    done = push(local.path, bucket)
    assert (done.num_files, done.num_bytes, done.num_kept) == (num_files, local.manifest.num_bytes, 0)
    again = push(local.path, bucket)
    assert (again.num_files, again.num_bytes, again.num_kept) == (0, 0, num_files)
    store = stoker.open(bucket)
    for i in range(60):
        assert_same(store[i], local[i])
    assert store.verify().ok


@pytest.mark.usefixtures("cache")
def test_readers_of_the_old_store_go_on_while_a_new_one_is_pushed(bucket: str, tmp_path: Path) -> None:
    old = stoker.pack(Signals(keys(20)), tmp_path / "a.stoker", shard_bytes=3000, workers=0, progress=False)
    push(old.path, bucket)
    expected = [old[i] for i in range(20)]
    reader = stoker.open(bucket)
    source = Signals(keys(20))
    source.changed["sample-0003"] = 1
    new = stoker.pack(source, tmp_path / "a.stoker", shard_bytes=3000, workers=0, progress=False)
    done = push(new.path, bucket)
    assert done.num_kept > 0
    for i in range(20):
        assert_same(reader[i], expected[i])
    assert_same(stoker.open(bucket)[3], new[3])


@pytest.mark.usefixtures("cache")
def test_the_manifest_comes_last(bucket: str, local: stoker.Store, tmp_path: Path) -> None:
    copy = shutil.copytree(local.path, tmp_path / "a.stoker")
    damaged = copy / "shards" / f"{local.manifest.shards[-1].digest}.h5"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(DamagedStoreError, match="is damaged and was not sent"):
        push(copy, bucket)
    with pytest.raises(StoreNotFoundError):
        stoker.open(bucket)
    assert not fsspec.filesystem("memory").exists(f"{bucket}/shards/{damaged.name}")
    assert push(local.path, bucket).num_files > 0
    assert stoker.open(bucket).verify().ok


def test_a_place_that_cannot_be_written_is_an_error_that_names_the_object(
    proxy: FaultProxy, local: stoker.Store
) -> None:
    with pytest.raises(StoreUnreachableError, match=rf"{proxy.url}/new\.stoker/shards/[0-9a-f]{{32}}\.h5"):
        push(local.path, f"{proxy.url}/new.stoker", deadline_s=0.5)


def test_the_folders_of_a_file_url_are_made(local: stoker.Store, tmp_path: Path) -> None:
    url = (tmp_path / "new" / "b.stoker").as_uri()
    assert push(local.path, url).num_files == len(local.manifest.shards) + 1
    assert stoker.open(url).verify().ok


def test_a_place_that_cannot_be_made_is_an_error_of_writing(local: stoker.Store) -> None:
    with pytest.raises(StoreWriteError, match=r"file:///proc/b/shards/.* cannot be written"):
        push(local.path, "file:///proc/b")


def test_a_folder_is_no_place_to_push_to(local: stoker.Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is pushed to a URL"):
        push(local.path, str(tmp_path / "b.stoker"))


def test_packing_to_a_url_points_to_push(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"packed into a folder, got 's3://b/a.stoker'"):
        stoker.pack(Signals(keys(3)), "s3://b/a.stoker")
    done = call("pack", tmp_path, "s3://b/a.stoker", cwd=tmp_path)
    assert done.returncode == 2
    assert "stoker push FOLDER s3://b/a.stoker" in " ".join(done.stderr.split())


def test_the_command(local: stoker.Store, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket/a.stoker"
    done = call("push", local.path, url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{url}: sent {len(local.manifest.shards) + 1} files" in done.stdout


def test_a_signal_ends_it_though_no_server_answers(local: stoker.Store, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/new.stoker"
    command = [sys.executable, "-m", "stoker", "push", str(local.path), url]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            told = next(line for line in process.stderr if "tried again" in line)
            for _ in range(2):  # as `timeout` does: to the process and to its group
                process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=60)  # it would try for ten minutes
        finally:
            process.kill()
    assert f"{url}/shards/" in told
    assert process.returncode == 143
    assert "Traceback" not in rest
