"""NumPy's own files: ``.npy`` is one array, ``.npz`` a field per array; nothing is unpickled."""

import functools
import io
import math
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from stoker.errors import SourceError
from stoker.store.sources._reader import Reader, Sample

_MAGIC = b"\x93NUMPY\x01\x00"  # what NumPy writes, whenever its header is shorter than 64 KiB


@dataclass(frozen=True, kw_only=True)
class NpyReader(Reader):
    """``x``: the array as stored."""

    kind: ClassVar[str] = "npy"
    suffixes: ClassVar[tuple[str, ...]] = (".npy",)
    gives: ClassVar[tuple[str, ...]] = ("x",)

    def read(self, path: str) -> Sample:
        """The array."""
        with Path(path).open("rb") as file:
            array = _read_of_known_layout(file)
            if array is None:
                file.seek(0)
                array = _read_array(file, "the array")
            return {"x": array}


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


def _read_of_known_layout(file: IO[bytes]) -> Any:
    """The array of a file whose header is of the usual kind, or None: then NumPy must read it, or refuse it.

    Files of one data set have the same header, and to parse it takes NumPy half of its time for a small one.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        return None
    size = file.read(2)
    try:
        shape, is_fortran, dtype = _layout_of(size + file.read(int.from_bytes(size, "little")))
    except ValueError:
        return None
    count = math.prod(shape)
    if dtype.kind not in "biufc" or count > sys.maxsize:
        return None
    array = np.fromfile(file, dtype, count)
    if array.size != count:
        return None
    return array.reshape(shape, order="F" if is_fortran else "C")


@functools.lru_cache(maxsize=64)
def _layout_of(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    return np.lib.format.read_array_header_1_0(io.BytesIO(header))


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
