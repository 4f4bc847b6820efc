"""The same content saved as v5 and as v7.3 must give the same arrays.

The v7.3 files are written by hand through h5py, the way MATLAB does it: axes reversed, the class
in an attribute, text as UTF-16 codes, empty arrays as their sizes, 512 bytes before the HDF5.
"""

import struct
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pymatreader
import pytest
import scipy.io
import scipy.sparse

from stoker.errors import BadSampleError, UsageError
from stoker.store.sources import FolderSource

rng = np.random.default_rng(0)
CONTENT: dict[str, Any] = {
    "matrix": rng.normal(size=(2, 3)),
    "cube": rng.normal(size=(2, 3, 4)),
    "column": np.arange(5.0).reshape(5, 1),
    "row": np.arange(4, dtype=np.int16).reshape(1, 4),
    "scalar": np.array([[2000.0]]),
    "single": rng.normal(size=(3, 2)).astype(np.float32),
    "complex_": rng.normal(size=(2, 3)) + 1j * rng.normal(size=(2, 3)),
    "logical": np.array([[True, False, True]]),
    "bytes_": np.arange(6, dtype=np.uint8).reshape(3, 2),
    "empty": np.zeros((0, 3)),
    "text": "Größe 5",
    "letter": "x",
    "no_text": "",
    "params": {
        "mass": np.array([[0.5]]),
        "deep": {"axis": np.arange(6.0).reshape(2, 3), "name": "y"},
    },
}
FIELDS = sorted((set(CONTENT) - {"params"}) | {"params.mass", "params.deep.axis", "params.deep.name"})


def write_v5(path: Path, content: dict[str, Any]) -> None:
    scipy.io.savemat(path, content)


def write_v73(path: Path, content: dict[str, Any]) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        refs = file.create_group("#refs#")
        _write_group(file, content, refs)
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def _write_group(group: Any, content: dict[str, Any], refs: Any) -> None:
    for name, value in content.items():
        if isinstance(value, dict):
            struct_group = group.create_group(name)
            struct_group.attrs["MATLAB_class"] = np.bytes_("struct")
            _write_group(struct_group, value, refs)
        elif isinstance(value, list):
            cells = [refs.create_dataset(f"r{len(refs)}", data=cell) for cell in value]
            cell_refs = np.array([[cell.ref for cell in cells]], dtype=h5py.ref_dtype)
            _write_dataset(group, name, cell_refs, "cell")
        elif isinstance(value, str):
            codes = np.frombuffer(value.encode("utf-16-le"), np.uint16).reshape(1, -1)
            _write_dataset(group, name, codes, "char")
        else:
            classes = {
                "float64": "double",
                "float32": "single",
                "bool": "logical",
                "complex128": "double",
            }
            _write_dataset(group, name, value, classes.get(value.dtype.name, value.dtype.name))


def _write_dataset(group: Any, name: str, value: Any, matlab_class: str) -> None:
    if value.size == 0:
        dataset = group.create_dataset(name, data=np.array(value.shape, np.uint64))
        dataset.attrs["MATLAB_empty"] = np.uint8(1)
    elif value.dtype.kind == "c":
        parts = np.empty(value.shape[::-1], [("real", "<f8"), ("imag", "<f8")])
        parts["real"], parts["imag"] = value.real.T, value.imag.T
        dataset = group.create_dataset(name, data=parts)
    else:
        stored = value.astype(np.uint8) if matlab_class == "logical" else value
        dataset = group.create_dataset(name, data=stored.T)
    dataset.attrs["MATLAB_class"] = np.bytes_(matlab_class)


WRITERS = pytest.mark.parametrize("write", [write_v5, write_v73])


def test_both_versions_give_the_same_arrays_in_matlabs_order(tmp_path: Path) -> None:
    write_v5(tmp_path / "a.mat", CONTENT)
    write_v73(tmp_path / "b.mat", CONTENT)
    source = FolderSource(tmp_path)
    v5, v73 = source[0], source[1]
    assert sorted(v5) == sorted(v73) == FIELDS
    for name in FIELDS:
        expected: Any = CONTENT
        for part in name.split("."):
            expected = expected[part]
        for sample in (v5, v73):
            if isinstance(expected, str):
                assert sample[name] == expected
            else:
                np.testing.assert_array_equal(sample[name], np.squeeze(expected), strict=True)
                assert sample[name].flags.c_contiguous


@WRITERS
def test_the_arrays_are_those_of_pymatreader(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "a.mat", CONTENT)
    sample = FolderSource(tmp_path)[0]
    peer = pymatreader.read_mat(tmp_path / "a.mat")
    for name in ["matrix", "cube", "column", "row", "scalar", "complex_", "logical", "text"]:
        np.testing.assert_array_equal(sample[name], peer[name])
    np.testing.assert_array_equal(sample["params.deep.axis"], peer["params"]["deep"]["axis"])


@WRITERS
def test_axes_of_length_one_can_be_kept(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "a.mat", CONTENT)
    sample = FolderSource(tmp_path, squeeze=False)[0]
    assert sample["column"].shape == (5, 1)
    assert sample["row"].shape == (1, 4)
    assert sample["scalar"].shape == (1, 1)
    assert sample["empty"].shape == (0, 3)
    with pytest.raises(UsageError, match="squeeze must be True or False, got 1"):
        FolderSource(tmp_path, squeeze=1)


