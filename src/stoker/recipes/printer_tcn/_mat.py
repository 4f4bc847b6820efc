"""One layer's fields as a MATLAB file (v7.3: HDF5 with MATLAB's conventions) or as a table."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from stoker.recipes.printer_tcn._layout import STRUCT

_HEADER = "MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Thu Jan  1 00:00:00 1970 HDF5 schema 1.00 ."
_BLOCK = 512  # bytes before the HDF5 part


def write_mat(path: Path, fields: Mapping[str, Any]) -> None:
    """Arrays become N x 1, numbers 1 x 1, texts cells of one text, mappings nested structs."""
    with h5py.File(path, "w", userblock_size=_BLOCK) as file:
        _write_struct(file.create_group(STRUCT), fields)
    with path.open("r+b") as raw:
        raw.write(_HEADER.ljust(124).encode() + (0x0200).to_bytes(2, "little") + b"IM")


def write_table(path: Path, fields: Mapping[str, Any]) -> None:
    """The same as rows, without texts and structs."""
    arrays = {name: value for name, value in fields.items() if not isinstance(value, str | Mapping)}
    count = max(np.size(value) for value in arrays.values())
    columns = [np.broadcast_to(np.asarray(value, np.float64), (count,)).tolist() for value in arrays.values()]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(arrays), *zip(*columns, strict=True)])


def _write_struct(group: Any, fields: Mapping[str, Any]) -> None:
    group.attrs["MATLAB_class"] = np.bytes_("struct")
    for name, value in fields.items():
        if isinstance(value, Mapping):
            _write_struct(group.create_group(name), value)
        elif isinstance(value, str):
            _write_cell(group, name, value)
        else:
            array = np.asarray(value)
            logical = array.dtype == bool
            stored = array.astype(np.uint8 if logical else np.float64).reshape(1, -1)
            dataset = group.create_dataset(name, data=stored)
            dataset.attrs["MATLAB_class"] = np.bytes_("logical" if logical else "double")
            if logical:
                dataset.attrs["MATLAB_int_decode"] = np.int32(1)


def _write_cell(group: Any, name: str, text: str) -> None:
    letters = group.file.require_group("#refs#").create_dataset(
        name, data=np.frombuffer(text.encode("utf-16-le"), "<u2").reshape(-1, 1)
    )
    letters.attrs["MATLAB_class"] = np.bytes_("char")
    letters.attrs["MATLAB_int_decode"] = np.int32(2)
    cell = group.create_dataset(name, (1, 1), dtype=h5py.ref_dtype)
    cell[0, 0] = letters.ref
    cell.attrs["MATLAB_class"] = np.bytes_("cell")
