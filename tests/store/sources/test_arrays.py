import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from stoker.errors import BadSampleError
from stoker.store.sources import FolderSource
from stoker.store.sources._arrays import NpyReader


def test_an_npy_file_gives_its_array_as_x(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.save(tmp_path / "a.npy", array)
    np.save(tmp_path / "b.npy", np.asfortranarray(array))
    source = FolderSource(tmp_path)
    for sample in (source[0], source[1]):
        np.testing.assert_array_equal(sample["x"], array)
        assert sample["x"].dtype == np.float32
    assert source.channel_axis == {}


DTYPES = ["?", "<i2", ">i4", "<u8", "<f2", ">f8", "<c8", "<U3", "S2", "<M8[s]", "i4,f8"]


@given(
    array=st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
    ),
    is_fortran=st.booleans(),
    version=st.sampled_from([None, (1, 0), (2, 0), (3, 0)]),
    kept=st.floats(0, 1),
)
@example(array=np.arange(6.0).reshape(2, 3), is_fortran=True, version=None, kept=1.0)
def test_npy_files_are_read_as_numpy_reads_them_and_refused_where_it_refuses_them(
    array: np.ndarray, *, is_fortran: bool, version: tuple[int, int] | None, kept: float
) -> None:
    written = io.BytesIO()
    np.lib.format.write_array(written, np.asfortranarray(array) if is_fortran else array, version)
    content = written.getvalue()[: round(kept * len(written.getvalue()))]
    try:
        expected = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except ValueError:
        expected = None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.npy")
        path.write_bytes(content)
        if expected is None:
            with pytest.raises(ValueError, match=r"array|magic|header|EOF|read"):
                NpyReader().read(str(path))
            return
        found = NpyReader().read(str(path))["x"]
    assert np.asarray(found).tobytes() == expected.tobytes()
    assert (np.shape(found), np.asarray(found).dtype.kind) == (expected.shape, expected.dtype.kind)


def test_a_header_of_more_elements_than_can_be_counted_is_a_bad_file(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}".ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "a.npy").write_bytes(content + bytes(64))
    with pytest.raises(ValueError, match=r"array|shape|dimension|size"):
        NpyReader().read(str(tmp_path / "a.npy"))


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
