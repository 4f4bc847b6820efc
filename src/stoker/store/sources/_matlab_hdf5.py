"""The variables of a MATLAB v7.3 file: HDF5, with MATLAB's conventions written in attributes.

Axes are stored reversed, complex numbers as a compound of ``real`` and ``imag``, an empty array as
its sizes, a struct as a group, a cell array as references into the group ``#refs#``.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMERIC = {
    "double": "float64",
    "single": "float32",
    "logical": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def hdf5_variables(
    group: Any, prefix: str = ""
) -> Iterator[tuple[str, Callable[[], NDArray[Any] | str] | str]]:
    """Each variable's dotted name with how to read it, or with the words for what it is instead."""
    import h5py

    for name in sorted(group):
        if name.startswith("#"):  # MATLAB's own bookkeeping
            continue
        item = group[name]
        dotted = f"{prefix}{name}"
        matlab_class = _text(item.attrs.get("MATLAB_class", ""))
        if not isinstance(item, h5py.Group):
            yield dotted, _refusal(item, matlab_class) or partial(_read, item, matlab_class)
        elif "MATLAB_sparse" in item.attrs:
            yield dotted, "a sparse matrix"
        elif matlab_class not in ("struct", ""):
            yield dotted, f"a {matlab_class}"
        else:
            yield from hdf5_variables(item, f"{dotted}.")


def _refusal(dataset: Any, matlab_class: str) -> str:
    if matlab_class == "cell":
        return "a cell array"
    if matlab_class == "struct" or dataset.dtype.kind == "O":
        return "a struct array"
    if matlab_class == "char":
        is_one_row = _is_empty(dataset) or len(dataset.shape) < 2 or dataset.shape[-1] == 1
        return "" if is_one_row else "a char matrix of several rows"
    is_number = dataset.dtype.kind in "biufc" or dataset.dtype.names == ("real", "imag")
    if matlab_class in NUMERIC or (matlab_class == "" and is_number):
        return ""
    return f"a {matlab_class or dataset.dtype}"


def _read(dataset: Any, matlab_class: str) -> NDArray[Any] | str:
    if _is_empty(dataset):
        if matlab_class == "char":
            return ""
        return np.zeros([int(size) for size in dataset[()]], NUMERIC.get(matlab_class))
    stored = dataset[()]
    if matlab_class == "char":
        return np.asarray(stored, "<u2").tobytes().decode("utf-16-le")
    if stored.dtype.names is not None:
        values = np.empty(stored.shape, "complex64" if matlab_class == "single" else "complex128")
        values.real, values.imag = stored["real"], stored["imag"]
        return values.T
    return np.asarray(stored, NUMERIC.get(matlab_class)).T


def _is_empty(dataset: Any) -> bool:
    return bool(dataset.attrs.get("MATLAB_empty", 0))


def _text(attribute: Any) -> str:
    return attribute.decode() if isinstance(attribute, bytes) else str(attribute)
