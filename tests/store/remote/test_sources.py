"""Raw files at a URL are packed as those of a folder are."""

import gc
import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import stoker
from stoker.errors import BadSampleError, SourceError, StoreUnreachableError
from stoker.store.remote._patience import Patience
from stoker.store.sources import _files
from stoker.store.sources import open_source as typed_open_source
from stoker.store.sources._listing import choose, list_files
from support.datasets import assert_same
from support.fault_proxy import FAULTS, FaultProxy, FileServer


def open_source(spec: object, **options: Any) -> Any:
    return typed_open_source(spec, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images in class folders with masks beside, and a table of them."""
    root = tmp_path / "raw"
    rng = np.random.default_rng(0)
    rows = ["path,label"]
    for number in range(6):
        kind = ("cat", "dog")[number % 2]
        for part, shape in (("images", (8, 8, 3)), ("masks", (8, 8))):
            path = root / part / kind / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, shape, np.uint8)).save(path)
        rows.append(f"images/{kind}/{number}.png,{kind}")
    (root / "studies.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.fixture
def in_memory(folder: Path) -> Iterator[str]:
    fs = fsspec.filesystem("memory")
    fs.put(str(folder), "/raw", recursive=True)
    yield "memory://raw"
    fs.rm("/raw", recursive=True)


@pytest.fixture
def served(folder: Path) -> Iterator[FaultProxy]:
    with FileServer(folder) as server, FaultProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_files, "_PATIENCE", Patience(deadline_s=3.0, stall_s=0.3))


@pytest.mark.parametrize("where", ["memory", "http"])
def test_folders_patterns_and_tables_give_what_local_ones_give(
    where: str, folder: Path, in_memory: str, served: FaultProxy
) -> None:
    url = in_memory if where == "memory" else served.url
    cats = {"labels": "folder", "masks": "../../masks/cat/{stem}.png", "pattern": "images/cat/*.png"}
    for far, near in (
        (open_source(url, **cats), open_source(folder, **cats)),
        (open_source(f"{url}/images/*/*.png"), open_source(f"{folder}/images/*/*.png")),
        (
            open_source(f"{url}/studies.csv", path_column="path", label_column="label"),
            open_source(folder / "studies.csv", path_column="path", label_column="label"),
        ),
    ):
        assert list(far.keys()) == list(near.keys())
        assert far.classes == near.classes
        for i in range(len(near)):
            assert_same(far[i], near[i])
        found = far.fingerprints()
        if where == "memory":  # a web server tells whole seconds
            assert len(np.unique(found, axis=0)) == len(far)
        assert [row.tobytes() for row in found] == [far.fingerprint(i) for i in range(len(far))]


def test_a_table_here_may_name_objects_there(folder: Path, in_memory: str, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = (folder / "studies.csv").read_text().splitlines()
    table.write_text("\n".join([rows[0], *(f"{in_memory}/{row}" for row in rows[1:])]) + "\n")
    far = open_source(table, path_column="path", label_column="label")
    near = open_source(folder / "studies.csv", path_column="path", label_column="label")
    assert_same(far[3], near[3])
    assert far.key(3) == f"{in_memory}/{near.key(3)}"
    table.write_text("\n".join([*rows, f"{in_memory}/images/cat/9.png,cat"]) + "\n")
    with pytest.raises(SourceError, match="URLs or paths, it has 1 URLs"):
        open_source(table, path_column="path")


def test_only_what_changed_is_packed_again(in_memory: str, tmp_path: Path) -> None:
    def pack() -> stoker.Store:
        return stoker.pack(f"{in_memory}/images/*/*.png", tmp_path / "a.stoker", workers=0, progress=False)

    first = pack()
    assert pack().content_digest == first.content_digest
    fs = fsspec.filesystem("memory")
    fs.copy("/raw/images/dog/1.png", "/raw/images/cat/0.png")
    changed = pack()
    assert_same(changed[0], changed[3])
    assert changed.content_digest != first.content_digest
    statistics = json.loads((tmp_path / "a.stoker" / "statistics.json").read_text())
    assert statistics["num_packed"] == 1


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "wrong"])
@pytest.mark.usefixtures("hurried")
def test_a_passing_fault_costs_only_time(fault: str, folder: Path, served: FaultProxy) -> None:
    far, near = (open_source(f"{base}/studies.csv", path_column="path") for base in (served.url, str(folder)))
    far.fingerprints()  # the sizes are known from then on
    served.break_("/images/cat/0.png", [fault])
    assert_same(far[0], near[0])


@pytest.mark.usefixtures("hurried")
def test_a_missing_object_is_a_bad_sample_and_an_unreachable_one_ends_the_run(
    folder: Path, served: FaultProxy, tmp_path: Path
) -> None:
    shutil.copy(folder / "studies.csv", folder / "more.csv")
    with (folder / "more.csv").open("a") as file:
        file.write("images/cat/absent.png,cat\n")
    source = open_source(f"{served.url}/more.csv", path_column="path")
    with pytest.raises(BadSampleError, match=r"there is no object http.*/images/cat/absent\.png"):
        source[6]
    store = stoker.pack(source, tmp_path / "a.stoker", on_error="skip", workers=0, progress=False)
    assert len(store) == 6
    served.break_for_ever("/images/", "500")
    with pytest.raises(StoreUnreachableError, match=r"/images/cat/0\.png cannot be reached"):
        stoker.pack(source, tmp_path / "b.stoker", on_error="skip", workers=0, progress=False)


def test_an_hdf5_file_at_a_url_gives_the_samples_that_it_gives_here(
    folder: Path, served: FaultProxy, tmp_path: Path
) -> None:
    with h5py.File(folder / "rows.h5", "w") as file:
        file["x"] = np.arange(12.0).reshape(6, 2)
    here, there = open_source(folder / "rows.h5"), open_source(f"{served.url}/rows.h5")
    store = stoker.pack(there, tmp_path / "there.stoker", workers=2, progress=False)
    for i in range(6):
        assert_same(store[i], here[i])
    here.close()
    copied = pickle.loads(pickle.dumps(there))  # a spawned worker fetches its own
    assert_same(copied[5], store[5])
    before = there.fingerprints()
    assert np.array_equal(open_source(f"{served.url}/rows.h5").fingerprints(), before)
    with h5py.File(folder / "rows.h5", "w") as file:
        file["x"] = np.arange(14.0).reshape(7, 2)
    assert not np.array_equal(open_source(f"{served.url}/rows.h5").fingerprints()[:6], before)


def test_a_fetched_hdf5_file_is_removed_with_its_source(
    folder: Path, served: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(folder / "rows.h5", "w") as file:
        file["x"] = np.arange(12.0).reshape(6, 2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "fetched"))
    (tmp_path / "fetched").mkdir()
    source = open_source(f"{served.url}/rows.h5")
    child = os.fork()
    if child == 0:
        del source
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert source[0]["x"].tolist() == [0.0, 1.0]  # a child that ends takes nothing away
    source.close()
    del source
    gc.collect()
    assert not list((tmp_path / "fetched").iterdir())


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://raw/absent.h5", "there is no object memory://raw/absent.h5"),
        ("memory://nowhere", "nothing below 'memory://nowhere'"),
        ("memory://raw/images/cat/0.png", "a source has many samples"),
        ("memory://raw/table.csv", "path_column must name"),
        ("https://user:secret@host/data", "must not carry credentials"),
    ],
)
def test_mistakes_are_named(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        open_source(url)
    assert "secret" not in str(caught.value)


NAMES = st.lists(
    st.lists(st.sampled_from(["a", "b", ".h", "c.wav", "x.stoker"]), min_size=1, max_size=3).map("/".join),
    min_size=1,
    max_size=6,
    unique=True,
)


@given(
    names=NAMES, pattern=st.sampled_from(["**/*", "**", "*", "a/*", "**/a/*", "*/*.wav", "a/**/b/*", "**/.h"])
)
def test_a_pattern_chooses_of_a_listing_what_it_chooses_of_a_folder(
    names: list[str], pattern: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("tree")
    files = []
    for name in names:
        path = root / name
        if path.exists() or any(parent.is_file() for parent in path.parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        files.append(name)
    files = [name for name in files if (root / name).is_file()]
    assert choose(files, pattern) == list_files(str(root), pattern)
