"""Volumes whose answer is known: by a formula, by nibabel's own functions, by scipy."""

import itertools
from pathlib import Path

import nibabel
import numpy as np
import pytest
from nibabel import orientations
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray
from scipy import ndimage

from stoker.errors import SourceError
from stoker.recipes.cardiac_ct import prepare_volume
from stoker.recipes.cardiac_ct._settings import VolumeSettings
from stoker.recipes.cardiac_ct._volume import axis_places, oriented

CODES = [
    "".join(letters)
    for axes in itertools.permutations(("RL", "AP", "SI"))
    for letters in itertools.product(*axes)
]
SPACING = (2.0, 3.0, 4.0)


def phantom(code: str) -> nibabel.Nifti1Image:
    """HU = 2·right + 3·front + 5·up, in mm: whatever lies at a place has the place's value."""
    shape = np.array([30, 24, 20])
    affine = np.diag([*SPACING, 1.0])
    affine[:3, 3] = -(shape - 1) / 2 * SPACING + (3, -2, 1)
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1) @ affine[:3, :3] + affine[:3, 3]
    turn = orientations.ornt_transform(orientations.axcodes2ornt("RAS"), orientations.axcodes2ornt(code))
    image = nibabel.Nifti1Image((places @ (2, 3, 5)).astype(np.float32), affine).as_reoriented(turn)
    assert "".join(nibabel.aff2axcodes(image.affine)) == code
    return image


def prepared(image: nibabel.Nifti1Image, **settings: object) -> NDArray[np.float64]:
    asked = VolumeSettings.model_validate({"dtype": "float32", **settings})
    data = image.get_fdata(dtype=np.float32)
    volume: NDArray[np.float64] = prepare_volume(data, image.affine, asked)[0].astype(np.float64)
    return volume


