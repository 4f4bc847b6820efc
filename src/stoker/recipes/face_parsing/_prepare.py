"""Packing: every face becomes a sample of bytes at the size of training, decoded and resized once."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.recipes._raw import pack_usable
from stoker.recipes._recipe import Prepared
from stoker.recipes.face_parsing._classes import CLASSES
from stoker.recipes.face_parsing._images import read_face
from stoker.recipes.face_parsing._layout import PARTS, Face, Listing, read_faces
from stoker.recipes.face_parsing._settings import FaceSettings

_VERSION = 1  # of what is made of a file; a new one packs all again


class FaceSource:
    """A sample a face; see `read_face`."""

    def __init__(self, faces: Sequence[Face], size: int) -> None:
        self.channel_axis = {"image": 0, "mask": None, "pixels": 0}
        self._faces = faces
        self._size = size

    def __len__(self) -> int:
        return len(self._faces)

    def key(self, i: int) -> str:
        """The folder's and the file's name without suffix."""
        return self._faces[i].key

    def fingerprint(self, i: int) -> bytes:
        """Changes with each of the files, the size, and what the face is for."""
        face = self._faces[i]
        facts: list[Any] = [_VERSION, self._size, face.part]
        for path in (face.image, *(path for _, path in face.mask_files())):
            state = path.stat()
            facts += [path.name, state.st_size, state.st_mtime_ns]
        return xxhash.xxh3_128_digest(json.dumps(facts).encode())

    def __getitem__(self, i: int) -> dict[str, Any]:
        return read_face(self._faces[i], self._size)


def prepare(
    data: Path,
    store: Path,
    settings: FaceSettings,
    *,
    force: bool = False,
    workers: int | None = None,
    validate_only: bool = False,
) -> Prepared:
    """Pack the faces of a folder; those that cannot be used are left out and listed.

    Raises:
        SourceError: none can be used.
    """
    listing = read_faces(data)
    size = settings.images.size
    found, bad = pack_usable(
        FaceSource(listing.faces, size),
        None if validate_only else store,
        what=f"faces in {data}",
        fields=("pixels",),
        force=force,
        workers=workers,
        progress=settings.progress,
    )
    pixels = {key: each for key, (each,) in found.items()}
    return Prepared(store, len(found), _counts(listing, pixels, size), (*listing.problems, *bad))


def _counts(listing: Listing, found: Mapping[str, NDArray[Any]], size: int) -> dict[str, Any]:
    used = [face for face in listing.faces if face.key in found]
    parts = Counter(face.part for face in used)
    pixels = sum(found.values(), np.zeros(len(CLASSES), np.int64))
    absent = [name for name, count in zip(CLASSES, pixels, strict=True) if not count]
    return {
        "layout": listing.layout,
        "faces": len(used),
        "with masks": sum(face.mask is not None for face in used),
        **{f"for {part}": parts[part] for part in PARTS},
        "pixels an edge": size,
        **({"classes in no mask": ", ".join(absent)} if absent else {}),
    }
