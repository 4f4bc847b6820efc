"""Volumes as samples, to be packed or, where there is no store, to be read in every epoch."""

import importlib.util
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

from stoker.errors import MissingExtraError
from stoker.recipes.cardiac_ct._layout import Study
from stoker.recipes.cardiac_ct._settings import VolumeSettings
from stoker.recipes.cardiac_ct._volume import VERSION, prepare_volume
from stoker.store.sources._reader import reading
from stoker.store.sources._volumes import NiftiReader


class VolumeSource:
    """A sample a study: x [1, *size] in HU, spacing [3] of the file in mm, orientation, preparation.

    preparation is the settings, as JSON: a store says by itself what was done to its volumes.
    """

    def __init__(self, studies: Sequence[Study], settings: VolumeSettings) -> None:
        self.channel_axis = {"x": 0, "spacing": None}
        self._studies = studies
        self._settings = settings
        self._preparation = preparation(settings)

    def __len__(self) -> int:
        return len(self._studies)

    def key(self, i: int) -> str:
        """The study's."""
        return self._studies[i].key

    def fingerprint(self, i: int) -> bytes:
        """Changes with the file and the settings; labels and patients are not part of a sample."""
        state = self._studies[i].path.stat()
        facts = (state.st_size, state.st_mtime_ns, self._preparation)
        return xxhash.xxh3_128_digest(json.dumps(facts).encode())

    def __getitem__(self, i: int) -> dict[str, Any]:
        from nibabel import orientations

        raw = read_nifti(self._studies[i])
        with reading(self.key(i), str(self._studies[i].path), "volume"):
            x = prepare_volume(raw["x"], raw["affine"], self._settings)
            codes = orientations.aff2axcodes(raw["affine"])
        return {
            "x": x,
            "spacing": np.sqrt((raw["affine"][:3, :3] ** 2).sum(0)).astype(np.float32),
            "orientation": "".join(codes),
            "preparation": self._preparation,
        }


class RawVolumes(VolumeSource):
    """The volumes alone, read from their files and prepared whenever they are asked for."""

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": super().__getitem__(i)["x"]}


def read_nifti(study: Study) -> dict[str, Any]:
    """The study's file: x [X, Y, Z] in float32 with slope and intercept applied, affine [4, 4].

    Raises:
        BadSampleError: it cannot be read, or its checksum is wrong.
        MissingExtraError: nibabel is not installed.
    """
    if importlib.util.find_spec("nibabel") is None:
        raise MissingExtraError("NIfTI", extra="medical", library="nibabel")
    with reading(study.key, str(study.path), "volume"):
        return NiftiReader().read(str(study.path))


def preparation(settings: VolumeSettings) -> str:
    """What is done to volumes, as text that is equal where it is."""
    return json.dumps({"version": VERSION, **settings.model_dump(mode="json")})
