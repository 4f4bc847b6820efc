import gzip
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.errors import BadSampleError
from stoker.store.sources import FolderSource

AFFINE = np.array([[-1.5, 0, 0, 10], [0, 1.5, 0, -20], [0, 0, 3, 5], [0, 0, 0, 1]], np.float64)


def save(voxels: NDArray[np.int16], path: Path) -> None:
    make: Any = nibabel.Nifti1Image
    nibabel.save(make(voxels, AFFINE), path)


@pytest.fixture
def voxels() -> NDArray[np.int16]:
    return np.random.default_rng(0).integers(-1000, 1000, (4, 5, 6), np.int16)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
def test_a_volume_is_scaled_and_has_its_geometry(
    tmp_path: Path, voxels: NDArray[np.int16], suffix: str, kind: Any
) -> None:
    image = kind(voxels, AFFINE)
    image.header.set_slope_inter(2.0, -1024.0)
    path = tmp_path / f"a{suffix}"
    nibabel.save(image, path)
    source = FolderSource(tmp_path)
    sample = source[0]
    np.testing.assert_array_equal(sample["x"], 2.0 * voxels - 1024)
    assert sample["x"].dtype == np.float32
    assert sample["x"].flags.c_contiguous
    np.testing.assert_array_equal(sample["affine"], AFFINE)
    assert sample["affine"].dtype == np.float64
    np.testing.assert_array_equal(sample["spacing"], [1.5, 1.5, 3])
    assert sample["spacing"].dtype == np.float32
    assert source.channel_axis == {"x": None}
    assert source.key(0) == f"a{suffix}"


def test_a_cut_off_volume_is_noticed(tmp_path: Path, voxels: NDArray[np.int16]) -> None:
    for name in ["a.nii", "b.nii.gz"]:
        save(voxels, tmp_path / name)
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-20])
    source = FolderSource(tmp_path)
    for i in range(2):
        with pytest.raises(BadSampleError, match="not a readable nii"):
            source[i]


def test_a_wrong_checksum_of_a_compressed_volume_is_noticed(
    tmp_path: Path, voxels: NDArray[np.int16]
) -> None:
    path = tmp_path / "a.nii.gz"
    save(voxels, path)
    content = bytearray(path.read_bytes())
    content[-8] ^= 1  # the CRC, which a reader of exactly the voxels never gets to
    path.write_bytes(content)
    with pytest.raises(BadSampleError, match="CRC"):
        FolderSource(tmp_path)[0]


def test_a_compressed_file_that_is_no_volume_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(b"not a volume" * 100))
    with pytest.raises(BadSampleError, match=r"not a readable nii.gz file"):
        FolderSource(tmp_path)[0]