def middle_of(image: nibabel.Nifti1Image, code: str, spacing: tuple[float, ...]) -> NDArray[np.float64]:
    """Where the voxel before the middle of a prepared volume must lie, in mm."""
    turn = orientations.ornt_transform(
        orientations.io_orientation(image.affine), orientations.axcodes2ornt(code)
    )
    turned = image.as_reoriented(turn)
    shape, sizes = np.array(turned.shape), voxel_sizes(turned.affine)
    num_all = np.round((shape - 1) * sizes / spacing + 1)
    place = turned.affine @ [*(num_all // 2 * spacing / sizes), 1]
    return np.asarray(place[:3])


@pytest.mark.parametrize("code", CODES)
def test_a_phantom_of_any_orientation_shows_each_place_its_own_value(code: str) -> None:
    image = phantom(code)
    spacing = (2.5, 2.5, 3.5)
    found = prepared(image, spacing=spacing, size=(16, 16, 12))
    start = middle_of(image, "RAS", spacing) - np.array([8, 8, 6]) * spacing
    i, j, k = np.meshgrid(*map(np.arange, found.shape), indexing="ij")
    expected = sum(
        weight * (start[axis] + index * spacing[axis])
        for axis, (weight, index) in enumerate(zip((2, 3, 5), (i, j, k), strict=True))
    )
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_all_orientations_of_one_volume_give_the_same() -> None:
    reference = prepared(phantom("RAS"), spacing=SPACING, size=(20, 20, 20))
    for code in CODES:
        np.testing.assert_allclose(
            prepared(phantom(code), spacing=SPACING, size=(20, 20, 20)), reference, atol=1e-3
        )


def test_axes_point_where_the_settings_say() -> None:
    right, left = (
        prepared(phantom("PIR"), orientation=code, spacing=SPACING, size=(10, 10, 10))
        for code in ("RAS", "LPS")
    )
    assert (np.diff(right, axis=0) > 0).all()
    assert (np.diff(left, axis=0) < 0).all()
    assert (np.diff(left, axis=1) < 0).all()
    assert (np.diff(left, axis=2) > 0).all()


@pytest.mark.parametrize("wanted", [(1.5, 1.5, 3.0), (4.0, 2.0, 9.0), (2.0, 3.0, 4.0)])
def test_values_between_voxels_are_those_of_scipy(wanted: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(0)
    data = rng.uniform(-900, 900, (17, 20, 13)).astype(np.float32)
    tilt = np.array([[0.98, -0.17, 0.0], [0.17, 0.98, 0.05], [0.0, -0.05, 1.0]])
    affine = np.eye(4)
    affine[:3, :3] = tilt * SPACING  # a tilted scan keeps its tilt
    sizes = voxel_sizes(affine)
    size = (9, 8, 5)
    found = prepared(nibabel.Nifti1Image(data, affine), spacing=wanted, size=size)
    axes = [axis_places(*each) for each in zip(data.shape, sizes, wanted, size, strict=True)]
    places = np.meshgrid(*[each.places for each in axes], indexing="ij")
    expected = ndimage.map_coordinates(data, places, order=1, mode="nearest")
    inside = found[tuple(slice(each.start, each.stop) for each in axes)]
    np.testing.assert_allclose(inside, expected, atol=1e-2)


def test_what_is_too_large_is_cut_in_the_middle_and_what_is_too_small_is_padded() -> None:
    data = np.arange(7 * 6 * 3, dtype=np.float32).reshape(7, 6, 3)
    found = prepared(nibabel.Nifti1Image(data, np.eye(4)), spacing=(1, 1, 1), size=(3, 4, 6), low=-50)
    np.testing.assert_array_equal(found[:, :, 1:4], data[2:5, 1:5])
    assert (found[:, :, [0, 4, 5]] == -50).all()


def test_without_a_spacing_the_whole_volume_is_brought_to_size() -> None:
    image = phantom("LPS")
    found = prepared(image, spacing=None, size=(7, 9, 11))
    whole, _ = oriented(image.get_fdata(dtype=np.float32), image.affine, "RAS")
    for corner in itertools.product((0, -1), repeat=3):
        assert found[corner] == pytest.approx(whole[corner], abs=1e-3)
    assert np.diff(found, n=2, axis=1) == pytest.approx(0, abs=1e-3)


def test_values_are_clipped_and_kept_to_half_a_unit() -> None:
    data = np.array([-3000, -999.6, -0.4, 0.6, 999.4, 3000], np.float32).reshape(6, 1, 1)
    settings = VolumeSettings(spacing=(1, 1, 1), size=(6, 1, 1))
    found = prepare_volume(data, np.eye(4), settings)
    assert found.dtype == np.int16
    assert found.shape == (1, 6, 1, 1)
    assert found.ravel().tolist() == [-1000, -1000, 0, 1, 999, 1000]
    exact = prepare_volume(data, np.eye(4), settings.model_copy(update={"dtype": "float32"}))
    assert exact.ravel()[1:5].tolist() == data.ravel()[1:5].tolist()


@pytest.mark.parametrize(
    ("data", "affine", "why"),
    [
        (np.zeros((4, 4)), np.eye(4), "three axes"),
        (np.zeros((4, 4, 4, 2)), np.eye(4), "three axes"),
        (np.full((4, 4, 4), np.nan), np.eye(4), "64 of 64 voxels are no numbers"),
        (np.zeros((4, 4, 4)), np.diag([1.0, 0, 1, 1]), "three sizes above 0"),
        (np.zeros((4, 4, 4)), np.full((4, 4), np.nan), "three sizes above 0"),
    ],
)
def test_what_is_no_volume_is_refused(
    data: NDArray[np.float64], affine: NDArray[np.float64], why: str
) -> None:
    with pytest.raises(SourceError, match=why):
        prepare_volume(data.astype(np.float32), affine, VolumeSettings())


def shipped(name: str) -> nibabel.Nifti1Image:
    """A real scan that comes with nibabel."""
    from nibabel.testing import data_path

    path = Path(data_path) / name
    if not path.is_file():
        pytest.skip(f"nibabel was installed without {name}")
    return nibabel.load(path)


@pytest.mark.parametrize("name", ["anatomical.nii", "reoriented_anat_moved.nii"])
def test_a_real_scan_comes_out_as_nibabel_turns_it(name: str) -> None:
    image = shipped(name)
    canonical = nibabel.as_closest_canonical(image)
    sizes = tuple(map(float, voxel_sizes(canonical.affine)))
    found = prepared(image, spacing=sizes, size=canonical.shape, low=0, high=30000)
    np.testing.assert_allclose(found, canonical.get_fdata().clip(0, 30000), rtol=1e-5, atol=1e-3)


def test_a_real_scan_is_resampled_as_scipy_does() -> None:
    image = shipped("anatomical.nii")
    canonical = nibabel.as_closest_canonical(image)
    sizes = voxel_sizes(canonical.affine)
    whole = canonical.get_fdata(dtype=np.float32)
    found = prepared(image, spacing=(5, 5, 5), size=(12, 12, 12), low=0, high=30000)
    axes = [axis_places(*each, 5, 12) for each in zip(whole.shape, sizes, strict=True)]
    expected = ndimage.map_coordinates(
        whole, np.meshgrid(*[each.places for each in axes], indexing="ij"), order=1, mode="nearest"
    )
    inside = found[tuple(slice(each.start, each.stop) for each in axes)]
    np.testing.assert_allclose(inside, expected, rtol=1e-4, atol=0.05)


def test_a_real_series_of_volumes_is_refused() -> None:
    image = shipped("example4d.nii.gz")
    with pytest.raises(SourceError, match="three axes, got the shape"):
        prepare_volume(image.get_fdata(dtype=np.float32), image.affine, VolumeSettings())
