from pathlib import Path

import numpy as np
import pytest

from stoker.errors import BadSampleError
from stoker.store.sources import FolderSource


def test_an_npy_file_gives_its_array_as_x(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.save(tmp_path / "a.npy", array)
    np.save(tmp_path / "b.npy", np.asfortranarray(array))
    source = FolderSource(tmp_path)
    for sample in (source[0], source[1]):
        np.testing.assert_array_equal(sample["x"], array)
        assert sample["x"].dtype == np.float32
    assert source.channel_axis == {}


def test_an_npz_file_gives_a_field_per_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", signal=np.arange(5), rate=np.float32(2000), who="Ada")
    sample = FolderSource(tmp_path)[0]
    assert sample.keys() == {"signal", "rate", "who"}
    np.testing.assert_array_equal(sample["signal"], np.arange(5))
    assert sample["rate"].shape == ()
    assert sample["who"] == "Ada"


def test_a_compressed_npz_file_is_read_too(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((100, 100)))
    assert FolderSource(tmp_path)[0]["x"].shape == (100, 100)


def test_object_arrays_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}, None], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "b.npz", fine=np.zeros(3), things=objects)
    with pytest.raises(BadSampleError, match=r"holds Python objects .* never unpickled"):
        FolderSource(tmp_path, suffixes=".npy")[0]
    with pytest.raises(BadSampleError, match="array 'things' holds Python objects"):
        FolderSource(tmp_path, suffixes=".npz")[0]


def test_a_flipped_byte_in_an_npz_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros(1000))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadSampleError, match="CRC"):
        FolderSource(tmp_path)[0]
