"""NumPy's own files: ``.npy`` is one array, ``.npz`` a field per array; nothing is unpickled."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from stoker.errors import SourceError
from stoker.store.sources._reader import Reader, Sample


@dataclass(frozen=True, kw_only=True)
class NpyReader(Reader):
    """``x``: the array as stored."""

    kind: ClassVar[str] = "npy"
    suffixes: ClassVar[tuple[str, ...]] = (".npy",)
    gives: ClassVar[tuple[str, ...]] = ("x",)

    def read(self, path: str) -> Sample:
        """The array."""
        with Path(path).open("rb") as file:
            return {"x": _read_array(file, "the array")}


@dataclass(frozen=True, kw_only=True)
class NpzReader(Reader):
    """A field per array, named like it; a 0-d text array is a string."""

    kind: ClassVar[str] = "npz"
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)

    def read(self, path: str) -> Sample:
        """The archive's arrays, each checked against the archive's CRC."""
        sample = {}
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                name = member.removesuffix(".npy")
                with archive.open(member) as file:
                    sample[name] = _read_array(file, f"array {name!r}")
        return sample


def _read_array(file: IO[bytes], what: str) -> Any:
    try:
        array = np.lib.format.read_array(file, allow_pickle=False)
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise SourceError(
            f"{what} holds Python objects (dtype object), which are never unpickled; "
            "save it with a numeric dtype"
        ) from error
    return str(array) if array.dtype.kind == "U" and array.ndim == 0 else array
