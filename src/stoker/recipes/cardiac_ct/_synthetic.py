"""Synthetic chest volumes in the system's layout, from which labels can be learned.

A body with lungs, a spine, an aorta and a heart of two parts: a wall, and in it a chamber full of contrast
medium. The larger the chamber, the lower the ejection fraction; a stenotic valve has a lump of lime
between chamber and aorta. Patients differ in size and place, scans in dose, voxel size and orientation.

Places are in mm from the body's middle: to the right, to the front, upwards. The heart is on the left.
"""

import csv
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoker.recipes._raw import make_up
from stoker.recipes.cardiac_ct._settings import SyntheticSettings

COLUMNS = ("basename", "folder", "patient_id", "description", "lvef", "AS_maybe", "AS_definite")

_ORIENTATIONS = ("RAS", "LPS", "LAS", "RPI", "PIR", "ASL")
_MEAN_RADIUS = 28.0  # of the chamber, mm, at an ejection fraction of 59 %
_AIR, _LUNG, _TISSUE, _WALL, _CONTRAST, _BONE, _LIME = -1000.0, -820.0, 30.0, 70.0, 260.0, 380.0, 950.0


def make_synthetic(folder: Path, settings: SyntheticSettings, *, seed: int) -> None:
    """Write the studies that the settings ask for, unless the folder has just these already."""
    facts = {"seed": seed, **settings.model_dump()}
    make_up(folder, facts, what="studies", write=partial(write_studies, **facts))


def write_studies(
    folder: Path,
    *,
    num_patients: int = 130,
    scans_per_patient: int = 2,
    stenosis_share: float = 0.35,
    seed: int = 0,
) -> int:
    """Write volumes and studies.csv; gives the number of studies. Every 20th has no ejection fraction."""
    import nibabel
    from nibabel import orientations

    rng = np.random.default_rng(seed)
    rows: list[tuple[object, ...]] = []
    right_up = orientations.axcodes2ornt("RAS")
    for patient in range(num_patients):
        radius = float(np.clip(rng.normal(_MEAN_RADIUS, 5.5), 16, 42))
        stenosis = bool(rng.random() < stenosis_share)
        heart = _Heart(radius, stenosis, rng)
        for scan in range(1 if patient % 2 else scans_per_patient):
            name, place = f"P{patient:05d}-A{patient:05d}{scan}", "1A" if patient % 3 else "1B"
            ejection = float(np.clip(59 - 2 * (radius - _MEAN_RADIUS) + rng.normal(0, 2.5), 6, 88))
            spacing = (*[rng.uniform(6.0, 7.0)] * 2, rng.uniform(8.0, 10.0))
            volume = heart.volume((54, 54, 38), spacing, rng)
            affine = np.diag([*spacing, 1.0])
            affine[:3, 3] = -(np.array(volume.shape) - 1) / 2 * spacing
            code = _ORIENTATIONS[len(rows) % len(_ORIENTATIONS)]
            turn = orientations.ornt_transform(right_up, orientations.axcodes2ornt(code))
            path = folder / f"stanford_{place}" / f"{name}.nii.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(volume, affine).as_reoriented(turn), path)
            known = "" if len(rows) % 20 == 19 else f"{ejection:.1f}"
            lime = int(stenosis)
            rows.append((name, place, f"P{patient:05d}", f"synthetic chest {code}", known, lime, lime))
    with (folder / "studies.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return len(rows)


class _Heart:
    """What one patient's scans have in common."""

    def __init__(self, radius: float, stenosis: bool, rng: np.random.Generator) -> None:  # noqa: FBT001
        self._radius = radius
        self._body = np.array([165.0, 115.0]) * rng.uniform(0.9, 1.1)
        self._middle = np.array([-30.0, 25.0, -20.0]) + rng.normal(0, 5, 3)
        self._wall = rng.uniform(9, 12)
        self._lime = rng.uniform(11, 15) if stenosis else 0.0

    def volume(
        self, shape: tuple[int, int, int], spacing: tuple[float, ...], rng: np.random.Generator
    ) -> NDArray[np.int16]:
        """A scan [X, Y, Z] in HU, axes to the right, the front and upwards."""
        axes = [(np.arange(n) - (n - 1) / 2) * step for n, step in zip(shape, spacing, strict=True)]
        x, y, z = np.meshgrid(*axes, indexing="ij", sparse=True)
        middle = self._middle + rng.normal(0, 2, 3)  # where the heart is in this breath

        def inside(centre: NDArray[np.float64] | tuple[float, ...], *radii: float) -> NDArray[np.bool_]:
            parts = zip((x, y, z), centre, radii, strict=True)
            found: NDArray[np.bool_] = sum(((at - c) / r) ** 2 for at, c, r in parts) < 1
            return found

        tall = 1e6
        hu = np.where(inside((0, 0, 0), *self._body, tall), _TISSUE, _AIR)
        for side in (-1, 1):
            hu[inside((side * 80.0, 0, 10), 58, 80, 140)] = _LUNG
        hu[inside((0, -85, 0), 20, 20, tall)] = _BONE
        chamber = np.array([1.0, 1.0, 1.25]) * self._radius
        hu[inside(middle, *(chamber + self._wall))] = _WALL
        hu[inside(middle, *chamber)] = _CONTRAST
        valve = middle + np.array([10.0, 0.0, chamber[2] + 4])
        aorta = inside((valve[0], valve[1], 0), 15, 15, tall) & (z > valve[2])
        hu[aorta] = _CONTRAST
        if self._lime:
            hu[inside(valve, *[self._lime] * 3)] = _LIME
        hu += rng.normal(0, rng.uniform(10, 30), hu.shape)
        scan: NDArray[np.int16] = np.rint(hu.clip(-1024, 3071)).astype(np.int16)
        return scan
