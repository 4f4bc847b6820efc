"""Medical volumes: NIfTI (``.nii``, ``.nii.gz``) through nibabel."""

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from stoker.store.sources._reader import Reader, Sample

NIFTI2_HEADER_BYTES = 540


@dataclass(frozen=True, kw_only=True)
class NiftiReader(Reader):
    """``x``: float32 [X, Y, Z] with slope and intercept applied, in the file's orientation.

    ``affine``: float64 [4, 4], from voxels to mm; ``spacing``: float32 [3], a voxel's size in mm.
    """

    kind: ClassVar[str] = "NIfTI"
    suffixes: ClassVar[tuple[str, ...]] = (".nii", ".nii.gz")
    gives: ClassVar[tuple[str, ...]] = ("x", "affine", "spacing")
    channel_axis: ClassVar[dict[str, int | None]] = {"x": None}
    library: ClassVar[str] = "nibabel"
    extra: ClassVar[str] = "medical"

    def read(self, path: str) -> Sample:
        """The volume; a compressed one is checked against its CRC."""
        import nibabel

        raw = Path(path).read_bytes()
        if path.lower().endswith(".gz"):
            # All of it at once: nibabel's own reading stops before the trailer, where the CRC is.
            raw = gzip.decompress(raw)
        header_bytes = [int.from_bytes(raw[:4], "little"), int.from_bytes(raw[:4], "big")]
        is_second = NIFTI2_HEADER_BYTES in header_bytes
        image = (nibabel.Nifti2Image if is_second else nibabel.Nifti1Image).from_bytes(raw)
        return {
            "x": np.ascontiguousarray(image.get_fdata(dtype=np.float32)),
            "affine": np.asarray(image.affine, np.float64),
            "spacing": np.abs(image.header["pixdim"][1:4]).astype(np.float32),
        }
