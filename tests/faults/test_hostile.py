"""Files that no packer of ours would write: refused before any of it is mapped or allocated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import stoker
from stoker.errors import DamagedStoreError, UnsafeStoreError
from stoker.store._layout import digest
from support.datasets import Signals, keys
from support.forging import forge


def forge_shard(store: stoker.Store, change: Callable[[Any], None]) -> stoker.Store:
    """Change the first shard's HDF5 file, and the manifest with it."""
    path = store.path / "shards" / f"{store.manifest.shards[0].digest}.h5"
    with h5py.File(path, "r+") as file:
        change(file)
    content = path.read_bytes()
    path.rename(path.with_name(f"{digest(content)}.h5"))

    def point(data: dict[str, Any]) -> None:
        data["shards"][0] |= {"digest": digest(content), "num_bytes": len(content)}

    forge(store.path, point)
    return stoker.open(store.path)


@pytest.fixture
def store(tmp_path: Path) -> stoker.Store:
    return stoker.pack(Signals(keys(6)), tmp_path / "a.stoker", workers=0)


def refused(store: stoker.Store) -> str:
    with pytest.raises(UnsafeStoreError) as caught:
        store[0]
    return str(caught.value)


def test_an_external_link_is_refused(store: stoker.Store, tmp_path: Path) -> None:
    def change(file: Any) -> None:
        file["fields/y2"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/x")

    assert "is a link to elsewhere" in refused(forge_shard(store, change))


def test_a_soft_link_is_refused(store: stoker.Store) -> None:
    def change(file: Any) -> None:
        file["fields/y2"] = h5py.SoftLink("/fields/x")

    assert "is a link to elsewhere" in refused(forge_shard(store, change))


def test_external_storage_is_refused(store: stoker.Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"s" * 48)

    def change(file: Any) -> None:
        del file["fields/y"]
        file.create_dataset("fields/y", (6,), "<i8", external=[(str(secret), 0, 48)])

    assert "keeps its data in other files" in refused(forge_shard(store, change))


def test_a_virtual_dataset_is_refused(store: stoker.Store, tmp_path: Path) -> None:
    def change(file: Any) -> None:
        layout = h5py.VirtualLayout((6,), "<i8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "x", (6,), "<i8")
        del file["fields/y"]
        file.create_virtual_dataset("fields/y", layout)

    assert "keeps its data in other files" in refused(forge_shard(store, change))


def test_a_dataset_larger_than_its_file_is_refused(store: stoker.Store) -> None:
    def change(file: Any) -> None:
        del file["fields/x"]
        file.create_dataset("fields/x", (6, 2, 2**40), "<f4")  # never written, so nowhere

    assert "more than the file has" in refused(forge_shard(store, change))


def test_chunks_that_are_not_there_are_refused(store: stoker.Store) -> None:
    def change(file: Any) -> None:
        del file["fields/x"]
        file.create_dataset("fields/x", (6, 2, 50), "<f4", chunks=(1, 2, 50), compression="gzip")

    assert "claims more rows than its chunks hold" in refused(forge_shard(store, change))


def test_absurd_chunks_are_refused(store: stoker.Store) -> None:
    def change(file: Any) -> None:
        del file["fields/x"]
        file.create_dataset("fields/x", (2**40, 2, 50), "<f4", chunks=(1, 2, 50))

    assert "claims more rows" in refused(forge_shard(store, change))


@pytest.mark.parametrize("kind", [h5py.string_dtype(), h5py.ref_dtype, "S5", [("a", "<f4")]])
def test_a_foreign_type_is_refused(store: stoker.Store, kind: Any) -> None:
    def change(file: Any) -> None:
        file.create_dataset("fields/extra", (6,), kind)

    assert "stores have no such" in refused(forge_shard(store, change))


def test_a_compression_bomb_is_refused(store: stoker.Store) -> None:
    def change(file: Any) -> None:
        del file["fields/x"]
        file.create_dataset(
            "fields/x", data=np.zeros((6, 2, 50), "<f4"), chunks=(6, 2, 50), compression="gzip"
        )
        file["fields/x"].id.write_direct_chunk((0, 0, 0), __import__("zlib").compress(bytes(10**7)))

    opened = forge_shard(store, change)
    with pytest.raises(DamagedStoreError, match="decodes to 2401 bytes instead of 2400"):
        opened[0]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fields/tail/offsets", [0, 10**15, 0, 0, 0, 0, 0]),
        ("fields/tail/offsets", [-5, 0, 0, 0, 0, 0, 0]),
        ("fields/tail/offsets", [0, 0]),
        ("fields/x", np.zeros((6, 2, 51), "<f4")),
        ("fields/x", np.zeros((5, 2, 50), "<f4")),
        ("fields/x", np.zeros((6, 2, 50), "<f8")),
        ("index/checksums", np.zeros((6, 1), "<u8")),
        ("meta", np.frombuffer(b"{}", np.uint8)),
        ("meta", np.frombuffer(b"not json", np.uint8)),
    ],
)
def test_tables_that_do_not_fit_are_refused(store: stoker.Store, name: str, values: Any) -> None:
    def change(file: Any) -> None:
        del file[name]
        file.create_dataset(name, data=np.asarray(values))

    refused(forge_shard(store, change))


def test_a_ragged_shape_that_does_not_fit_its_values_is_refused(store: stoker.Store) -> None:
    def change(file: Any) -> None:
        file["fields/tail/shapes"][...] = 2**40

    with pytest.raises(DamagedStoreError, match="does not fit its"):
        forge_shard(store, change)[1]


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "x" * 32, "", "A" * 32])
def test_a_manifest_cannot_point_outside_its_folder(store: stoker.Store, name: str) -> None:
    forge(store.path, lambda data: data["shards"][0].update(digest=name))
    with pytest.raises(UnsafeStoreError, match=r"shards\.0\.digest"):
        stoker.open(store.path)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(num_samples=10**12),
        lambda data: data.update(num_samples=-1),
        lambda data: data["index"].update(num_samples=5),
        lambda data: data["shards"][0].update(num_samples=-3),
        lambda data: data["shards"][0].update(num_bytes="many"),
        lambda data: data["fields"].append(data["fields"][0]),
        lambda data: data["fields"][0].update(name="../x"),
        lambda data: data.update(unknown=1),
        lambda data: data.update(compression="pickle"),
    ],
)
def test_a_manifest_that_lies_is_refused(
    store: stoker.Store, change: Callable[[dict[str, Any]], None]
) -> None:
    forge(store.path, change)
    with pytest.raises(UnsafeStoreError):
        stoker.open(store.path)


def test_an_index_that_claims_more_samples_than_it_has_is_refused(store: stoker.Store) -> None:
    def change(data: dict[str, Any]) -> None:
        data["num_samples"] = data["index"]["num_samples"] = 10**9

    forge(store.path, change)
    with pytest.raises(UnsafeStoreError, match="another length than its samples"):
        stoker.open(store.path)


def test_an_index_that_points_outside_its_shards_is_refused(store: stoker.Store) -> None:
    path = store.path / f"index-{store.manifest.index.digest}.h5"
    with h5py.File(path, "r+") as file:
        file["row"][0] = 77
        file["shard"][1] = 9
    opened = stoker.open(store.path)
    for sample in (0, 1):
        with pytest.raises(DamagedStoreError):
            opened[sample]
        with pytest.raises(DamagedStoreError):
            opened[[sample]]
    assert not opened.verify().ok
