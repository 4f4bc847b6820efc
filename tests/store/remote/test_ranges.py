"""Parts of objects, from servers that fail, are slow, or say too much."""

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec.asyn
import numpy as np
import pytest

import stoker
from stoker.errors import DamagedStoreError, StoreUnreachableError
from stoker.store.remote import _bucket, _parts, _ranges
from stoker.store.remote._bucket import Bucket
from stoker.store.remote._patience import FaultError, Patience
from stoker.store.remote._ranges import Answer, Ranges
from support.datasets import assert_same
from support.fault_proxy import FaultProxy, FileServer

Serve = Callable[..., str]


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``c.stoker``: one shard of 32 samples of 16 kB."""
    path = tmp_path_factory.mktemp("far")
    values = np.random.default_rng(1).standard_normal((32, 4096)).astype(np.float32)
    samples = [{"x": x, "name": f"sample {number}"} for number, x in enumerate(values)]
    stoker.pack(samples, path / "c.stoker", workers=0, progress=False)
    return path


@pytest.fixture
def near(far: Path) -> stoker.Store:
    return stoker.open(far / "c.stoker")


@pytest.fixture(autouse=True)
def _cheap_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_parts, "_REQUEST_BYTES", 512)


def pass_on(_: Any) -> bool:
    return False


@pytest.mark.usefixtures("cache")
def test_a_fault_of_one_range_is_tried_again_with_an_fsspec_that_returns_errors(
    far: Path, near: stoker.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = fsspec.asyn.AsyncFileSystem._cat_ranges

    async def as_before(self: Any, *arguments: Any, **options: Any) -> Any:
        """Of versions before 2026.6, whatever ``on_error`` is."""
        return await plain(self, *arguments, **{**options, "on_error": "return"})

    monkeypatch.setattr(fsspec.asyn.AsyncFileSystem, "_cat_ranges", as_before)
    with FileServer(far, ranges=True) as server, FaultProxy(server.port) as proxy:
        few = stoker.open(f"{proxy.url}/c.stoker").select([3])
        proxy.break_("/shards/", ["500"])
        assert_same(few[0], near[3])


@pytest.mark.usefixtures("cache")
def test_a_piece_that_came_is_not_asked_for_again(
    far: Path, near: stoker.Store, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ranges, "_PIECE_BYTES", 4096)
    monkeypatch.setattr(_ranges, "_NUM_AT_A_TIME", 1)
    asked: list[tuple[int, int]] = []
    given: list[tuple[int, int]] = []

    def answer(request: Any) -> bool:
        asked.append(request.span)
        if len(asked) in {2, 7}:
            request.give(503, b"")
            return True
        given.append(request.span)
        return False

    few = stoker.open(f"{serve(far, answer)}/c.stoker").select([3, 20])
    assert_same(few[1], near[20])
    assert len(asked) == len(given) + 2
    assert len(given) == len(set(given)) > 7


@pytest.mark.usefixtures("cache")
def test_after_damage_all_is_asked_for_again(far: Path, near: stoker.Store, serve: Serve) -> None:
    spoilt: list[bytes] = []

    def answer(request: Any) -> bool:
        first, stop = request.span
        wanted = np.asarray(near[3]["x"]).tobytes()[:64]
        at = request.content[first:stop].find(wanted)
        if at < 0 or spoilt:
            return False
        spoilt.append(wanted)
        body = bytearray(request.content[first:stop])
        body[at] ^= 1
        request.give(206, bytes(body))
        return True

    few = stoker.open(f"{serve(far, answer)}/c.stoker").select([3])
    assert_same(few[0], near[3])
    assert spoilt


def test_silence_counts_from_the_last_byte_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now, num_moved = 0.0, 0
    monkeypatch.setattr(_bucket, "time", SimpleNamespace(monotonic=lambda: now))
    check = Bucket("memory://silence", Patience(stall_s=10.0))._watch(lambda: num_moved, None)
    for _ in range(5):  # 45 s, of which none of more than 9 was silent
        now += 9.0
        num_moved += 1
        check()
    now += 9.0
    check()
    now += 2.0
    with pytest.raises(FaultError, match="no byte came for 10 s"):
        check()


def test_every_byte_that_comes_is_told_even_where_it_is_not_needed() -> None:
    file = io.BytesIO()
    ranges = Ranges(file, [(0, 10), (90, 100)], 100)
    asked = ranges.new_try()
    answer = Answer(asked, (0, 10))  # and all of it comes, in parts
    for first in range(0, 100, 20):
        before = ranges.num_taken
        answer.write(bytes(range(first, first + 20)))
        ranges.take(asked)
        assert ranges.num_taken > before
    assert answer.finish()
    ranges.take(asked)
    assert ranges.new_try().pieces == []
    assert file.getvalue() == bytes(range(10)) + bytes(80) + bytes(range(90, 100))


@pytest.mark.usefixtures("cache")
def test_the_query_of_a_url_that_a_server_leads_on_to_is_not_repeated(
    far: Path, serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_bucket, "_TELL_AFTER_S", 0.0)

    def answer(request: Any) -> bool:
        if "?" in request.path:
            request.give(503, b"")
        else:
            request.give(302, b"", Location=f"{request.path}?X-Amz-Credential=ME&X-Amz-Signature=SECRET")
        return True

    url = f"{serve(far, answer)}/c.stoker"
    with pytest.raises(StoreUnreachableError, match="503") as caught:
        stoker.open(url, deadline_s=1.0)[3]
    assert f"{url}/shards/" in str(caught.value)
    assert "503" in caplog.text
    for text in (str(caught.value), caplog.text):
        assert "SECRET" not in text
        assert "Credential" not in text


@pytest.mark.usefixtures("cache")
def test_an_object_cut_short_is_damaged_and_not_unreachable(far: Path, serve: Serve, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(far, cut)
    for path in (cut / "c.stoker/shards").iterdir():
        os.truncate(path, path.stat().st_size // 2)
    few = stoker.open(f"{serve(cut, pass_on)}/c.stoker").select([3])
    with pytest.raises(DamagedStoreError, match=r"/shards/[0-9a-f]{32}\.h5: .* \(fetched 5 times\)"):
        few[0]


@pytest.mark.usefixtures("cache")
def test_an_answer_that_does_not_end_is_cut_off(far: Path, near: stoker.Store, serve: Serve) -> None:
    def answer(request: Any) -> bool:
        request.send_response(200)
        request.end_headers()
        while True:  # until the other side has had enough
            request.wfile.write(bytes(1 << 16))

    few = stoker.open(f"{serve(far, answer)}/c.stoker").select([3])
    num_bytes = near.manifest.shards[0].num_bytes
    with pytest.raises(DamagedStoreError, match=f"more than {num_bytes} bytes came from 0 on"):
        few[0]
