"""What every source owes the packer, with every compression; a new source joins the list."""

import pickle
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np
import pytest

import stoker
from stoker.store._codec import Compression
from stoker.store.sources import CsvSource, FolderSource, GlobSource, Hdf5Source
from support.datasets import assert_same

COUNT = 5


def rng(i: int) -> np.random.Generator:
    return np.random.default_rng(i)


def make_wav(folder: Path) -> Any:
    for i in range(COUNT):
        path = folder / ("a", "b")[i % 2] / f"{i}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(rng(i).integers(-999, 999, (100 + i, 2)).astype("<i2").tobytes())
    return FolderSource(folder, labels="folder")


def make_npy(folder: Path) -> Any:
    folder.mkdir(parents=True)
    for i in range(COUNT):
        np.save(folder / f"{i}.npy", rng(i).standard_normal((2, 7)))
    return GlobSource(str(folder / "*.npy"))


def make_npz(folder: Path) -> Any:
    folder.mkdir(parents=True)
    for i in range(COUNT):
        np.savez(folder / f"{i}.npz", emg=rng(i).standard_normal((2, 7 + i)), y=i)
    return FolderSource(folder)


def make_csv(folder: Path) -> Any:
    make_npy(folder / "arrays")
    rows = "".join(f"arrays/{i}.npy,{('x', 'y')[i % 2]},p{i // 2},{i / 2}\n" for i in range(COUNT))
    (folder / "list.csv").write_text("file,kind,patient,age\n" + rows)
    return CsvSource(
        folder / "list.csv",
        path_column="file",
        label_column="kind",
        group_column="patient",
        columns=["age"],
    )


def make_images(folder: Path) -> Any:
    from PIL import Image

    (folder / "images").mkdir(parents=True)
    (folder / "masks").mkdir()
    for i in range(COUNT):
        Image.fromarray(rng(i).integers(0, 255, (6, 8, 3), dtype=np.uint8)).save(
            folder / "images" / f"{i}.png"
        )
        Image.fromarray(rng(i).integers(0, 18, (6, 8), dtype=np.uint8)).save(folder / "masks" / f"{i}.png")
    return FolderSource(folder / "images", masks="../masks/{stem}.png")


def make_nifti(folder: Path) -> Any:
    import nibabel as nib

    folder.mkdir(parents=True)
    for i in range(COUNT):
        volume = rng(i).integers(-1000, 1000, (4, 5, 6)).astype(np.int16)
        nib.save(nib.Nifti1Image(volume, np.diag([1.5, 1.5, 3, 1])), folder / f"{i}.nii.gz")
    return FolderSource(folder)


def make_hdf5_files(folder: Path) -> Any:
    folder.mkdir(parents=True)
    table = np.zeros(9, [("time", "<f8"), ("emg", "<f4", (4,))])
    for i in range(COUNT):
        table["emg"] = rng(i).standard_normal((9, 4))
        with h5py.File(folder / f"{i}.h5", "w") as file:
            file["session/timeseries"] = table
            file["rate"] = 2000.0
    return FolderSource(folder)


def make_hdf5_rows(folder: Path) -> Any:
    folder.mkdir(parents=True)
    with h5py.File(folder / "all.h5", "w") as file:
        file["x"] = rng(0).standard_normal((COUNT, 3))
        file["y"] = np.arange(COUNT)
    return Hdf5Source(folder / "all.h5")


def make_hdf5_groups(folder: Path) -> Any:
    folder.mkdir(parents=True)
    with h5py.File(folder / "all.h5", "w") as file:
        for i in range(COUNT):
            file[f"images/{i:03d}/x"] = rng(i).standard_normal((2, 2 + i))
    return Hdf5Source(folder / "all.h5", layout="groups", group="images")


def make_mat(folder: Path) -> Any:
    import scipy.io

    folder.mkdir(parents=True)
    for i in range(COUNT):
        data = {"signal": rng(i).standard_normal((3, 5 + i)), "run": {"rate": 100.0}}
        scipy.io.savemat(folder / f"{i}.mat", data)
    return FolderSource(folder)


def make_object(folder: Path) -> Any:  # noqa: ARG001 - every maker takes a folder
    return [{"x": rng(i).standard_normal(3 + i), "name": f"n{i}"} for i in range(COUNT)]


MAKERS = {name.removeprefix("make_"): maker for name, maker in list(globals().items()) if "make_" in name}


@pytest.fixture(params=sorted(MAKERS))
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made = MAKERS[request.param](tmp_path / "data")
    yield made
    if hasattr(made, "close"):
        made.close()


@pytest.mark.parametrize("compression", get_args(Compression))
def test_a_source_is_packed_to_the_bit(source: Any, compression: Compression, tmp_path: Path) -> None:
    store = stoker.pack(source, tmp_path / "a.stoker", workers=0, compression=compression)
    assert len(store) == len(source) == COUNT
    for i in range(COUNT):
        assert_same(store[i], source[i])
    assert store.verify().ok


def test_packing_it_again_has_nothing_to_do(source: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    first = stoker.pack(source, path, workers=0)
    manifest = (path / "manifest.json").read_bytes()
    again = stoker.pack(pickle.loads(pickle.dumps(source)), path, workers=2)
    assert again.content_digest == first.content_digest
    assert (path / "manifest.json").read_bytes() == manifest


def test_processes_read_it_as_this_one_does(source: Any, tmp_path: Path) -> None:
    source[0]  # whatever it opens lazily is open before the fork
    inside = stoker.pack(source, tmp_path / "a.stoker", workers=0)
    outside = stoker.pack(source, tmp_path / "b.stoker", workers=2)
    assert inside.content_digest == outside.content_digest