@WRITERS
def test_variables_are_chosen_by_name_and_structs_as_a_whole(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "a.mat", CONTENT)
    source = FolderSource(tmp_path, variables=["params.deep", "matrix"])
    assert list(source[0]) == ["params.deep.axis", "params.deep.name", "matrix"]
    assert list(FolderSource(tmp_path, variables=["params.mass"])[0]) == ["params.mass"]
    with pytest.raises(UsageError, match="variables must be a list of names, got 'matrix'"):
        FolderSource(tmp_path, variables="matrix")


@WRITERS
def test_an_unknown_variable_is_refused_with_the_nearest_one(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "a.mat", CONTENT)
    with pytest.raises(BadSampleError, match=r"no variable 'matrixx'; did you mean 'matrix'\?"):
        FolderSource(tmp_path, variables=["column", "matrixx"])[0]


def test_doubles_that_v5_stores_as_small_integers_are_doubles(tmp_path: Path) -> None:
    # As MATLAB writes x = [1 2 3], and scipy never does: class double, stored as uint8.
    def element(kind: int, data: bytes) -> bytes:
        return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)

    array = (
        element(6, struct.pack("<II", 6, 0))
        + element(5, struct.pack("<ii", 1, 3))
        + element(1, b"x")
        + element(2, bytes([1, 2, 3]))
    )
    compressed = zlib.compress(element(14, array))
    header = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    (tmp_path / "a.mat").write_bytes(header + struct.pack("<II", 15, len(compressed)) + compressed)
    assert pymatreader.read_mat(tmp_path / "a.mat")["x"].dtype == np.uint8
    x = FolderSource(tmp_path)[0]["x"]
    np.testing.assert_array_equal(x, np.array([1.0, 2.0, 3.0]), strict=True)


def test_imaginary_parts_are_kept_beside_logicals_in_one_struct(tmp_path: Path) -> None:
    content = {"s": {"z": np.array([[1 + 2j, 3 - 4j]]), "flag": np.array([[True]])}}
    write_v5(tmp_path / "a.mat", content)
    write_v73(tmp_path / "b.mat", content)
    source = FolderSource(tmp_path)
    for sample in (source[0], source[1]):
        np.testing.assert_array_equal(sample["s.z"], np.array([1 + 2j, 3 - 4j]), strict=True)
        np.testing.assert_array_equal(sample["s.flag"], np.array(True), strict=True)


UNUSABLE_V5: dict[str, Any] = {
    "x": np.zeros(3),
    "cells": np.array([np.zeros(3), "text"], dtype=object),
    "one_cell": np.array([None], dtype=object),
    "sparse": scipy.sparse.csc_matrix(np.eye(3)),
    "rows": np.array(["ab", "cd"]),
    "structs": np.zeros((1, 2), [("a", object)]),
    "s": {"cells": np.array([1, "a"], dtype=object), "fine": 1.0},
}
UNUSABLE_V5["one_cell"][0] = np.zeros(3)


def write_unusable_v73(path: Path) -> None:
    write_v73(path, {"x": np.zeros((3, 1)), "cells": [np.zeros(3), np.zeros(2)]})
    with h5py.File(path, "a") as file:
        refs = file["#refs#"]
        _write_group(file, {"one_cell": [np.zeros(3)]}, refs)
        _write_group(file, {"s": {"cells": [np.zeros(1)], "fine": np.ones((1, 1))}}, refs)
        sparse = file.create_group("sparse")
        sparse.attrs["MATLAB_class"] = np.bytes_("double")
        sparse.attrs["MATLAB_sparse"] = np.uint64(3)
        sparse["data"] = np.ones(3)
        _write_dataset(file, "rows", np.array([[97, 98], [99, 100]], np.uint16), "char")
        structs = file.create_group("structs")
        structs.attrs["MATLAB_class"] = np.bytes_("struct")
        structs.create_dataset("a", data=np.array([[refs["r0"].ref, refs["r1"].ref]], dtype=h5py.ref_dtype))
        _write_dataset(file, "when", np.zeros((1, 6), np.uint32), "datetime")


@pytest.fixture(params=["v5", "v7.3"])
def unusable(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    if request.param == "v5":
        write_v5(tmp_path / "a.mat", UNUSABLE_V5)
    else:
        write_unusable_v73(tmp_path / "a.mat")
    return tmp_path


def test_cells_and_what_is_neither_numbers_nor_text_are_left_out(unusable: Path) -> None:
    assert sorted(FolderSource(unusable)[0]) == ["s.fine", "x"]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("cells", "a cell array"),
        ("one_cell", "a cell array"),
        ("s.cells", "a cell array"),
        ("sparse", "a (sparse matrix|csc_)"),
        ("rows", "a char matrix of several rows"),
        ("structs", "a struct array"),
    ],
)
def test_asked_for_by_name_they_are_refused(unusable: Path, name: str, what: str) -> None:
    with pytest.raises(BadSampleError, match=f"variable '{name}' is {what}.*, not numbers"):
        FolderSource(unusable, variables=["x", name])[0]


def test_a_file_without_any_usable_variable_is_refused(tmp_path: Path) -> None:
    write_v5(tmp_path / "a.mat", {"c": np.array([1, "a"], dtype=object)})
    with pytest.raises(BadSampleError, match=r"no variable in it .*: c \(a cell array\)"):
        FolderSource(tmp_path)[0]
