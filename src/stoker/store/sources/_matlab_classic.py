"""The variables of a MATLAB file up to v7, through scipy.

MATLAB stores a double array of small integers as uint8 and a logical one as uint8 too. scipy gives
either what is stored, or with ``mat_dtype`` what it stands for, but then drops imaginary parts. So
what is stored is read first, and what it stands for only where that can differ.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def classic_variables(
    path: str, wanted: Sequence[str] | None
) -> dict[str, Callable[[], NDArray[Any] | str] | str]:
    """Each variable's dotted name with how to read it, or with the words for what it is instead.

    Variables that are not wanted are not decoded.
    """
    import scipy.io

    top = None if wanted is None else {name.partition(".")[0] for name in wanted}
    leaves = dict(_load(path, top, as_class=False))
    others = set()
    if top is not None and not top <= _tops(leaves):
        # Some name is wrong, and the error will list the right ones.
        others = {name for name, _, _ in scipy.io.whosmat(path, appendmat=False)} - _tops(leaves)
    ambiguous = [name for name, value in leaves.items() if _kind(value) in "iu"]
    if ambiguous:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            as_class = list(_load(path, _tops(ambiguous), as_class=True))
        leaves |= {name: value for name, value in as_class if _kind(leaves[name]) != "c"}
    found = {name: _variable(leaves[name]) for name in sorted(leaves)}
    return found | dict.fromkeys(sorted(others), "not read")


def _load(path: str, names: Iterable[str] | None, *, as_class: bool) -> Iterator[tuple[str, Any]]:
    import scipy.io

    chosen = None if names is None else tuple(names)
    loaded = scipy.io.loadmat(
        path, appendmat=False, mat_dtype=as_class, squeeze_me=False, variable_names=chosen
    )
    for name, value in loaded.items():
        if not name.startswith("__"):
            yield from _leaves(name, value)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if type(value) is np.ndarray and value.dtype.names is not None and value.size == 1:
        for field in value.dtype.names:
            yield from _leaves(f"{name}.{field}", value.flat[0][field])
    else:
        yield name, value


def _tops(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def _kind(value: Any) -> str:
    return value.dtype.kind if type(value) is np.ndarray else "O"


def _variable(value: Any) -> Callable[[], NDArray[Any] | str] | str:
    if type(value) is not np.ndarray:  # sparse matrices, functions and objects are other types
        return f"a {type(value).__name__}"
    if value.dtype.names is not None:
        return "a struct array"
    if value.dtype.kind == "O":
        return "a cell array"
    if value.dtype.kind == "U":
        return "a char matrix of several rows" if value.size > 1 else lambda: "".join(value.flat)
    return lambda: value
