"""What a sample is: the one form in which samples enter a store, and the fields they agree on.

A raw sample (dict or tuple of arrays, tensors, numbers and strings) becomes a ``Sample``: a dict of
little-endian C-contiguous arrays and strings. ``FieldType`` is what all samples of a store must
share; shapes may differ in size but not in rank.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SchemaError

Array: TypeAlias = NDArray[Any]
Sample: TypeAlias = dict[str, Array | str]

_RESERVED = {"index"}  # the loader's own: the numbers of a batch's samples
NAME_PATTERN = r"^[^/\x00-\x1f]{1,100}$"
_KINDS = "biufc"


@dataclass(frozen=True)
class FieldType:
    """What every sample's value of one field has in common."""

    kind: Literal["array", "string"]
    dtype: str  # numpy's name, "string" for text
    ndim: int

    def __str__(self) -> str:
        return "text" if self.kind == "string" else f"{self.dtype} of {self.ndim} axes"


_TEXT = FieldType("string", "string", 0)


def canonical(raw: Any, key: str) -> Sample:
    """The sample in the form in which it is stored.

    Raises:
        SchemaError: a value that is not an array, a number or a string, with what to do about it.
    """
    if isinstance(raw, Mapping):
        named = {str(name): value for name, value in raw.items()}
    elif isinstance(raw, tuple | list):
        named = dict(zip(_tuple_names(len(raw)), raw, strict=True))
    else:
        named = {"x": raw}
    if not named:
        raise SchemaError(key, "it has no fields; a sample is a dict (or tuple) of at least one")
    for name in named:
        if not _usable_name(name):
            raise SchemaError(
                key,
                f"field name {name!r} cannot be used; names have 1 to 100 printable characters, "
                f"no '/', and are not {sorted(_RESERVED)}",
            )
    return {name: _value(value, name, key) for name, value in named.items()}


def field_types(sample: Sample) -> dict[str, FieldType]:
    """The types of the sample's fields, by name."""
    return {name: _type_of(value) for name, value in sample.items()}


def check_types(sample: Sample, expected: Mapping[str, FieldType], key: str) -> None:
    """Raise SchemaError if the sample's fields are not those of the samples before it."""
    found = field_types(sample)
    if found == expected:
        return
    missing = sorted(expected.keys() - found.keys())
    added = sorted(found.keys() - expected.keys())
    if missing or added:
        raise SchemaError(
            key,
            f"its fields are {sorted(found)}, those of the samples before it {sorted(expected)}; "
            "give every sample the same fields",
        )
    name = next(name for name in expected if found[name] != expected[name])
    raise SchemaError(
        key,
        f"field {name!r} is {found[name]}, in the samples before it {expected[name]}; "
        "convert it in the transform",
    )


def _type_of(value: Array | str) -> FieldType:
    return _TEXT if isinstance(value, str) else _array_type(value.dtype, value.ndim)


@functools.cache
def _array_type(dtype: np.dtype[Any], ndim: int) -> FieldType:
    return FieldType("array", dtype.name, ndim)


@functools.lru_cache(maxsize=1024)
def _usable_name(name: str) -> bool:
    return re.fullmatch(NAME_PATTERN, name) is not None and name not in {".", ".."} and name not in _RESERVED


def _tuple_names(count: int) -> Sequence[str]:
    return [("x", "y")[i] if i < 2 else f"field_{i}" for i in range(count)]


def _value(value: Any, name: str, key: str) -> Array | str:
    if isinstance(value, str):  # np.str_ included
        return _encodable(str(value), name, key)
    if hasattr(value, "detach"):  # a torch tensor, without importing torch to know it
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            raise SchemaError(key, f"field {name!r} is bfloat16, which HDF5 lacks; use .float()")
        value = value.numpy()
    if isinstance(value, np.ma.MaskedArray):
        raise SchemaError(key, f"field {name!r} is a masked array; fill it, and keep the mask as a field")
    if value is None or isinstance(value, bytes | Mapping | set):
        raise SchemaError(key, f"field {name!r} is {type(value).__name__}; {_REMEDY}")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise SchemaError(key, f"field {name!r} is not an array ({error}); {_REMEDY}") from error
    if array.dtype.kind == "U" and array.ndim == 0:
        return _encodable(str(array), name, key)
    if array.dtype.kind not in _KINDS or array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
        raise SchemaError(key, f"field {name!r} has dtype {array.dtype}; {_REMEDY}")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array if array.flags.c_contiguous else array.copy(order="C")


def _encodable(text: str, name: str, key: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SchemaError(key, f"field {name!r} has text that is not Unicode ({error.reason})") from error
    return text


_REMEDY = (
    "a field is a number, a string, or an array of numbers or booleans (up to 64 bits; complex up "
    "to 128): convert it in the transform"
)
